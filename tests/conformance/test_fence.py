"""The fence where it is tempting to build it from less than (job, attempt), on every kind.

The same worker may run a job twice, a job may wait under the number it last ran with, and a sweep
meets jobs in every state: neither the worker's name nor the number nor the state is enough alone.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.conftest import Play
from tests.kit import SECOND, Clock, claim, completed, continued, failed, new, put, register, states
from towline.model import Claimed, Ending, Outcome, State
from towline.operation import Steps
from towline.store import Store
from towline.store.listing import JobFilter

LATE: dict[str, Callable[[Claimed], Ending]] = {
    "completed": completed,
    "continued": lambda held: continued(held, new("next")),
    "failed, to be tried again": lambda held: failed(held, delay=SECOND),
    "released": lambda held: Ending(held, Outcome.RELEASED, started=False),
}


def test_L3_a_worker_that_runs_a_job_again_is_fenced_from_its_own_earlier_attempt(
    play: Play, store: Store
) -> None:
    """A thread that was given up ends at last, under the name of the worker that runs the job."""

    def script() -> Steps[None]:
        worker = yield from register(store, "w1")
        (job,) = yield from put(store, new())
        (first,) = yield from claim(store, worker=worker)
        yield from store.finish([Ending(first, Outcome.SNOOZED, delay=0)], "w1", worker)
        yield from store.promote()
        (second,) = yield from claim(store, worker=worker)
        assert (first.attempt, second.attempt) == (1, 2)
        for name, ending in LATE.items():
            finished = yield from store.finish([ending(first)], "w1", worker)
            assert (finished.accepted, finished.refused) == ([], [job]), name
            assert (yield from states(store, job)) == [State.RUNNING], name
        finished = yield from store.finish([completed(second)], "w1", worker)
        assert (finished.accepted, finished.refused) == ([job], [])
        attempts = yield from store.attempts(job)
        assert [(a.number, a.outcome) for a in attempts] == [
            (1, Outcome.SNOOZED),
            (2, Outcome.COMPLETED),
        ]

    play(script)


def test_L3_an_attempt_that_was_given_back_cannot_be_ended_any_more(
    play: Play, store: Store
) -> None:
    """The job waits under the number it ran with: the number alone would let the ending pass."""

    def script() -> Steps[None]:
        worker = yield from register(store, "w1")
        (job,) = yield from put(store, new())
        (held,) = yield from claim(store, worker=worker)
        yield from store.finish([Ending(held, Outcome.RELEASED, started=False)], "w1", worker)
        for name, ending in LATE.items():
            finished = yield from store.finish([ending(held)], "w1", worker)
            assert (finished.accepted, finished.refused) == ([], [job]), name
            assert (yield from states(store, job)) == [State.PENDING], name
        assert (yield from store.progress([(held, 0.5, "late")])) == [False]
        assert (yield from store.park([held])) == 0
        assert (yield from store.attempts(job)) == []

    play(script)


def test_L5_O11_a_sweep_takes_what_runs_and_nothing_else(
    play: Play, store: Store, clock: Clock
) -> None:
    """A dead worker's running job is lost; those that wait in any state have done nothing."""

    def fill() -> Steps[tuple[int, int]]:
        dead = yield from register(store, "dead")
        running, released, parked, failing, over = yield from put(
            store, new(), new(), new("unknown"), new(max_attempts=9), new()
        )
        held = yield from claim(store, 5, dead)
        yield from store.park([held[2]])
        yield from store.finish(
            [
                Ending(held[1], Outcome.RELEASED, started=False),
                failed(held[3], delay=3600 * SECOND),
                completed(held[4]),
            ],
            "dead",
            dead,
        )
        yield from put(store, new(), new(delay=3600 * SECOND), new(after=[running]))
        assert (yield from states(store, running, released, parked, failing, over)) == [
            State.RUNNING,
            State.PENDING,
            State.PENDING,
            State.SCHEDULED,
            State.COMPLETED,
        ]
        return dead, running

    dead, running = play(fill)

    def sweep() -> Steps[None]:
        before = yield from store.jobs(JobFilter(), 100)
        clock.advance(31)
        assert (yield from store.sweep()) == 1
        after = yield from store.jobs(JobFilter(), 100)
        changed = [
            new.id for old, new in zip(before.records, after.records, strict=True) if old != new
        ]
        assert changed == [running]
        assert dead not in [worker.id for worker in (yield from store.workers())]
        assert (yield from store.sweep()) == 0
        assert (yield from store.jobs(JobFilter(), 100)) == after

    play(sweep)
