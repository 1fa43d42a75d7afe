"""Operations that may meet: what is there before, and what must be so afterwards in any order.

The auditor's checks hold after each of them; here is only what it cannot know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.kit import SECOND, claim, completed, continued, end, failed, new, put, register
from tests.races.interleaver import Meeting, Met
from towline.errors import BlockerError, InvalidState
from towline.model import Outcome, Policy
from towline.operation import Op, Steps
from towline.records import Claimed, Ending, NewJob
from towline.store import Store
from towline.store.lease import Renewed
from towline.store.retention import KeepFor
from towline.store.turn import promote

Given = dict[str, Any]
AT_ONCE = KeepFor(0, 0, 0)
BAD = ("failed", "cancelled")


def is_not(found: object, *wanted: object, what: str) -> Iterator[str]:
    """A complaint, unless what was found is one of those."""
    if found not in wanted:
        yield f"{what}: {found}, not {' or '.join(map(str, wanted))}"


def running(store: Store, *jobs: NewJob, lease: int = 60 * SECOND) -> Steps[list[Claimed]]:
    """Store jobs and let worker 1 hold them."""
    yield from put(store, *jobs)
    worker = yield from register(store, lease=lease)
    return (yield from claim(store, len(jobs), worker))


def ending(held: Claimed, how: str) -> Ending:
    if how == "completed":
        return completed(held)
    if how == "failed":
        return failed(held)
    return Ending(held, Outcome.CANCELLED)


def finish(store: Store, ending: Ending, slot: int = 1) -> Op[Any]:
    return store.finish([ending], f"w{slot}", slot)


def after(how: str, policy: Policy) -> str:
    """Where a job is whose only blocker has ended so."""
    if how == "completed" or policy is Policy.RUN:
        return "pending"
    return "failed" if policy is Policy.FAIL else "blocked"


# ---- ending what somebody else ends


def finish_and_sweep() -> Meeting[Given]:
    """One of them has the attempt, whoever it is (L3)."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new(), lease=0)
        (dependent,) = yield from put(store, new(after=[held.chain_id]))
        return {"held": held, "dependent": dependent}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return finish(store, completed(given["held"])), store.sweep()

    def expect(met: Met[Given]) -> Iterator[str]:
        finished, swept = met.answers
        yield from is_not(len(finished.accepted) + swept, 1, what="winners")
        wanted = ["completed", "pending"] if finished.accepted else ["scheduled", "blocked"]
        found = met.states(met.given["held"].job_id, met.given["dependent"])
        yield from is_not(found, wanted, what="states")

    return Meeting(prepare, operations, expect)


def sweep_and_sweep() -> Meeting[Given]:
    """A lost attempt is taken back once (L5)."""

    def prepare(store: Store) -> Steps[Given]:
        held = yield from running(store, new(), new(), lease=0)
        return {"jobs": [job.job_id for job in held]}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.sweep(), store.sweep()

    def expect(met: Met[Given]) -> Iterator[str]:
        yield from is_not(sum(met.answers), 2, what="taken back")
        yield from is_not(met.states(*met.given["jobs"]), ["scheduled"] * 2, what="states")

    return Meeting(prepare, operations, expect)


def sweep_and_renew() -> Meeting[Given]:
    """A worker keeps all that it holds, or is told that it lost it (L3)."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new(), lease=0)
        return {"held": held}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        held = given["held"]
        return store.sweep(), store.renew(1, "w1", SECOND, [(held.job_id, held.attempt)])

    def expect(met: Met[Given]) -> Iterator[str]:
        swept, renewed = met.answers
        assert isinstance(renewed, Renewed)
        kept = renewed.registered and not renewed.lost
        yield from is_not(swept, 0 if kept else 1, what="taken back")
        state = met.states(met.given["held"].job_id)
        yield from is_not(state, ["running" if kept else "scheduled"], what="state")

    return Meeting(prepare, operations, expect)


def sweep_and_claim() -> Meeting[Given]:
    """What a worker claims whose lease is over is taken back, or its registration stands (L3)."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new())
        worker = yield from register(store, lease=0)
        return {"job": job, "worker": worker}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.sweep(), store.claim(given["worker"], ["default"], 1, "w1")

    def expect(met: Met[Given]) -> Iterator[str]:
        swept, claimed = met.answers
        workers = met.stage.look(met.store.workers())
        wanted = "scheduled" if swept else "running" if claimed else "pending"
        yield from is_not(met.states(met.given["job"]), [wanted], what="state")
        yield from is_not(len(workers), int(wanted == "running"), what="workers")

    return Meeting(prepare, operations, expect)


def claim_and_claim() -> Meeting[Given]:
    """An attempt is given out once (L1)."""

    def prepare(store: Store) -> Steps[Given]:
        jobs = yield from put(store, new(), new())
        yield from register(store)
        yield from register(store, "w2")
        return {"jobs": jobs}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.claim(1, ["default"], 1, "w1"), store.claim(2, ["default"], 1, "w2")

    def expect(met: Met[Given]) -> Iterator[str]:
        given_out = sorted(job.job_id for answer in met.answers for job in answer)
        yield from is_not(given_out, met.given["jobs"], what="given out")

    return Meeting(prepare, operations, expect)


def finish_and_control(how: str) -> Meeting[Given]:
    """A job ends once: as its worker says, or as somebody outside does (L3)."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new())
        (dependent,) = yield from put(store, new(after=[held.chain_id], policy=Policy.WAIT))
        return {"held": held, "dependent": dependent}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return finish(store, completed(given["held"])), end(store, given["held"].job_id, how)

    def expect(met: Met[Given]) -> Iterator[str]:
        finished, outside = met.answers
        refused = isinstance(outside, InvalidState)
        yield from is_not(len(finished.accepted), int(refused), what="accepted")
        state = "completed" if refused else how
        wanted = [state, after(state, Policy.WAIT)]
        found = met.states(met.given["held"].job_id, met.given["dependent"])
        yield from is_not(found, wanted, what="states")

    return Meeting(prepare, operations, expect)


def claim_and_cancel() -> Meeting[Given]:
    """Claimed meanwhile or not, the job is cancelled."""

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new())
        yield from register(store)
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.claim(1, ["default"], 1, "w1"), store.cancel(given["job"])

    def expect(met: Met[Given]) -> Iterator[str]:
        yield from is_not(met.states(met.given["job"]), ["cancelled"], what="state")

    return Meeting(prepare, operations, expect)


def claim_and_replace(delay: int) -> Meeting[Given]:
    """Who claims a job has the arguments that are stored (D3)."""
    again = new(key="k", on_conflict="replace", arguments='{"n":2}', delay=delay)

    def prepare(store: Store) -> Steps[Given]:
        (job,) = yield from put(store, new(key="k", arguments='{"n":1}'))
        yield from register(store)
        return {"job": job}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.claim(1, ["default"], 1, "w1"), store.enqueue([again])

    def expect(met: Met[Given]) -> Iterator[str]:
        claimed = met.answers[0]
        record = met.stage.look(met.store.job(met.given["job"]))
        if claimed:
            yield from is_not(claimed[0].arguments, record.arguments, what="arguments")
            yield from is_not(record.state, "running", what="state")
        else:
            yield from is_not(record.arguments, '{"n":2}', what="arguments")
            yield from is_not(record.state, "scheduled" if delay else "pending", what="state")

    return Meeting(prepare, operations, expect)


def promote_and_control(how: str) -> Meeting[Given]:
    """A scheduled job whose time has come becomes pending once, or is cancelled."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new())
        yield from store.finish([Ending(held, Outcome.SNOOZED, delay=0)])
        return {"job": held.job_id}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        outside = store.cancel(given["job"]) if how == "cancel" else store.run_now(given["job"])
        return Op("promote", lambda: promote(store)), outside

    def expect(met: Met[Given]) -> Iterator[str]:
        wanted = "cancelled" if how == "cancel" else "pending"
        yield from is_not(met.states(met.given["job"]), [wanted], what="state")

    return Meeting(prepare, operations, expect)


# ---- blockers that end


def finish_and_finish(first: str, second: str, policy: Policy) -> Meeting[Given]:
    """Two blockers of one job end: it becomes pending once, or fails once (B2, B6)."""

    def prepare(store: Store) -> Steps[Given]:
        one, two = yield from running(store, new(), new())
        blockers = [one.chain_id, two.chain_id]
        (dependent,) = yield from put(store, new(after=blockers, policy=policy))
        (last,) = yield from put(store, new(after=[dependent], policy=policy))
        return {"one": one, "two": two, "dependent": dependent, "last": last}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return (
            finish(store, ending(given["one"], first)),
            finish(store, ending(given["two"], second), 2),
        )

    def expect(met: Met[Given]) -> Iterator[str]:
        worse = next((how for how in (first, second) if how in BAD), "completed")
        state = after(worse, policy)
        behind = "failed" if state == "failed" else "blocked"
        found = met.states(met.given["dependent"], met.given["last"])
        yield from is_not(found, [state, behind], what="states")
        for finished in met.answers:
            yield from is_not(len(finished.accepted), 1, what="accepted")

    return Meeting(prepare, operations, expect)


def end_and_cancel_dependent(how: str) -> Meeting[Given]:
    """A dependent is cancelled while its blocker ends: once ended, it stays so."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new())
        (dependent,) = yield from put(store, new(after=[held.chain_id]))
        return {"held": held, "dependent": dependent}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return finish(store, ending(given["held"], how)), store.cancel(given["dependent"])

    def expect(met: Met[Given]) -> Iterator[str]:
        finished, cancelled = met.answers
        yield from is_not(len(finished.accepted), 1, what="accepted")
        wanted = "failed" if isinstance(cancelled, InvalidState) else "cancelled"
        yield from is_not(met.states(met.given["dependent"]), [wanted], what="state")

    return Meeting(prepare, operations, expect)


def enqueue_and_end(
    how: str, policy: Policy, *, outside: bool = False, key: str | None = None
) -> Meeting[Given]:
    """A job is stored behind a chain that ends this moment: neither early nor stuck (B3, B6)."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new(key=key))
        return {"held": held}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        held = given["held"]
        ends = end(store, held.job_id, how) if outside else finish(store, ending(held, how))
        return store.enqueue([new(after=[held.chain_id], policy=policy)]), ends

    def expect(met: Met[Given]) -> Iterator[str]:
        ((record, _),) = met.answers[0]
        yield from is_not(met.states(record.id), [after(how, policy)], what="state")

    return Meeting(prepare, operations, expect)


def enqueue_and_continue(*, outside: bool = False) -> Meeting[Given]:
    """A job behind a chain that goes on this moment stays blocked (B3, B4)."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new())
        return {"held": held}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        held = given["held"]
        goes_on = (
            store.complete(held.job_id, None, new("next"))
            if outside
            else finish(store, continued(held, new("next")))
        )
        return store.enqueue([new(after=[held.chain_id])]), goes_on

    def expect(met: Met[Given]) -> Iterator[str]:
        ((record, _),) = met.answers[0]
        yield from is_not(met.states(record.id), ["blocked"], what="state")
        tail = met.stage.look(met.store.target(met.given["held"].chain_id))
        yield from is_not(tail.task, "next", what="tail")

    return Meeting(prepare, operations, expect)


def enqueue_and_cascade() -> Meeting[Given]:
    """A job is stored behind one that a failure is about to reach (B3, B6)."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new())
        (dependent,) = yield from put(store, new(after=[held.chain_id]))
        return {"held": held, "dependent": dependent}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return store.enqueue([new(after=[given["dependent"]])]), finish(
            store, failed(given["held"])
        )

    def expect(met: Met[Given]) -> Iterator[str]:
        ((record, _),) = met.answers[0]
        found = met.states(met.given["dependent"], record.id)
        yield from is_not(found, ["failed", "failed"], what="states")

    return Meeting(prepare, operations, expect)


def circle(*, outside: bool, through_third: bool) -> Meeting[Given]:
    """Two chains go on with jobs that wait for each other: one of them is refused (B5)."""

    def prepare(store: Store) -> Steps[Given]:
        one, two = yield from running(store, new(), new())
        target = two.chain_id
        if through_third:
            (target,) = yield from put(store, new(after=[two.chain_id]))
        return {"one": one, "two": two, "target": target}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        one, two = given["one"], given["two"]
        pairs = (one, given["target"]), (two, one.chain_id)
        if outside:
            return [store.complete(h.job_id, None, new("next", after=[t])) for h, t in pairs]
        return [
            finish(store, continued(h, new("next", after=[t])), slot)
            for slot, (h, t) in enumerate(pairs, 1)
        ]

    def expect(met: Met[Given]) -> Iterator[str]:
        refused = [isinstance(answer, BlockerError) for answer in met.answers]
        yield from is_not(sum(refused), 1, what="refused")
        found = met.states(met.given["one"].job_id, met.given["two"].job_id)
        wanted = ["running" if answer else "completed" for answer in refused]
        yield from is_not(found, wanted, what="states")

    return Meeting(prepare, operations, expect)
