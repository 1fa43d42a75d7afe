"""The fence where it is tempting to build it from less than (job, attempt, worker), on every kind.

The same worker may run a job twice, a job may wait under the number it last ran with, and a sweep
meets jobs in every state; a database that lost its last commits gives a number out again. Neither
the worker nor the number nor the state is enough alone.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.conftest import Play
from tests.database import Database
from tests.kit import SECOND, Clock, claim, completed, continued, failed, new, put, register, states
from towline.model import Outcome, State
from towline.operation import Steps
from towline.records import Claimed, Ending
from towline.store import Store
from towline.store.listing import JobFilter
from towline.store.turn import promote

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
        yield from promote(store)
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


def test_L3_a_number_that_is_given_out_again_is_of_no_use_to_who_had_it_first(
    play: Play, store: Store, database: Database
) -> None:
    """A standby takes over that has not seen the last claims: each is made once more, by another
    worker and under the same number. Whatever the first one says changes nothing."""
    number = len(LATE)

    def prepare() -> Steps[tuple[int, int, list[Claimed]]]:
        first = yield from register(store, "w1")
        second = yield from register(store, "w2")
        yield from put(store, *(new(max_attempts=9) for _ in range(number)))
        return first, second, (yield from claim(store, number, first))

    first, second, stale = play(prepare)
    database.rows(
        "UPDATE towline_live SET state = 0, attempt = 0, worker = NULL, claimed_at = NULL,"
        " started_at = NULL"
    )

    def claim_again() -> Steps[None]:
        fresh = yield from claim(store, number, second)
        assert [(held.job_id, held.attempt) for held in fresh] == [
            (held.job_id, held.attempt) for held in stale
        ]
        before = yield from store.jobs(JobFilter(), 100)
        for (name, ending), held in zip(LATE.items(), stale, strict=True):
            finished = yield from store.finish([ending(held)], "w1", first)
            assert (finished.accepted, finished.refused) == ([], [held.job_id]), name
        assert (yield from store.progress([(stale[0], 0.5, "late")])) == [False]
        assert (yield from store.park(stale)) == 0
        yield from store.progress((), [(held, 1) for held in stale])
        assert not (yield from store.still_running(stale[0]))
        assert (yield from store.still_running(fresh[0]))
        known = {(held.job_id, held.attempt) for held in stale}
        renewed = yield from store.renew(first, "w1", 30 * SECOND, known)
        assert renewed.lost == sorted(known)
        assert (yield from store.jobs(JobFilter(), 100)) == before
        # Both in one batch, the stale one first: it does not stand in the other's way.
        both = [failed(stale[0], delay=SECOND), failed(fresh[0], delay=SECOND)]
        finished = yield from store.finish(both, "w2", second)
        assert (finished.accepted, finished.refused) == ([1], [1])
        finished = yield from store.finish([completed(held) for held in fresh[1:]], "w2", second)
        assert finished.accepted == [held.job_id for held in fresh[1:]]
        for held in fresh:
            assert len((yield from store.attempts(held.job_id))) == 1

    play(claim_again)


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
