"""How attempts end: what is stored together, what is counted, what is kept. Every kind."""

from __future__ import annotations

from tests.conformance.conftest import Play
from tests.database import Database
from tests.kit import (
    MINUTE,
    SECOND,
    Clock,
    claim,
    completed,
    continued,
    failed,
    new,
    register,
    rows,
    states,
)
from towline import Towline
from towline.model import ChainState, Outcome, State
from towline.operation import Steps
from towline.records import AttemptRecord, Claimed, Ending
from towline.store import Store, read
from towline.store.turn import promote


def shape(attempt: AttemptRecord) -> tuple[int, Outcome | None, str | None, bool]:
    """Number, outcome, error, and whether it ended the job."""
    return attempt.number, attempt.outcome, attempt.error, attempt.final == 1


def test_O1_completion_continuation_freed_jobs_and_own_writes_are_one_commit(
    play: Play, store: Store, app: Towline, database: Database
) -> None:
    """Rolled back: nothing of it happened, and the same attempt may still end. Then committed."""

    def prepare() -> Steps[list[Claimed]]:
        yield from register(store)
        yield from store.enqueue([new("a"), new("b"), new("behind", after=[1]), new("f")])
        return (yield from claim(store, 3))

    held = play(prepare)

    def end_all() -> Steps[None]:
        finished = yield from store.finish(
            [completed(held[0], '"out"'), continued(held[1], new("next")), failed(held[2])], "w1"
        )
        assert finished.accepted == [1, 2, 4]

    play.with_own_write(end_all, keep=False)
    assert [job.state for job in app.jobs(newest=False)] == [
        State.RUNNING, State.RUNNING, State.BLOCKED, State.RUNNING,
    ]  # fmt: skip
    assert [chain.state for chain in app.chains()] == [ChainState.OPEN] * 4
    assert [attempt.outcome for id in (1, 2, 4) for attempt in app.attempts(id)] == [None] * 3
    assert app.counts() == {"default": {State.RUNNING: 3, State.BLOCKED: 1}}

    play.with_own_write(end_all, keep=True)
    done, went_on, freed, dead, following = app.jobs(newest=False)
    assert (done.state, done.output) == (State.COMPLETED, "out")
    assert (went_on.state, went_on.continued_by) == (State.COMPLETED, following.id)
    assert (freed.state, dead.state) == (State.PENDING, State.FAILED)
    assert (following.task, following.chain_id, following.position) == ("next", 2, 1)
    assert [chain.state for chain in app.chains(newest=False)] == [
        ChainState.COMPLETED, ChainState.OPEN, ChainState.OPEN, ChainState.FAILED,
    ]  # fmt: skip
    assert app.counts() == {
        "default": {State.PENDING: 2, State.COMPLETED: 2, State.FAILED: 1},
    }


def test_O2_failures_are_tried_again_until_used_up_and_every_error_is_kept(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new(max_attempts=3, arguments='{"n":1}')])
        for number, outcome in ((1, Outcome.FAILED), (2, Outcome.TIMEOUT), (3, Outcome.FAILED)):
            (held,) = yield from claim(store)
            assert (held.attempt, held.used) == (number, number - 1)
            ending = Ending(held, outcome, error=f"error {number}", delay=number * MINUTE)
            assert (yield from store.finish([ending], "w1")).accepted == [1]
            if number < 3:
                job = yield from store.job(1)
                assert (job.state, job.used) == (State.SCHEDULED, number)
                assert job.run_at == clock() + number * MINUTE
                clock.advance(number * 60 - 1)
                assert (yield from promote(store)) == 0
                clock.advance(1)
                assert (yield from promote(store)) == 1
        job = yield from store.job(1)
        assert (job.state, job.last_error, job.arguments) == (State.FAILED, "error 3", '{"n":1}')
        attempts = yield from store.attempts(1)
        assert [shape(attempt) for attempt in attempts] == [
            (1, Outcome.FAILED, "error 1", False),
            (2, Outcome.TIMEOUT, "error 2", False),
            (3, Outcome.FAILED, "error 3", True),
        ]
        chain, last = yield from store.chain(1)
        assert (chain.state, chain.ended_at, last.id) == (ChainState.FAILED, clock(), 1)

    play(script)


def test_R1_attempts_of_many_jobs_are_read_at_once(play: Play, store: Store) -> None:
    """Ended ones and the one that runs, by job; a job without any is left out."""

    def script() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new(), new(), new()])
        (first,) = yield from claim(store)
        yield from store.finish([Ending(first, Outcome.FAILED, error="no", delay=0)], "w1")
        (second,) = yield from claim(store)
        held = second.job_id
        found = yield from store.attempts_of([3, held, 1, 999])
        assert {id: [a.outcome for a in each] for id, each in found.items()} == {
            first.job_id: [Outcome.FAILED],
            held: [None],
        }
        assert found[held] == (yield from store.attempts(held))

    play(script)


def test_O2_no_delay_means_no_more_tries_and_a_timeout_can_be_the_last(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(max_attempts=9), new(max_attempts=1), new(max_attempts=9)])
        one, two, three = yield from claim(store, 3)
        yield from store.finish([
            failed(one, "Fail was raised"),
            Ending(two, Outcome.TIMEOUT, error="after 5 s", delay=0),
            Ending(three, Outcome.LOST, error="gone"),
        ])  # fmt: skip
        assert (yield from states(store, 1, 2, 3)) == [State.FAILED] * 3
        records = yield from read.records(store, [1, 2, 3])
        assert [(r.outcome, r.last_error) for r in records] == [
            (Outcome.FAILED, "Fail was raised"),
            (Outcome.TIMEOUT, "after 5 s"),
            (Outcome.LOST, "gone"),
        ]
        for job in (1, 2, 3):
            assert [a.final for a in (yield from store.attempts(job))] == [1]

    play(script)


def test_O10_the_class_of_an_error_is_recorded(
    play: Play, store: Store, app: Towline, database: Database
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(), new("c", after=[1]), new()])
        one, two = yield from claim(store, 2)
        kind = "shop.errors.CardRefused"
        yield from store.finish([
            Ending(one, Outcome.FAILED, error="Traceback", error_type=kind, delay=0),
            Ending(two, Outcome.FAILED, error="Traceback", error_type="builtins.KeyError"),
        ])  # fmt: skip
        yield from promote(store)
        yield from store.finish([completed(held) for held in (yield from claim(store, 2))])
        found = yield from store.attempts(1)
        assert [a.error_type for a in found] == [kind, None]

    play(script)
    assert [a.error_type for a in app.attempts(3)] == ["builtins.KeyError"]
    view = "SELECT job_id, error_type FROM towline_attempts WHERE error_type IS NOT NULL ORDER BY 1"
    assert rows(database, view) == [(1, "shop.errors.CardRefused"), (3, "builtins.KeyError")]


def test_O3_snooze_uses_no_attempt_and_cancel_and_fail_end_the_job(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(max_attempts=1), new(), new()])
        snoozing, cancelled, dead = yield from claim(store, 3)
        yield from store.finish([
            Ending(cancelled, Outcome.CANCELLED, error="not wanted"), failed(dead, "hopeless"),
        ])  # fmt: skip
        for _ in range(4):  # far more often than it has attempts
            yield from store.finish([Ending(snoozing, Outcome.SNOOZED, delay=SECOND)])
            job = yield from store.job(1)
            assert (job.state, job.used, job.run_at) == (State.SCHEDULED, 0, clock() + SECOND)
            clock.advance(1)
            yield from promote(store)
            (snoozing,) = yield from claim(store)
        assert (snoozing.attempt, snoozing.used, snoozing.lost) == (5, 0, 0)
        yield from store.finish([completed(snoozing)])
        assert (yield from states(store, 1, 2, 3)) == [
            State.COMPLETED, State.CANCELLED, State.FAILED,
        ]  # fmt: skip
        attempts = yield from store.attempts(1)
        assert [a.outcome for a in attempts] == [Outcome.SNOOZED] * 4 + [Outcome.COMPLETED]
        assert [shape(a) for a in (yield from store.attempts(2))] == [
            (1, Outcome.CANCELLED, "not wanted", True)
        ]
        assert [shape(a) for a in (yield from store.attempts(3))] == [
            (1, Outcome.FAILED, "hopeless", True)
        ]
        chain, _ = yield from store.chain(2)
        assert chain.state is ChainState.CANCELLED

    play(script)


def test_O10_each_started_attempt_is_one_row_and_the_running_one_is_seen(
    play: Play, store: Store, clock: Clock, database: Database
) -> None:
    """An attempt that never called its handler leaves no row, and its number is not used again."""
    began = clock()

    def run() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new()])
        (held,) = yield from claim(store)  # 1: released before its handler was called
        yield from store.finish([Ending(held, Outcome.RELEASED, started=False)], "w1")
        assert (yield from store.attempts(1)) == []
        (held,) = yield from claim(store)  # 2: started a second after it was claimed
        clock.advance(3)
        yield from store.finish([Ending(held, Outcome.RELEASED, started_at=began + SECOND)], "w1")
        (held,) = yield from claim(store)  # 3
        clock.advance(1)
        yield from store.finish([failed(held, "boom", delay=0)], "w1")
        yield from promote(store)
        (held,) = yield from claim(store)  # 4: still running
        yield from store.progress([(held, 0.25, "a quarter")])
        clock.advance(1)

    play(run)

    def look() -> Steps[list[AttemptRecord]]:
        return (yield from store.attempts(1))

    attempts = play(look)
    assert [
        (a.number, a.outcome, a.worker, a.started_at, a.ended_at, a.error, a.progress)
        for a in attempts
    ] == [
        (2, Outcome.RELEASED, "w1", began + SECOND, began + 3 * SECOND, None, None),
        (3, Outcome.FAILED, "w1", began + 3 * SECOND, began + 4 * SECOND, "boom", None),
        (4, None, "w1", began + 4 * SECOND, None, None, 0.25),
    ]
    view = "SELECT number, outcome, worker, error, progress_text FROM towline_attempts ORDER BY 1"
    assert rows(database, view) == [
        (2, "released", "w1", None, None),
        (3, "failed", "w1", "boom", None),
        (4, "running", "w1", None, "a quarter"),
    ]
    view = "SELECT state, attempt, worker, progress, error FROM towline_jobs"
    assert rows(database, view) == [("running", 4, "w1", 0.25, "boom")]


def test_O10_an_end_without_a_run_takes_the_next_number_and_has_no_start(
    play: Play, store: Store, database: Database
) -> None:
    """Cancelled while pending, while scheduled after a failure; failed by its blocker."""

    def script() -> Steps[None]:
        yield from store.enqueue([new(), new(), new("behind", after=[1]), new()])
        _, two, _ = yield from claim(store, 3)
        yield from store.finish([failed(two, delay=SECOND)])
        yield from store.fail(1, "bad")
        yield from store.cancel(2, "enough")
        ends = [(yield from store.attempts(2)), (yield from store.attempts(3))]
        assert [[shape(a) for a in attempts] for attempts in ends] == [
            [(1, Outcome.FAILED, "boom", False), (2, Outcome.CANCELLED, "enough", True)],
            [(1, Outcome.FAILED, "blocker chain 1 ended failed", True)],
        ]
        assert [(a.started_at, a.worker) for a in (ends[0][1], ends[1][0])] == [(None, None)] * 2

    play(script)
    view = "SELECT count(*) FROM towline_attempts WHERE started_at IS NULL AND ended_at IS NOT NULL"
    assert rows(database, view) == [(3,)]


def test_O10_only_failures_use_an_attempt_up_and_only_losses_count_as_lost(
    play: Play, store: Store
) -> None:
    counters = {
        Outcome.FAILED: (1, 0),
        Outcome.TIMEOUT: (1, 0),
        Outcome.LOST: (0, 1),
        Outcome.SNOOZED: (0, 0),
        Outcome.RELEASED: (0, 0),
    }

    def script() -> Steps[None]:
        yield from store.enqueue([new() for _ in counters])
        held = yield from claim(store, 9)
        yield from store.finish(
            [Ending(job, outcome, delay=0) for job, outcome in zip(held, counters, strict=True)]
        )
        records = yield from read.records(store, [job.job_id for job in held])
        assert [(r.used, r.lost) for r in records] == list(counters.values())
        assert [r.attempt for r in records] == [1] * 5
        assert [(r.worker, r.started_at) for r in records] == [(None, None)] * 5
        expected = [State.SCHEDULED] * 4 + [State.PENDING]
        assert [r.state for r in records] == expected

    play(script)


def test_O9_progress_is_seen_while_the_job_runs_and_kept_with_its_attempt(
    play: Play, store: Store, database: Database
) -> None:
    def report() -> Steps[None]:
        yield from store.enqueue([new(), new()])
        one, two = yield from claim(store, 2)
        assert (yield from store.progress([])) == []
        assert (yield from store.progress([(one, 0.1, None), (two, None, "zwei é")])) == [True] * 2
        assert (yield from store.progress([(one, 0.5, "half")])) == [True]

    play(report)
    view = "SELECT progress, progress_text FROM towline_jobs ORDER BY id"
    assert rows(database, view) == [(0.5, "half"), (None, "zwei é")]

    def end() -> Steps[None]:
        one = yield from store.job(1)
        assert (one.progress, one.progress_text) == (0.5, "half")
        yield from store.fail(1, "stopped")
        yield from store.cancel(2)
        lost, _ = yield from store.attempts(1)
        assert (lost.progress, lost.progress_text) == (0.5, "half")
        yield from store.retry(2)
        (held,) = yield from claim(store)
        assert (held.job_id, held.attempt) == (2, 2)
        fresh = yield from store.job(2)
        assert (fresh.progress, fresh.progress_text) == (None, None)
        assert (fresh.last_progress, fresh.last_progress_text) == (None, "zwei é")

    play(end)
