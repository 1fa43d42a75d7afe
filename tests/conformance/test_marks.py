"""Finding S4: whatever makes work ready, or ends a chain, marks it.

Whoever runs an operation finds its marks in `Op.follows`, and tells workers and waiters once it is
committed: in this process, by NOTIFY, through Redis or NATS. So each transition of the store stands
in this table, on both engines.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kit import HOUR, Clock, claim, completed, continued, failed, new, put, register
from towline import Towline
from towline.model import Outcome, Policy
from towline.operation import Op, Steps
from towline.records import Ending
from towline.store import Store
from towline.store.lease import Begun
from towline.store.limit import Numbers
from towline.store.listing import JobFilter
from towline.store.retention import KeepFor
from towline.store.turn import unpark

Prepare = Callable[[Store], Steps[Any]]
Act = Callable[[Store, Any], Op[Any]]


@dataclass(frozen=True)
class Case:
    """A transition: what is there before, what happens, and what it must mark."""

    name: str
    prepare: Prepare
    act: Act
    queues: tuple[str, ...] = ()
    ended: bool = False


def nothing(store: Store) -> Steps[None]:
    return
    yield


def stored(*jobs: dict[str, Any]) -> Prepare:
    """Jobs in queue "a" unless they say otherwise; the ids of what is there."""
    return lambda store: put(store, *(new(**{"queue": "a", **job}) for job in jobs))


def blocked(**fields: Any) -> Prepare:
    """Job 1 in "a", and job 2 in "b" that waits for it."""
    return stored({}, {"queue": "b", "after": [1], **fields})


def running(prepare: Prepare, room: int = 1, ahead: int = 0, queues: str = "a") -> Prepare:
    """All of queue "a", or of these, is claimed by worker 1."""

    def steps(store: Store) -> Steps[Any]:
        yield from prepare(store)
        worker = yield from register(store)
        return (yield from store.claim(worker, list(queues), room, None, ahead))

    return steps


def limited(store: Store) -> Steps[Any]:
    """One of two jobs in "a" runs, which is all that the queue's limit lets run."""
    yield from store.set_limit("a", None, Numbers(1))
    yield from stored({}, {})(store)
    worker = yield from register(store)
    return (yield from store.claim(worker, ["a"], 1))


def parked(store: Store) -> Steps[None]:
    held = yield from running(stored({}))(store)
    yield from store.park(held)


def taken(prepare: Prepare) -> Prepare:
    """Job 1 was claimed, and cancelled since."""

    def steps(store: Store) -> Steps[Any]:
        held = yield from prepare(store)
        yield from store.cancel(1)
        return held

    return steps


def over(how: str, prepare: Prepare | None = None) -> Prepare:
    """Job 1 has ended from outside."""

    def steps(store: Store) -> Steps[None]:
        yield from (prepare or stored({}))(store)
        yield from store.fail(1, "broken") if how == "failed" else store.cancel(1)

    return steps


def expired(prepare: Prepare, clock: Clock) -> Prepare:
    def steps(store: Store) -> Steps[Any]:
        held = yield from prepare(store)
        clock.advance(31)
        return held

    return steps


def finish(make: Callable[[Any], Ending]) -> Act:
    return lambda store, held: store.finish([make(one) for one in held], "w1", 1)


def cases(clock: Clock) -> list[Case]:
    one = stored({})
    return [
        # ---- new work
        Case("enqueue", nothing, lambda s, _: s.enqueue([new(queue="a")]), ("a",)),
        Case("enqueue with a key", nothing,
             lambda s, _: s.enqueue([new(queue="a", key="k"), new(queue="b")]), ("a", "b")),
        Case("enqueue for later", nothing,
             lambda s, _: s.enqueue([new(queue="a", delay=HOUR)]), ("a",)),
        Case("enqueue behind an open chain", one,
             lambda s, _: s.enqueue([new(queue="b", after=[1])])),
        Case("enqueue behind a failed chain", over("failed"),
             lambda s, _: s.enqueue([new(queue="b", after=[1])]), ended=True),
        Case("enqueue behind a failed chain, to run all the same", over("failed"),
             lambda s, _: s.enqueue([new(queue="b", after=[1], policy=Policy.RUN)]), ("b",)),
        Case("replace", stored({"key": "k", "delay": HOUR}),
             lambda s, _: s.enqueue([new(queue="a", key="k", on_conflict="replace")]), ("a",)),
        # ---- from outside
        Case("retry", over("failed"), lambda s, _: s.retry(1), ("a",)),
        Case("retry revives what had failed with it", over("failed", blocked()),
             lambda s, _: s.retry(1), ("a", "b")),
        Case("run now", stored({"delay": HOUR}), lambda s, _: s.run_now(1), ("a",)),
        Case("resume", lambda s: s.pause("a").__iter__(), lambda s, _: s.resume("a"), ("a",)),
        Case("complete", one, lambda s, _: s.complete(1, "null"), ended=True),
        Case("complete, and it frees", blocked(), lambda s, _: s.complete(1, "null"), ("b",), True),
        Case("complete, and it goes on", one,
             lambda s, _: s.complete(1, None, new(queue="c")), ("c",)),
        Case("fail", one, lambda s, _: s.fail(1, "broken"), ended=True),
        Case("fail, and it frees", blocked(policy=Policy.RUN), lambda s, _: s.fail(1, "broken"),
             ("b",), True),
        Case("cancel", one, lambda s, _: s.cancel(1), ended=True),
        Case("cancel, and it fails what waits", blocked(), lambda s, _: s.cancel(1), ended=True),
        Case("cancel what was claimed ahead", running(one, 0, 1), lambda s, _: s.cancel(1),
             ended=True),
        Case("cancel in bulk", stored({}, {}),
             lambda s, _: s.bulk("cancel", JobFilter(), False, None, 9), ended=True),
        Case("retry in bulk", over("cancelled"),
             lambda s, _: s.bulk("retry", JobFilter(), False, None, 9), ("a",)),
        # ---- by a worker
        Case("completed", running(one), finish(completed), ended=True),
        Case("completed, with a key", running(stored({"key": "k"})), finish(completed),
             ended=True),
        Case("completed, and it frees", running(blocked()), finish(completed), ("b",), True),
        Case("completed, and it frees for later", running(blocked(delay=HOUR)), finish(completed),
             ("b",), True),
        Case("continued", running(one), finish(lambda held: continued(held, new(queue="c"))),
             ("c",)),
        Case("failed for good", running(blocked(policy=Policy.RUN)), finish(failed), ("b",), True),
        Case("released", running(one), finish(lambda held: Ending(held, Outcome.RELEASED)), ("a",)),
        Case("never begun", running(one, 0, 1),
             finish(lambda held: Ending(held, Outcome.RELEASED, started=False)), ("a",)),
        Case("a turn that frees", running(blocked()),
             lambda s, held: s.turn(1, "w1", ["none"], 1, [completed(held[0])]), ("b",), True),
        Case("a turn that makes room, of a worker that may claim no more", limited,
             lambda s, held: s.turn(9, "gone", ["a"], 1, [completed(held[0])], gated=["a"]),
             ("a",), True),
        Case("a stray is put back", running(one),
             lambda s, _: s.renew(1, "w1", HOUR, ()), ("a",)),
        Case("a stray beside what is held", running(stored({}, {"queue": "b"}), 2, queues="ab"),
             lambda s, _: s.renew(1, "w1", HOUR, [(1, 1)]), ("b",)),
        Case("park", running(one), lambda s, held: s.park(held), ("a",)),
        Case("park what is still ours", taken(running(stored({}, {}), 2)),
             lambda s, held: s.park(held), ("a",)),
        Case("park nothing", one, lambda s, _: s.park([])),
        Case("unpark", parked, lambda s, _: Op("unpark", lambda: unpark(s, ["a"], ["a"])), ("a",)),
        Case("a sweep of what never began", expired(running(one, 0, 1), clock),
             lambda s, _: s.sweep(begun={1: Begun(frozenset())}), ("a",)),
        # ---- nothing to tell
        Case("a retry after a delay", running(one),
             finish(lambda held: failed(held, delay=HOUR))),
        Case("a stale ending", taken(running(one)), finish(completed)),
        Case("a stale one that is handed back", taken(running(one)),
             finish(lambda held: Ending(held, Outcome.RELEASED))),
        Case("a stale one that is parked", taken(running(one)), lambda s, held: s.park(held)),
        Case("a claim", one, lambda s, _: s.claim(1, ["a"], 1)),
        Case("pause", one, lambda s, _: s.pause("a")),
        Case("a look", one, lambda s, _: s.peek(["a"])),
        Case("prune", over("failed"), lambda s, _: s.prune(KeepFor(0, 0, 0), 100)),
    ]  # fmt: skip


NAMES = [case.name for case in cases(Clock())]


@pytest.mark.parametrize("name", NAMES)
def test_S4_what_makes_work_ready_or_ends_a_chain_marks_it(
    name: str, app: Towline, store: Store, clock: Clock
) -> None:
    case = next(case for case in cases(clock) if case.name == name)
    told = app.runner.run(Op("prepare", lambda: case.prepare(store)))
    op = case.act(store, told)
    app.runner.run(op)
    marked = (set(), False) if op.follows is None else (op.follows.queues, op.follows.ended)
    assert marked == (set(case.queues), case.ended)


def test_S4_an_operation_that_is_composed_of_others_has_the_marks_of_all(
    app: Towline, store: Store
) -> None:
    def steps() -> Steps[None]:
        yield from store.enqueue([new(queue="a")])
        yield from store.complete(1, None, new(queue="b"))
        yield from store.cancel(2)

    op = Op("several", steps)
    app.runner.run(op)
    assert op.follows is not None
    assert (op.follows.queues, op.follows.ended) == ({"a", "b"}, True)


def test_S4_what_was_rolled_back_and_begun_anew_marks_only_what_it_did_then(
    app: Towline, store: Store
) -> None:
    rounds = iter(["a", "b"])

    def steps() -> Steps[None]:
        queue = next(rounds)
        yield from store.enqueue([new(queue=queue)])
        if queue == "a":
            raise LookupError

    op = Op("again", steps)
    with pytest.raises(LookupError):
        app.runner.run(op)
    app.runner.run(op)
    assert op.follows is not None
    assert op.follows.queues == {"b"}


def test_S4_workers_in_this_process_hear_of_every_commit_and_of_no_rollback(
    app: Towline, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[tuple[set[str], bool]] = []
    monkeypatch.setattr(app.runner, "_follow", lambda mark: heard.append((mark.queues, mark.ended)))
    app.runner.run(store.enqueue([new(queue="a")]))
    app.runner.run(store.complete(1, "null"))

    def steps() -> Steps[None]:
        yield from store.enqueue([new(queue="b")])
        raise LookupError

    with pytest.raises(LookupError):
        app.runner.run(Op("fails", steps))
    app.runner.run(store.peek(["a"]))
    assert heard == [({"a"}, False), (set(), True)]


def test_a_worker_finds_by_claim_what_was_marked(app: Towline, store: Store) -> None:
    """The marks name queues as claims do."""
    app.runner.run(Op("prepare", lambda: blocked()(store)))
    op = store.complete(1, "null")
    app.runner.run(op)
    assert op.follows is not None

    def steps() -> Steps[list[int]]:
        assert op.follows is not None
        held = yield from claim(store, 9, queues=sorted(op.follows.queues))
        return [one.job_id for one in held]

    assert app.runner.run(Op("claim", steps)) == [2]
