"""More meetings: keys, retries and deletions against what others do at the same moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.kit import completed, continued, end, new, put
from tests.races.interleaver import Meeting, Met
from tests.races.meetings import AT_ONCE, Given, finish, is_not, running
from towline.errors import BlockerError, InvalidState, NotFound, StillNeeded
from towline.model import Policy
from towline.operation import Op, Steps
from towline.store import Store
from towline.store.listing import JobFilter

# ---- keys


def dedup_and_dedup(scope: str) -> Meeting[Given]:
    """One key, two who ask for it, and the chain that has it ends meanwhile (D1, D2)."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new(key="k"))
        return {"held": held}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        again = new(key="k", scope=scope)
        return (
            store.enqueue([again]),
            store.enqueue([again]),
            finish(store, completed(given["held"])),
        )

    def expect(met: Met[Given]) -> Iterator[str]:
        yield from is_not(len(met.answers[2].accepted), 1, what="accepted")
        answers = [answer[0] for answer in met.answers[:2]]
        created = [answer.record.id for answer in answers if answer.created]
        known = {met.given["held"].chain_id, *created}
        if len(created) > (scope == "open"):
            yield f"chains {created} were created for one key"
        if not {answer.record.chain_id for answer in answers} <= known:
            yield "an answer is a chain that nobody created"

    return Meeting(prepare, operations, expect)


def dedup_twice(scope: str) -> Meeting[Given]:
    """A key that nobody has: one chain, and two handles to it (D1)."""

    def prepare(store: Store) -> Steps[Given]:
        yield from put(store, new("other"))
        return {}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return [store.enqueue([new(key="k", scope=scope)]) for _ in range(2)]

    def expect(met: Met[Given]) -> Iterator[str]:
        one, two = (answer[0] for answer in met.answers)
        yield from is_not(one.created + two.created, 1, what="created")
        yield from is_not(one.record.id, two.record.id, what="the other's chain")

    return Meeting(prepare, operations, expect)


def keys_in_two_orders() -> Meeting[Given]:
    """Two batches take the same keys, named in opposite orders."""

    def prepare(store: Store) -> Steps[Given]:
        yield from put(store, new("other"))
        return {}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return (
            store.enqueue([new(key="k"), new(key="m")]),
            store.enqueue([new(key="m"), new(key="k")]),
        )

    def expect(met: Met[Given]) -> Iterator[str]:
        created = [answer.created for answers in met.answers for answer in answers]
        yield from is_not(sum(created), 2, what="created")

    return Meeting(prepare, operations, expect)


# ---- deleting


def prune_and_enqueue_behind() -> Meeting[Given]:
    """An old chain is pruned, or somebody has begun to wait for it (B3)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new())
        yield from end(store, job, "completed")
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.prune(AT_ONCE), store.enqueue([new(after=[given["job"]])])

    def expect(met: Met[Given]) -> Iterator[str]:
        pruned, stored = met.answers
        refused = isinstance(stored, BlockerError)
        yield from is_not(pruned.chains, int(refused), what="pruned")
        if not refused:
            yield from is_not(met.states(stored[0].record.id), ["pending"], what="state")

    return Meeting(prepare, operations, expect)


def prune_and_key(scope: str) -> Meeting[Given]:
    """An old chain is pruned whose key somebody takes, or finds (D2)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new(key="k"))
        yield from end(store, job, "completed")
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.prune(AT_ONCE), store.enqueue([new(key="k", scope=scope)])

    def expect(met: Met[Given]) -> Iterator[str]:
        pruned, ((record, created),) = met.answers
        if scope == "open":
            yield from is_not(created, True, what="created")
        if created:
            yield from is_not(met.states(record.id), ["pending"], what="state")
        else:  # it was there then, and may have gone since
            yield from is_not(len(met.states(record.id)), 1 - pruned.chains, what="jobs")

    return Meeting(prepare, operations, expect)


def prune_and_retry(which: str) -> Meeting[Given]:
    """A failed chain is pruned or retried, not both; its blocker stays as long as it does."""

    def prepare(store: Store) -> Steps[Given]:
        (blocker,) = yield from put(store, new())
        (job,) = yield from put(store, new(after=[blocker]))
        yield from end(store, blocker, "failed")
        return {"blocker": blocker, "job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.prune(AT_ONCE), store.retry(given[which])

    def expect(met: Met[Given]) -> Iterator[str]:
        found = met.states(met.given["blocker"], met.given["job"])
        match met.answers[1]:
            case NotFound():
                yield from is_not(found, [], what="states")
            case InvalidState():  # the dependent: its blocker comes first
                yield from is_not(found, [], ["failed", "failed"], what="states")
            case _:  # the dependent, which nobody held, may be gone
                yield from is_not(found, ["pending", "blocked"], ["pending"], what="states")

    return Meeting(prepare, operations, expect)


def delete_and_enqueue_behind() -> Meeting[Given]:
    """A chain goes, or somebody has begun to wait for it (B3, R3)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new(key="k"))
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.delete([given["job"]]), store.enqueue([new(after=[given["job"]])])

    def expect(met: Met[Given]) -> Iterator[str]:
        deleted, stored = met.answers
        kept = isinstance(deleted, StillNeeded)
        yield from is_not(isinstance(stored, BlockerError), not kept, what="refused")
        if kept:
            found = met.states(met.given["job"], stored[0].record.id)
            yield from is_not(found, ["pending", "blocked"], what="states")

    return Meeting(prepare, operations, expect)


def delete_and_finish(*, goes_on: bool) -> Meeting[Given]:
    """A chain goes with all of its jobs, also one that is stored this moment (R3)."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new(key="k"))
        return {"held": held}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        held = given["held"]
        ending = continued(held, new("next")) if goes_on else completed(held)
        return store.delete([held.chain_id]), finish(store, ending)

    def expect(met: Met[Given]) -> Iterator[str]:
        chain = met.given["held"].chain_id
        yield from is_not(met.answers[0], [chain], what="deleted")
        yield from is_not(met.states(*range(chain, chain + 10)), [], what="states")

    return Meeting(prepare, operations, expect)


def delete_and_key() -> Meeting[Given]:
    """A chain goes whose key somebody asks for: the answer is a chain that is there (D1)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new(key="k"))
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.delete([given["job"]]), store.enqueue([new(key="k")])

    def expect(met: Met[Given]) -> Iterator[str]:
        deleted, ((record, created),) = met.answers
        yield from is_not(deleted, [met.given["job"]], what="deleted")
        yield from is_not(len(met.states(record.id)), int(created), what="jobs of the answer")

    return Meeting(prepare, operations, expect)


# ---- retrying


def retry_and_cancel() -> Meeting[Given]:
    """A failed job is revived and cancelled: what waits for it follows the one that came last."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new())
        (dependent,) = yield from put(store, new(after=[job]))
        yield from end(store, job, "failed")
        return {"job": job, "dependent": dependent}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.retry(given["job"]), store.cancel(given["job"])

    def expect(met: Met[Given]) -> Iterator[str]:
        retried, cancelled = met.answers
        if isinstance(retried, Exception):
            yield f"retry was refused: {retried}"
        wanted = ["cancelled", "failed"]
        if isinstance(cancelled, InvalidState):
            wanted = ["pending", "blocked"]
        found = met.states(met.given["job"], met.given["dependent"])
        yield from is_not(found, wanted, what="states")

    return Meeting(prepare, operations, expect)


def retry_and_cancel_dependent() -> Meeting[Given]:
    """A blocker is revived while its dependent, failed with it, is cancelled (B6)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new())
        (dependent,) = yield from put(store, new(after=[job]))
        yield from end(store, job, "failed")
        return {"job": job, "dependent": dependent}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.retry(given["job"]), store.cancel(given["dependent"])

    def expect(met: Met[Given]) -> Iterator[str]:
        wanted = "blocked" if isinstance(met.answers[1], InvalidState) else "cancelled"
        found = met.states(met.given["job"], met.given["dependent"])
        yield from is_not(found, ["pending", wanted], what="states")

    return Meeting(prepare, operations, expect)


def retry_and_retry() -> Meeting[Given]:
    """A failed job is revived once."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new(key="k"))
        yield from end(store, job, "failed")
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.retry(given["job"]), store.retry(given["job"])

    def expect(met: Met[Given]) -> Iterator[str]:
        refused = sum(isinstance(answer, InvalidState) for answer in met.answers)
        yield from is_not(refused, 1, what="refused")
        yield from is_not(met.states(met.given["job"]), ["pending"], what="state")

    return Meeting(prepare, operations, expect)


def retry_and_enqueue_behind(policy: Policy) -> Meeting[Given]:
    """A job is stored behind a failed chain that is revived this moment: it waits (B3, B6)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new())
        yield from end(store, job, "failed")
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return (
            store.retry(given["job"]),
            store.enqueue([new(after=[given["job"]], policy=policy)]),
        )

    def expect(met: Met[Given]) -> Iterator[str]:
        ((record, _),) = met.answers[1]
        found = met.states(met.given["job"], record.id)
        yield from is_not(found, ["pending", "blocked"], what="states")

    return Meeting(prepare, operations, expect)


def filter_and_enqueue(action: str) -> Meeting[Given]:
    """What a filter finds is cancelled or retried while somebody begins to wait for it (B3, K4)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new())
        if action == "retry":
            yield from end(store, job, "failed")
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return (
            store.bulk(action, JobFilter(task="a"), False, None, 10),
            store.enqueue([new("d", after=[given["job"]])]),
        )

    def expect(met: Met[Given]) -> Iterator[str]:
        touched, ((record, _),) = met.answers
        yield from is_not(touched.number, 1, what="touched")
        wanted = ["pending", "blocked"] if action == "retry" else ["cancelled", "failed"]
        found = met.states(met.given["job"], record.id)
        yield from is_not(found, wanted, what="states")

    return Meeting(prepare, operations, expect)


def retry_two_blockers() -> Meeting[Given]:
    """Two failed blockers of one job are revived: it waits for both, or for none yet (B6)."""

    def prepare(store: Store) -> Steps[Given]:
        one, two = yield from put(store, new(), new())
        (job,) = yield from put(store, new(after=[one, two], policy=Policy.WAIT))
        yield from end(store, one, "failed")
        yield from end(store, two, "failed")
        return {"one": one, "two": two, "job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.retry(given["one"]), store.retry(given["two"])

    def expect(met: Met[Given]) -> Iterator[str]:
        found = met.states(met.given["one"], met.given["two"], met.given["job"])
        yield from is_not(found, ["pending", "pending", "blocked"], what="states")

    return Meeting(prepare, operations, expect)


def retry_key_and_enqueue() -> Meeting[Given]:
    """A failed chain is revived while another takes its key: one of them is open (D1)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new(key="k"))
        yield from end(store, job, "failed")
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.retry(given["job"]), store.enqueue([new(key="k")])

    def expect(met: Met[Given]) -> Iterator[str]:
        retried, ((_, created),) = met.answers
        yield from is_not(isinstance(retried, Exception), created, what="refused")

    return Meeting(prepare, operations, expect)
