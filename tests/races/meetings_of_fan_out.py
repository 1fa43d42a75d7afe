"""Fan-outs by return that meet what others do: all of one is there afterwards, or nothing (F4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tests.kit import completed, continued, new, put
from tests.races.interleaver import Meeting, Met
from tests.races.meetings import Given, finish, is_not, running
from towline.model import Policy
from towline.operation import Op, Steps
from towline.records import NewBlocker, NewJob
from towline.store import Store
from towline.store.listing import JobFilter


def merge(*children: NewJob, policy: Policy = Policy.FAIL) -> NewJob:
    blockers = [NewBlocker(index=index) for index in range(len(children))]
    return new("merge", children=children, blockers=blockers, policy=policy)


def _tasks(met: Met[Given]) -> list[str]:
    """The tasks of all jobs, oldest first."""

    def steps() -> Steps[list[str]]:
        found = yield from met.store.jobs(JobFilter(), 100, newest=False)
        return [record.task for record in found.records]

    return met.stage.look(Op("tasks", steps, reads=True))


def fan_out_and_control(how: str) -> Meeting[Given]:
    """Somebody ends the job from outside: there are no children, or he ended the continuation."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new("split"))
        return {"held": held}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        held = given["held"]
        outside = store.cancel if how == "cancel" else store.complete
        ended: Op[Any] = outside(held.job_id, None)
        return finish(store, continued(held, merge(new("a"), new("b")))), ended

    def expect(met: Met[Given]) -> Iterator[str]:
        finished, _ = met.answers
        wanted = ["split", "a", "b", "merge"] if finished.accepted else ["split"]
        yield from is_not(_tasks(met), wanted, what="jobs")
        tail = met.stage.look(met.store.target(met.given["held"].chain_id))
        yield from is_not(tail.state.open, False, what="an open end")

    return Meeting(prepare, operations, expect)


def fan_out_and_sweep() -> Meeting[Given]:
    """The lease is over: one of them has the attempt."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new("split"), lease=0)
        return {"held": held}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return finish(store, continued(given["held"], merge(new("a"), new("b")))), store.sweep()

    def expect(met: Met[Given]) -> Iterator[str]:
        finished, swept = met.answers
        yield from is_not(len(finished.accepted) + swept, 1, what="winners")
        wanted = ["split", "a", "b", "merge"] if finished.accepted else ["split"]
        yield from is_not(_tasks(met), wanted, what="jobs")

    return Meeting(prepare, operations, expect)


def enqueue_and_fan_out() -> Meeting[Given]:
    """A job behind a chain that fans out this moment stays blocked; a caller who has not committed
    keeps no fan-out waiting, since what it waits for is its own."""

    def prepare(store: Store) -> Steps[Given]:
        (held,) = yield from running(store, new("split"))
        return {"held": held}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        held = given["held"]
        behind = store.enqueue([new("behind", after=[held.chain_id])])
        return behind, finish(store, continued(held, merge(new("a"))))

    def expect(met: Met[Given]) -> Iterator[str]:
        ((record, _),), finished = met.answers
        yield from is_not(met.states(record.id), ["blocked"], what="state")
        yield from is_not(len(finished.accepted), 1, what="accepted")

    return Meeting(prepare, operations, expect)


def fan_out_and_end(how: str, policy: Policy) -> Meeting[Given]:
    """A child waits for a stored chain that ends this moment, well or badly: nobody waits for ever,
    nobody runs early."""

    def prepare(store: Store) -> Steps[Given]:
        split, stored = yield from running(store, new("split"), new("stored"))
        (behind,) = yield from put(store, new("behind", after=[split.chain_id]))
        return {"split": split, "stored": stored, "behind": behind}

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        stored = given["stored"]
        child = new("child", after=[stored.chain_id])
        ended: Op[Any] = (
            finish(store, completed(stored), 2)
            if how == "completed"
            else store.fail(stored.job_id, "broken")
        )
        return finish(store, continued(given["split"], merge(child, policy=policy))), ended

    def expect(met: Met[Given]) -> Iterator[str]:
        finished, ended = met.answers
        if not finished.accepted:
            yield from is_not(len(finished.postponed), 1, what="postponed")
            yield from is_not(_tasks(met), ["split", "stored", "behind"], what="jobs")
            return
        if how == "completed" and not ended.accepted:
            return  # it is put off, and the child waits for it
        tail = met.stage.look(met.store.target(met.given["split"].chain_id))
        bad = {Policy.FAIL: "failed", Policy.WAIT: "blocked", Policy.RUN: "pending"}[policy]
        wanted = "blocked" if how == "completed" else bad
        yield from is_not(str(tail.state), wanted, what="continuation")
        behind = "failed" if wanted == "failed" else "blocked"
        yield from is_not(met.states(met.given["behind"]), [behind], what="behind it")

    return Meeting(prepare, operations, expect)
