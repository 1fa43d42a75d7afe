"""The fence and lost leases, on every kind of connection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.conftest import Play
from tests.kit import DAY, SECOND, Clock, claim, completed, continued, failed, new, register
from towline.model import Outcome, State
from towline.operation import Steps
from towline.records import Claimed, Ending, JobRecord
from towline.store import Store
from towline.store.finish import Finished
from towline.store.listing import ChainFilter, JobFilter
from towline.store.turn import promote

# Every way an attempt can end, as a worker that has lost it would say so.
ENDINGS: dict[str, Callable[[Claimed], Ending]] = {
    "completed": completed,
    "continued": lambda held: continued(held, new("b")),
    "failed for good": failed,
    "failed, to be tried again": lambda held: failed(held, delay=SECOND),
    "timeout": lambda held: Ending(held, Outcome.TIMEOUT, error="late", delay=SECOND),
    "snoozed": lambda held: Ending(held, Outcome.SNOOZED, delay=SECOND),
    "cancelled": lambda held: Ending(held, Outcome.CANCELLED, error="no"),
    "lost": lambda held: Ending(held, Outcome.LOST, delay=SECOND),
    "released": lambda held: Ending(held, Outcome.RELEASED),
    "released, never started": lambda held: Ending(held, Outcome.RELEASED, started=False),
}


def everything(store: Store) -> Steps[list[Any]]:
    """All that can be read: a change of anything shows."""
    jobs = yield from store.jobs(JobFilter(), 1000)
    chains = yield from store.chains(ChainFilter(), 1000)
    counts = yield from store.counts()
    attempts: list[Any] = []
    for job in jobs.records:
        attempts += yield from store.attempts(job.id)
    return [jobs, chains, counts, attempts, (yield from store.workers())]


def take_over(store: Store, clock: Clock, room: int = 1) -> Steps[list[Claimed]]:
    """Let every lease run out, and claim what comes back as another worker."""
    clock.advance(31)
    assert (yield from store.sweep()) == room
    clock.advance(600)
    yield from promote(store)
    other = yield from register(store, "w2")
    return (yield from claim(store, room, other))


def test_L3_a_lost_lease_changes_nothing(play: Play, store: Store, clock: Clock) -> None:
    def lose() -> Steps[tuple[Finished, JobRecord]]:
        worker = yield from register(store)
        ((record, _),) = yield from store.enqueue([new()])
        (stale,) = yield from claim(store, worker=worker)
        (fresh,) = yield from take_over(store, clock)
        assert (stale.attempt, fresh.attempt) == (1, 2)
        finished = yield from store.finish([completed(stale)])
        return finished, (yield from store.job(record.id))

    finished, job = play(lose)
    assert finished.accepted == []
    assert finished.refused == [job.id]
    assert job.state is State.RUNNING


def test_L3_no_ending_and_no_progress_passes_the_fence_of_another_attempt(
    play: Play, store: Store, clock: Clock
) -> None:
    """Each stale ending alone, against a job that runs again, waits again, has ended or is gone."""

    def prepare() -> Steps[list[Claimed]]:
        yield from register(store)
        yield from store.enqueue([new(), new(), new(), new()])
        stale = yield from claim(store, 4)
        fresh = yield from take_over(store, clock, 4)
        assert [job.attempt for job in fresh] == [2, 2, 2, 2]
        running, waiting, over, gone = fresh
        yield from store.progress([(running, 0.5, "half")])
        yield from store.finish([Ending(waiting, Outcome.RELEASED), completed(over)])
        yield from store.delete([gone.chain_id])
        return stale

    stale = play(prepare)

    def finish_late() -> Steps[None]:
        before = yield from everything(store)
        for name, ending in ENDINGS.items():
            finished = yield from store.finish([ending(held) for held in stale], "w1")
            assert (finished.accepted, finished.refused) == ([], [h.job_id for h in stale]), name
            assert (yield from everything(store)) == before, name
        reports = yield from store.progress([(held, 0.9, "late") for held in stale])
        assert reports == [False] * 4
        assert (yield from store.park(stale)) == 0
        assert (yield from everything(store)) == before

    play(finish_late)


def test_L3_one_stale_ending_in_a_batch_does_not_touch_the_others(
    play: Play, store: Store, clock: Clock
) -> None:
    def batch() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new(), new(), new(), new("d", after=[2])])
        held = yield from claim(store, 3)
        yield from store.finish([Ending(held[1], Outcome.RELEASED)])
        finished = yield from store.finish([
            continued(held[0], new("next of 1")),
            continued(held[1], new("next of 2")),
            continued(held[2], new("next of 3")),
        ])  # fmt: skip
        assert (finished.accepted, finished.refused) == ([1, 3], [2])
        page = yield from store.jobs(JobFilter(), 10, newest=False)
        assert [(job.task, job.chain_id, job.position) for job in page.records[4:]] == [
            ("next of 1", 1, 1),
            ("next of 3", 3, 1),
        ]
        first, second, third = page.records[:3]
        assert (first.continued_by, third.continued_by) == (page.records[4].id, page.records[5].id)
        assert (second.state, second.continued_by) == (State.PENDING, None)
        assert (yield from store.job(4)).state is State.BLOCKED

    play(batch)


def test_L5_sweeping_many_lost_jobs_again_and_again_multiplies_nothing(
    play: Play, store: Store, clock: Clock
) -> None:
    def stall() -> Steps[None]:
        for name in ("w1", "w2", "w3"):
            worker = yield from register(store, name)
            yield from store.enqueue([new(), new()])
            yield from claim(store, 2, worker)

    play(stall)
    clock.advance(31)
    swept = [play(lambda: store_sweep(store)) for _ in range(3)]
    assert swept == [6, 0, 0]

    def look() -> Steps[None]:
        page = yield from store.jobs(JobFilter(), 10)
        assert len(page.records) == 6
        for job in page.records:
            assert (job.state, job.attempt, job.used, job.lost) == (State.SCHEDULED, 1, 0, 1)
            (lost,) = yield from store.attempts(job.id)
            assert (lost.number, lost.outcome, lost.final) == (1, Outcome.LOST, None)
            assert lost.worker == f"w{(job.id + 1) // 2}"
            assert job.run_at is not None
            assert clock() + SECOND <= job.run_at <= clock() + 10 * SECOND
        clock.advance(10)
        assert (yield from promote(store)) == 6
        yield from register(store, "w4")
        again = yield from claim(store, 100)
        assert [(job.job_id, job.attempt, job.lost) for job in again] == [
            (id, 2, 1) for id in range(1, 7)
        ]

    play(look)


def store_sweep(store: Store) -> Steps[int]:
    return (yield from store.sweep())


def test_L4_a_job_that_kills_its_worker_every_time_fails_at_the_crash_limit(
    play: Play, store: Store, clock: Clock
) -> None:
    """Three losses, whatever max_attempts says; the reason says so, a dependent follows."""

    def crash() -> Steps[None]:
        yield from store.enqueue([new(max_attempts=1), new("d", after=[1])])
        for number in (1, 2, 3):
            yield from promote(store)
            worker = yield from register(store, f"w{number}")
            (held,) = yield from claim(store, 10, worker)
            assert (held.attempt, held.used, held.lost) == (number, 0, number - 1)
            assert (yield from store.sweep(gone={worker: "its process is gone"})) == 1
            clock.advance(600)
        job = yield from store.job(1)
        assert (job.state, job.outcome) == (State.FAILED, Outcome.LOST)
        assert job.last_error is not None
        assert "crash limit" in job.last_error
        assert "worker w3" in job.last_error
        attempts = yield from store.attempts(1)
        assert [(a.number, a.outcome, a.worker, a.final) for a in attempts] == [
            (1, Outcome.LOST, "w1", None),
            (2, Outcome.LOST, "w2", None),
            (3, Outcome.LOST, "w3", 1),
        ]
        assert "crash limit" not in (attempts[1].error or "")
        assert (yield from store.job(2)).state is State.FAILED
        clock.advance(DAY / SECOND)
        assert (yield from promote(store)) == 0

    play(crash)
