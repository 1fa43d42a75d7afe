"""Jobs that a worker has claimed ahead of its free slots: pending for all to see until they begin.

Findings A4 and A11: they are not running while they wait behind a slow job, and they have lost
nothing when their worker dies before it began with them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.database import Database
from tests.kit import SECOND, Clock, claim, completed, failed, new, put, register, rows, states
from towline import Towline
from towline.model import Live, Outcome, State
from towline.operation import Op, Steps
from towline.records import Claimed, Ending, JobRecord
from towline.store import Store, read
from towline.store.lease import Begun
from towline.store.listing import JobFilter
from towline.store.turn import promote

T = TypeVar("T")

QUEUE = ["default"]
RUNNING, PENDING = State.RUNNING, State.PENDING


@pytest.fixture
def run(app: Towline) -> Callable[[Callable[[], Steps[None]]], None]:
    """Run a script in one transaction of ours."""
    return lambda script: app.runner.run(Op("script", script))


Run = Callable[[Callable[[], Steps[None]]], None]


def claim_ahead(
    store: Store, worker: int, room: int = 1, ahead: int = 9
) -> Steps[tuple[list[Claimed], list[Claimed]]]:
    """What is claimed for free slots, and what ahead of them."""
    claimed = yield from store.claim(worker, QUEUE, room, None, ahead)
    return claimed[:room], claimed[room:]


def key(held: Claimed) -> tuple[int, int]:
    return held.job_id, held.attempt


# ---- what is shown (finding A4)


def test_A4_a_job_claimed_ahead_is_pending_and_has_no_attempt_until_it_begins(
    run: Run, store: Store, app: Towline, clock: Clock, database: Database
) -> None:
    view = "SELECT id, state FROM towline_jobs ORDER BY id"
    attempts = "SELECT job_id, number, outcome FROM towline_attempts ORDER BY job_id"

    def shown() -> dict[str, list[int]]:
        return {
            state: [job.id for job in app.jobs(state=state, newest=False)]
            for state in ("pending", "running")
        }

    def begin() -> Steps[None]:
        worker = yield from register(store)
        yield from put(store, new(), new(), new(priority=5), new(queue="other"))
        ours, ahead = yield from claim_ahead(store, worker, ahead=1)
        assert ([h.job_id for h in ours], [h.job_id for h in ahead]) == ([3], [1])
        assert (yield from states(store, 1, 2, 3, 4)) == [PENDING, PENDING, RUNNING, PENDING]
        # It belongs to its worker all the same.
        assert (yield from store.running(worker)) == {(3, 1), (1, 1)}
        assert [h.job_id for h in (yield from claim(store, 9))] == [2]

    run(begin)
    assert shown() == {"pending": [1, 4], "running": [2, 3]}
    assert app.counts() == {"default": {PENDING: 1, RUNNING: 2}, "other": {PENDING: 1}}
    expected = [(1, "pending"), (2, "running"), (3, "running"), (4, "pending")]
    assert rows(database, view) == expected
    assert rows(database, attempts) == [(2, 1, "running"), (3, 1, "running")]
    assert [len(app.attempts(id)) for id in (1, 2, 3)] == [0, 1, 1]
    assert app.job(1).started_at is None

    claimed_at = clock()
    clock.advance(5)

    def go_on() -> Steps[None]:
        (record,) = yield from read.records(store, [1])
        held = claimed(record, claimed_at)
        yield from store.progress((), [(held, clock() - SECOND)])
        assert (yield from states(store, 1)) == [RUNNING]

    run(go_on)
    assert shown() == {"pending": [4], "running": [1, 2, 3]}
    assert app.counts() == {"default": {RUNNING: 3}, "other": {PENDING: 1}}
    assert rows(database, view)[0] == (1, "running")
    assert rows(database, attempts)[0] == (1, 1, "running")
    (attempt,) = app.attempts(1)
    assert attempt.started_at == app.job(1).started_at
    assert attempt.started_at is not None
    assert attempt.started_at.timestamp() == pytest.approx(clock() / SECOND - 1)


def claimed(record: JobRecord, claimed_at: int) -> Claimed:
    """The claim of a job that is in a worker's hand."""
    return Claimed(
        record.id, record.attempt or 0, record.queue, record.priority, record.chain_id,
        record.position, record.task, record.arguments, record.used or 0, record.lost or 0,
        record.max_attempts, record.timeout, record.key, record.label, record.blockers,
        record.trace, record.lane, record.weight, record.expires_at, record.tick, record.created_at,
        record.run_at or 0, claimed_at, record.held_by,
    )  # fmt: skip


def test_A4_a_turn_records_what_began_and_the_last_reports_of_what_ended(
    run: Run, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        worker = yield from register(store, "w1")
        yield from put(store, new(), new(), new(), new())
        turn = yield from store.turn(worker, "w1", QUEUE, 1, ahead=2)
        one, two, three = turn.claimed
        assert turn.next_due is None
        assert (yield from states(store, 1, 2, 3, 4)) == [RUNNING, PENDING, PENDING, PENDING]
        clock.advance(10)
        turn = yield from store.turn(
            worker, "w1", QUEUE, 0, [completed(one), completed(three)],
            begins=[(two, clock() - SECOND), (three, clock() - 2 * SECOND)],
            reports=[(one, 0.9, "nearly"), (three, 0.8, "so far")],
        )  # fmt: skip
        assert turn.finished.accepted == [1, 3]
        assert turn.claimed == []
        assert (yield from states(store, 1, 2, 3, 4)) == [
            State.COMPLETED, RUNNING, State.COMPLETED, PENDING,
        ]  # fmt: skip
        (second,) = yield from store.attempts(2)
        (third,) = yield from store.attempts(3)
        assert second.started_at == clock() - SECOND
        assert third.started_at == clock() - 2 * SECOND  # else when it was claimed
        assert (third.progress, third.progress_text) == (0.8, "so far")

    run(script)


def test_A4_an_attempt_that_ended_before_it_was_recorded_as_begun_has_a_start(
    run: Run, store: Store, clock: Clock
) -> None:
    """Quick jobs begin and end between two turns: nothing is written in between."""

    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from put(store, new(), new())
        _, (one, two) = yield from claim_ahead(store, worker, room=0)
        at = clock()
        clock.advance(3)
        told = Ending(two, Outcome.COMPLETED, output="null", started_at=at + SECOND)
        finished = yield from store.finish([completed(one), told], "w1", worker)
        assert finished.accepted == [1, 2]
        (first,) = yield from store.attempts(1)
        (second,) = yield from store.attempts(2)
        assert (first.started_at, second.started_at) == (at, at + SECOND)

    run(script)


def test_A4_what_goes_back_before_it_began_was_never_there(run: Run, store: Store) -> None:
    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from put(store, new(), new())
        (one,), (two,) = yield from claim_ahead(store, worker)
        back = [Ending(held, Outcome.RELEASED, started=False) for held in (one, two)]
        assert (yield from store.finish(back, "w1", worker)).accepted == [1, 2]
        for job in (yield from read.records(store, [1, 2])):
            assert (job.state, job.used, job.lost, job.held_by) == (PENDING, 0, 0, None)
            assert (job.live_state, job.started_at) == (Live.PENDING, None)
            assert (yield from store.attempts(job.id)) == []
        again = yield from claim(store, 9, worker)
        assert [(held.job_id, held.attempt) for held in again] == [(1, 2), (2, 2)]
        yield from store.progress((), [(two, 1)])  # fenced: it is another attempt that runs
        assert [job.started_at != 1 for job in (yield from read.records(store, [1, 2]))] == [
            True,
            True,
        ]

    run(script)


# ---- a worker that dies (finding A11)


def test_A11_what_a_dead_worker_had_not_begun_goes_back_untouched_and_the_rest_is_lost(
    run: Run, store: Store, clock: Clock
) -> None:
    """Recorded as begun; begun by its ledger; not begun; and one of a worker nobody knows about."""

    def script() -> Steps[None]:
        known = yield from register(store, "known")
        unknown = yield from register(store, "unknown")
        yield from put(store, *(new() for _ in range(6)))
        (slot,), ahead = yield from claim_ahead(store, known, ahead=3)
        recorded, begun, waiting = ahead
        yield from store.progress((), [(recorded, clock())])
        yield from claim_ahead(store, unknown, ahead=1)
        clock.advance(31)
        assert (
            yield from store.sweep(
                begun={known: Begun(frozenset(map(key, (slot, recorded, begun))))}
            )
        ) == 6
        jobs = yield from read.records(store, [1, 2, 3, 4, 5, 6])
        lost = (State.SCHEDULED, 0, 1)
        assert [(job.state, job.used, job.lost) for job in jobs] == [
            lost, lost, lost, (PENDING, 0, 0), lost, lost,
        ]  # fmt: skip
        for job in jobs:
            attempts = yield from store.attempts(job.id)
            assert [a.outcome for a in attempts] == [Outcome.LOST] * (job.id != waiting.job_id)
        assert (yield from store.workers()) == []
        assert [held.job_id for held in (yield from claim(store, 9))] == [waiting.job_id]

    run(script)


def test_A11_what_was_claimed_for_a_free_slot_and_not_begun_goes_back_too(
    run: Run, store: Store, clock: Clock
) -> None:
    """Recorded as begun by its claim, though no handler was called. What the ledger may have
    written over is lost like all that nobody knows about."""

    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from put(store, new())
        yield from claim_ahead(store, worker, ahead=0)
        clock.advance(5)
        yield from put(store, new())
        (later,), _ = yield from claim_ahead(store, worker, ahead=0)
        clock.advance(31)
        begun = {worker: Begun(frozenset(), since=later.claimed_at)}
        assert (yield from store.sweep(begun=begun)) == 2
        jobs = yield from read.records(store, [1, 2])
        assert [(job.state, job.lost) for job in jobs] == [(State.SCHEDULED, 1), (PENDING, 0)]
        assert (yield from store.attempts(later.job_id)) == []

    run(script)


def test_A11_a_job_beside_one_that_kills_its_worker_is_never_failed_by_it(
    run: Run, store: Store, clock: Clock
) -> None:
    """As often as its worker dies: what never began cannot have done it."""

    def script() -> Steps[None]:
        yield from put(store, new(priority=1), new("innocent", max_attempts=1))
        for number in range(5):
            yield from promote(store)
            worker = yield from register(store, f"w{number}")
            ours, ahead = yield from claim_ahead(store, worker)
            held = [*ours, *ahead]
            killer = [one for one in held if one.task == "a"]
            begun = {worker: Begun(frozenset(key(one) for one in killer))}
            if not killer:  # it has failed at the crash limit; the other one runs at last
                assert (yield from store.finish([completed(held[0])])).accepted == [2]
                break
            assert (yield from store.sweep(gone={worker: "gone"}, begun=begun)) == 2
            clock.advance(600)
        assert (yield from states(store, 1, 2)) == [State.FAILED, State.COMPLETED]
        (only,) = yield from store.attempts(2)
        assert (only.outcome, only.number) == (Outcome.COMPLETED, 4)

    run(script)


def test_A11_a_sweep_of_claims_ahead_is_bounded_and_the_worker_goes_with_the_last(
    run: Run, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from put(store, *(new() for _ in range(5)))
        yield from claim_ahead(store, worker, room=0)
        clock.advance(31)
        swept: list[int] = []
        while not swept or swept[-1]:
            swept.append((yield from store.sweep(limit=2, begun={worker: Begun(frozenset())})))
        assert swept == [2, 2, 1, 0]
        assert (yield from store.workers()) == []
        assert [h.attempt for h in (yield from claim(store, 9))] == [2] * 5

    run(script)


# ---- control from outside


def by_hand(store: Store, job: int, how: str) -> Op[JobRecord]:
    if how == "cancelled":
        return store.cancel(job, "not wanted", "ann")
    if how == "failed":
        return store.fail(job, "broken", "ann")
    if how == "continued":
        return store.complete(job, None, new("next"), "ann")
    return store.complete(job, '"done"', None, "ann")


@pytest.mark.parametrize("how", ["cancelled", "failed", "completed", "continued"])
def test_K1_a_job_that_has_not_begun_ends_from_outside_without_a_trace_of_its_claim(
    run: Run, store: Store, how: str
) -> None:
    """No row for the attempt that never ran; its worker is told that it lost it."""

    def script() -> Steps[None]:
        worker = yield from register(store, "w1")
        yield from put(store, new(), new())
        (one,), (two,) = yield from claim_ahead(store, worker)
        yield from by_hand(store, two.job_id, how)
        (attempt,) = yield from store.attempts(two.job_id)
        assert (attempt.number, attempt.outcome, attempt.final) == (2, Outcome(how), 1)
        assert (attempt.worker, attempt.started_at, attempt.ended_by) == (None, None, "ann")
        assert (yield from store.job(two.job_id)).state is not PENDING
        finished = yield from store.finish([completed(two)], "w1", worker)
        assert (finished.accepted, finished.refused) == ([], [2])
        renewed = yield from store.renew(worker, "w1", 30 * SECOND, {key(one), key(two)})
        assert renewed.lost == [key(two)]
        # The one that runs leaves a row: its handler was called.
        yield from by_hand(store, one.job_id, how)
        attempts = yield from store.attempts(one.job_id)
        assert attempts[0].worker == "w1"
        assert attempts[0].started_at is not None

    run(script)


def test_K2_a_job_cancelled_before_it_began_is_retried_under_a_new_number(
    run: Run, store: Store
) -> None:
    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from put(store, new())
        _, (held,) = yield from claim_ahead(store, worker, room=0)
        yield from store.cancel(held.job_id)
        yield from store.retry(held.job_id)
        (again,) = yield from claim(store)
        assert again.attempt > held.attempt
        assert (yield from store.finish([failed(held)])).refused == [1]
        assert (yield from store.finish([completed(again)])).accepted == [1]

    run(script)


# ---- rows that nobody of ours leaves (finding A8e)


def test_A8e_open_rows_whose_jobs_were_deleted_by_hand_are_dropped_and_what_is_behind_them_runs(
    run: Run, store: Store, app: Towline, database: Database
) -> None:
    def enqueue() -> Steps[None]:
        yield from put(store, *(new(priority=9) for _ in range(3)), new(), new(queue="other"))

    run(enqueue)
    database.rows("DELETE FROM towline_job WHERE priority = 9")

    def blocked() -> Steps[None]:
        assert (yield from store.drop_orphans(["other"])) == 0
        assert (yield from claim(store, 3)) == []  # as many as fit are in its way

    run(blocked)
    op = store.drop_orphans(QUEUE)
    assert app.runner.run(op) == 3
    assert op.follows is not None
    assert op.follows.queues == set(QUEUE)
    assert app.runner.run(store.drop_orphans(QUEUE)) == 0

    def freed() -> Steps[None]:
        assert [held.job_id for held in (yield from claim(store, 3))] == [4]
        page = yield from store.jobs(JobFilter(), 9, newest=False)
        assert [record.id for record in page.records] == [4, 5]

    run(freed)


def test_A8e_P14a_whoever_drops_orphans_hides_no_job_from_others(
    app: Towline, postgres: Database
) -> None:
    app.runner.run(app.runner.store.enqueue([new(), new()]))
    postgres.rows("DELETE FROM towline_job WHERE id = 1")
    with postgres.connect() as first, postgres.connect() as second:
        assert app.runner.run(app.runner.store.drop_orphans(QUEUE), on=first) == 1
        (held,) = app.runner.run(app.runner.store.claim(1, QUEUE, 9), on=second)
        assert held.job_id == 2
        second.commit()
        first.commit()
    assert postgres.rows("SELECT job_id FROM towline_live") == [(2,)]


def test_A8d_jobs_that_run_for_nobody_are_noticed_though_no_lease_has_run_out(
    run: Run, store: Store, database: Database
) -> None:
    """Its worker's row is gone: a sweep that goes by expired workers alone would never come."""

    def lose() -> Steps[None]:
        worker = yield from register(store)
        yield from put(store, new())
        yield from claim(store, worker=worker)
        assert (yield from store.expired()) == (set(), False)

    run(lose)
    database.rows("DELETE FROM towline_worker")

    def sweep() -> Steps[None]:
        assert (yield from store.expired()) == (set(), True)
        assert (yield from store.sweep()) == 1
        assert (yield from states(store, 1)) == [State.SCHEDULED]
        assert (yield from store.expired()) == (set(), False)

    run(sweep)


@pytest.mark.parametrize("how", ["its row is gone", "its lease has run out"])
def test_A8e_running_rows_whose_jobs_were_deleted_by_hand_are_swept_and_hide_no_other(
    run: Run, store: Store, database: Database, clock: Clock, how: str
) -> None:
    """A sweep that is full of them would take back nothing, again and again."""

    def hold() -> Steps[None]:
        worker = yield from register(store)
        yield from put(store, *(new() for _ in range(4)))
        assert len((yield from claim(store, 4, worker))) == 4

    run(hold)
    database.rows("DELETE FROM towline_job WHERE id <= 2")
    if how == "its row is gone":
        database.rows("DELETE FROM towline_worker")
    else:
        clock.advance(31)

    def sweep() -> Steps[None]:
        assert (yield from store.expired()).strays is (how == "its row is gone")
        for taken in (2, 2, 0):
            assert (yield from store.sweep(limit=2)) == taken
        assert (yield from states(store, 3, 4)) == [State.SCHEDULED] * 2
        assert (yield from store.expired()) == (set(), False)
        assert (yield from store.workers()) == []

    run(sweep)
    assert database.rows("SELECT job_id FROM towline_live ORDER BY 1") == [(3,), (4,)]


def test_A8e_P9_a_sweep_waits_for_nobody_who_holds_what_lost_its_job(
    app: Towline, postgres: Database
) -> None:
    app.runner.run(app.runner.store.enqueue([new(), new()]))
    app.runner.run(app.runner.store.claim(1, QUEUE, 2))
    postgres.rows("DELETE FROM towline_job WHERE id = 1")
    with postgres.connect() as other:
        other.execute("SELECT FROM towline_live WHERE job_id = 1 FOR UPDATE")
        assert app.runner.run(app.runner.store.sweep()) == 1
        other.rollback()
    assert app.runner.run(app.runner.store.sweep()) == 1
    assert postgres.rows("SELECT job_id FROM towline_live") == [(2,)]


# ---- several queues, several workers (finding P14a)


def test_P14a_a_claim_over_several_queues_holds_no_more_than_it_takes(
    app: Towline, postgres: Database
) -> None:
    """While one worker's claim is not committed, another gets its share at once."""
    queues = [f"q{number}" for number in range(8)]
    app.runner.run(
        app.runner.store.enqueue([new(queue=queue) for _ in range(10) for queue in queues])
    )
    with postgres.connect() as first, postgres.connect() as second:
        one = app.runner.run(app.runner.store.claim(1, queues, 20), on=first)
        two = app.runner.run(app.runner.store.claim(2, queues, 20), on=second)
        assert (len(one), len(two)) == (20, 20)
        assert not {held.job_id for held in one} & {held.job_id for held in two}
        assert (
            app.runner.run(app.runner.store.peek(queues, 100)).pending == 80
        )  # nothing is committed
        first.rollback()
        second.commit()
    assert app.runner.run(app.runner.store.peek(queues, 100)).pending == 60


# ---- debounce


@pytest.mark.parametrize("back", ["handed back", "swept", "put back as a stray", "parked"])
def test_D3_a_job_that_came_back_before_it_began_is_replaced_as_one_that_never_started(
    run: Run, store: Store, clock: Clock, back: str
) -> None:
    """It was in a worker's hand for a moment, which nobody could see."""
    later = new(key="k", arguments='{"n": 2}', on_conflict="replace")

    def script() -> Steps[None]:
        worker = yield from register(store, "w1")
        yield from put(store, new(key="k", arguments='{"n": 1}'))
        _, (held,) = yield from claim_ahead(store, worker, room=0)
        ((record, _),) = yield from store.enqueue([later])
        assert record.arguments == '{"n": 1}'  # its worker has it, and may begin any moment
        if back == "handed back":
            yield from store.finish([Ending(held, Outcome.RELEASED, started=False)], "w1", worker)
        elif back == "swept":
            yield from store.sweep(gone=[worker], begun={worker: Begun(frozenset())})
        elif back == "parked":
            yield from store.park([held])
        else:
            yield from store.renew(worker, "w1", 30 * SECOND, ())
        ((record, created),) = yield from store.enqueue([later])
        assert (record.arguments, record.state, created) == ('{"n": 2}', PENDING, False)
        (again,) = yield from claim(store, 9)
        assert (again.arguments, again.attempt) == ('{"n": 2}', 2)
        yield from store.finish([failed(again, delay=0)])
        third = new(key="k", arguments='{"n": 3}', on_conflict="replace")
        ((record, _),) = yield from store.enqueue([third])
        assert record.arguments == '{"n": 2}'  # it has started once

    run(script)
