"""Control from outside a worker: cancel, retry, complete, fail, and in bulk. Every kind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.database import Database
from tests.kit import (
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
from towline.errors import DuplicateKey, InvalidState, NotFound
from towline.model import ChainState, Outcome, Policy, State
from towline.operation import Op, Steps
from towline.records import AttemptRecord, Claimed, Ending
from towline.store import Store, read
from towline.store.listing import JobFilter
from towline.store.turn import promote


def one_of_each(store: Store) -> Steps[list[Claimed]]:
    """Jobs 1 to 7: running, blocked, scheduled, pending, completed, failed, cancelled."""
    yield from register(store)
    yield from store.enqueue([
        new("r", priority=3), new("b", after=[1]), new("s", delay=60 * SECOND), new("p"),
        new("c", priority=2), new("f", priority=2), new("x", priority=2),
    ])  # fmt: skip
    held = yield from claim(store, 4)
    _, done, dead, unwanted = held
    yield from store.finish(
        [completed(done), failed(dead), Ending(unwanted, Outcome.CANCELLED, error="no")], "w1"
    )
    return held


def outline(attempts: Sequence[AttemptRecord]) -> list[tuple[Any, ...]]:
    """Number, outcome, whether it ended the job, by whom, and whether it was run at all."""
    return [
        (a.number, a.outcome, a.final == 1, a.ended_by, a.started_at is not None) for a in attempts
    ]


def refuses(error: type[Exception], text: str, op: Op[Any]) -> Steps[None]:
    with pytest.raises(error, match=text):
        yield from op


def test_K1_cancel_ends_a_job_in_every_open_state_and_its_chain_with_it(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        held = yield from one_of_each(store)
        yield from store.enqueue([new("unknown", priority=9)])
        yield from store.park((yield from claim(store)))
        for id in (2, 3, 4, 8):
            job = yield from store.cancel(id, "stop", by="ann")
            assert (job.state, job.last_error, job.ended_by) == (State.CANCELLED, "stop", "ann")
            assert outline((yield from store.attempts(id)))[-1][1:] == (
                Outcome.CANCELLED, True, "ann", False,
            )  # fmt: skip
        job = yield from store.cancel(1)
        assert (job.state, job.ended_by) == (State.CANCELLED, "outside")
        attempts = yield from store.attempts(1)
        assert outline(attempts) == [(1, Outcome.CANCELLED, True, "outside", True)]
        assert attempts[0].worker == "w1"
        for id in (1, 2, 3, 4, 7, 8):
            chain, _ = yield from store.chain(id)
            assert (chain.state, chain.ended_at) == (ChainState.CANCELLED, clock())
        finished = yield from store.finish([completed(held[0])])
        assert finished.refused == [1]
        assert (yield from states(store, 1)) == [State.CANCELLED]
        for id in range(1, 9):
            yield from refuses(InvalidState, r"(completed|failed|cancelled) and", store.cancel(id))
        yield from refuses(NotFound, "no job 99", store.cancel(99))

    play(script)


def test_K1_dependents_of_a_cancelled_job_follow_their_policy(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([
            new(),
            new("fails", after=[1]),
            new("waits", after=[1], policy=Policy.WAIT),
            new("runs", after=[1], policy=Policy.RUN),
            new("fails too", after=[2]),
        ])  # fmt: skip
        yield from store.cancel(1)
        assert (yield from states(store, 1, 2, 3, 4, 5)) == [
            State.CANCELLED, State.FAILED, State.BLOCKED, State.PENDING, State.FAILED,
        ]  # fmt: skip
        two, five = yield from read.records(store, [2, 5])
        assert (two.last_error, two.last_blocker) == ("blocker chain 1 ended cancelled", 1)
        assert (five.last_error, five.last_blocker) == ("blocker chain 2 ended failed", 2)

    play(script)


def test_K2_retry_gives_fresh_attempts_and_keeps_the_history(
    play: Play, store: Store, clock: Clock
) -> None:
    def fail_for_good() -> Steps[None]:
        yield from store.enqueue([new(max_attempts=2)])
        for number in (1, 2):
            (held,) = yield from claim(store)
            yield from store.finish([failed(held, f"error {number}", delay=0)])
            yield from promote(store)
        (job,) = yield from read.records(store, [1])
        assert job.state is State.FAILED

    play(fail_for_good)
    clock.advance(60)

    def again() -> Steps[None]:
        job = yield from store.retry(1)
        assert (job.state, job.attempt, job.used, job.lost) == (State.PENDING, 2, 0, 0)
        assert (job.run_at, job.last_error) == (clock(), "error 2")
        assert [a.final for a in (yield from store.attempts(1))] == [None, None]
        chain, _ = yield from store.chain(1)
        assert (chain.state, chain.ended_at) == (ChainState.OPEN, None)
        for number in (3, 4):
            (held,) = yield from claim(store)
            assert (held.attempt, held.used) == (number, number - 3)
            yield from store.finish([failed(held, f"error {number}", delay=0)])
            yield from promote(store)
        assert (yield from states(store, 1)) == [State.FAILED]
        yield from store.retry(1)
        (held,) = yield from claim(store)
        yield from store.finish([completed(held, "1")])
        attempts = yield from store.attempts(1)
        assert [(a.number, a.error, a.final) for a in attempts] == [
            (1, "error 1", None), (2, "error 2", None), (3, "error 3", None),
            (4, "error 4", None), (5, None, 1),
        ]  # fmt: skip
        chain, last = yield from store.chain(1)
        assert (chain.state, chain.ended_at, last.last_output) == (
            ChainState.COMPLETED, clock(), "1",
        )  # fmt: skip

    play(again)


def test_K2_the_id_of_a_chain_stands_for_its_last_job(play: Play, store: Store) -> None:
    """For retry, cancel, complete and fail alike; the job that continued is never touched."""

    def script() -> Steps[None]:
        yield from store.enqueue([new()])
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("last"))])
        yield from refuses(InvalidState, "job 2 is pending; only", store.retry(1))
        assert (yield from store.cancel(1)).id == 2
        assert (yield from store.retry(1)).id == 2
        assert (yield from store.fail(1, "bad")).id == 2
        assert (yield from store.retry(1)).state is State.PENDING
        assert (yield from store.complete(1, "5")).id == 2
        assert (yield from states(store, 1, 2)) == [State.COMPLETED, State.COMPLETED]
        chain, last = yield from store.chain(1)
        assert (chain.state, last.id, last.last_output) == (ChainState.COMPLETED, 2, "5")
        assert len((yield from store.attempts(1))) == 1
        yield from refuses(InvalidState, "job 2 is completed", store.retry(1))
        yield from refuses(InvalidState, "job 2 is completed", store.cancel(1))

    play(script)


def test_K2_what_is_not_failed_or_cancelled_cannot_be_retried_and_the_error_names_its_state(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from one_of_each(store)
        expected = [State.RUNNING, State.BLOCKED, State.SCHEDULED, State.PENDING, State.COMPLETED]
        for id, state in enumerate(expected, 1):
            yield from refuses(InvalidState, f"job {id} is {state}; only", store.retry(id))
        yield from refuses(NotFound, "no job 99", store.retry(99))
        assert (yield from states(store, 1, 2, 3, 4, 5)) == expected
        yield from store.retry(6)
        yield from store.retry(7)
        assert (yield from states(store, 6, 7)) == [State.PENDING] * 2

    play(script)


def test_K2_a_retried_job_waits_again_for_blockers_and_is_refused_where_it_could_never_run(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(), new(), new("d", after=[1, 2]), new("e", after=[1])])
        yield from store.cancel(3)
        yield from store.cancel(4)
        assert (yield from store.retry(3)).open_blockers == 2
        yield from store.complete(1, "null")
        yield from store.cancel(3)
        revived = yield from store.retry(3)
        assert (revived.state, revived.open_blockers) == (State.BLOCKED, 1)
        yield from store.fail(2, "bad")
        assert (yield from states(store, 3)) == [State.FAILED]
        yield from refuses(InvalidState, "waits for chain 2, which failed", store.retry(3))
        yield from store.delete([1])
        yield from refuses(InvalidState, "a chain it waited for was deleted", store.retry(4))
        assert (yield from states(store, 3, 4)) == [State.FAILED, State.CANCELLED]

    play(script)


def test_K2_retrying_a_blocker_leaves_a_dependent_that_could_not_run_as_it_is(
    play: Play, store: Store
) -> None:
    """One lost another blocker for ever; one lost its key to a newer chain. The rest is revived."""

    def script() -> Steps[None]:
        yield from store.enqueue([
            new(), new(),
            new("d", after=[1, 2]), new("k", after=[1], key="k"), new("e", after=[1]),
            new("behind k", after=[4]),
        ])  # fmt: skip
        yield from store.complete(2, '"gone"')
        yield from store.fail(1, "bad")
        yield from store.delete([2])
        ((newer, created),) = yield from store.enqueue([new("k", key="k")])
        assert created
        assert (yield from store.retry(1)).state is State.PENDING
        assert (yield from states(store, 3, 4, 5, 6, newer.id)) == [
            State.FAILED, State.FAILED, State.BLOCKED, State.FAILED, State.PENDING,
        ]  # fmt: skip
        yield from store.complete(1, "null")
        assert (yield from states(store, 3, 4, 5, 6)) == [
            State.FAILED, State.FAILED, State.PENDING, State.FAILED,
        ]  # fmt: skip

    play(script)


def test_K2_a_chain_whose_key_was_taken_meanwhile_cannot_come_back(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(key="k")])
        yield from store.cancel(1)
        ((taker, created),) = yield from store.enqueue([new(key="k")])
        assert created
        with pytest.raises(DuplicateKey, match=f"open chain {taker.id} has taken") as caught:
            yield from store.retry(1)
        assert caught.value.chain_id == taker.id
        assert (yield from states(store, 1, taker.id)) == [State.CANCELLED, State.PENDING]
        yield from store.cancel(taker.id)
        assert (yield from store.retry(1)).state is State.PENDING
        ((same, created),) = yield from store.enqueue([new(key="k")])
        assert (same.id, created) == (1, False)

    play(script)


def test_K3_a_waiting_job_is_completed_or_failed_from_outside_and_the_history_says_by_whom(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from one_of_each(store)
        yield from store.enqueue([new("after p", after=[4])])
        job = yield from store.complete(4, '"yes"', by="webhook")
        assert (job.state, job.last_output, job.ended_by) == (State.COMPLETED, '"yes"', "webhook")
        job = yield from store.fail(3, "no answer", by="ann")
        assert (job.state, job.last_error, job.ended_by) == (State.FAILED, "no answer", "ann")
        assert (yield from store.complete(2, None)).ended_by == "outside"
        histories = [
            outline((yield from store.attempts(4))),
            outline((yield from store.attempts(3))),
        ]
        assert histories == [
            [(1, Outcome.COMPLETED, True, "webhook", False)],
            [(1, Outcome.FAILED, True, "ann", False)],
        ]
        assert (yield from states(store, 8)) == [State.PENDING]
        for id in (2, 3, 4, 5, 6, 7):
            (state,) = yield from states(store, id)
            yield from refuses(InvalidState, f"job {id} is {state}", store.complete(id, "1"))
            yield from refuses(InvalidState, f"job {id} is {state}", store.fail(id, "no"))
        yield from refuses(NotFound, "no job 99", store.complete(99, "1"))
        yield from refuses(NotFound, "no job 99", store.fail(99, "no"))

    play(script)


def test_K3_a_running_job_ended_from_outside_costs_its_worker_the_lease(
    play: Play, store: Store, clock: Clock
) -> None:
    """The attempt it cut short is kept as lost, with a note; the end is a row of its own."""

    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from store.enqueue([new(), new(), new(queue="mail", priority=4)])
        one, two = yield from claim(store, 2, worker)
        (three,) = yield from claim(store, 1, worker, ["mail"])
        yield from store.complete(1, "1", by="ann")
        yield from store.fail(2, "stop", by="bob")
        following = new("next", queue="", inherit_queue=True, inherit_priority=True)
        job = yield from store.complete(3, None, following, by="eve")
        assert (job.state, job.continued_by, job.last_output) == (State.COMPLETED, 4, None)
        heir = yield from store.job(4)
        assert (heir.task, heir.queue, heir.priority, heir.chain_id, heir.position) == (
            "next", "mail", 4, 3, 1,
        )  # fmt: skip
        notes = []
        for id, outcome, by in (
            (1, Outcome.COMPLETED, "ann"),
            (2, Outcome.FAILED, "bob"),
            (3, Outcome.CONTINUED, "eve"),
        ):
            attempts = yield from store.attempts(id)
            assert outline(attempts) == [
                (1, Outcome.LOST, False, None, True), (2, outcome, True, by, False),
            ]  # fmt: skip
            assert [a.worker for a in attempts] == ["w1", None]
            notes.append(attempts[0].error)
        assert notes == [
            "completed from outside by ann during this attempt",
            "failed from outside by bob during this attempt",
            "continued from outside by eve during this attempt",
        ]
        held = [one, two, three]
        finished = yield from store.finish([continued(job, new("late")) for job in held])
        assert (finished.accepted, finished.refused) == ([], [1, 2, 3])
        renewed = yield from store.renew(worker, "w1", 1, {(j.job_id, j.attempt) for j in held})
        assert renewed.lost == [(1, 1), (2, 1), (3, 1)]
        chains = [
            (yield from store.chain(1)),
            (yield from store.chain(2)),
            (yield from store.chain(3)),
        ]
        assert [chain.state for chain, _ in chains] == [
            ChainState.COMPLETED, ChainState.FAILED, ChainState.OPEN,
        ]  # fmt: skip

    play(script)


def test_K3_continuing_from_outside_keeps_blocking_until_the_last_job_ends(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(), new("behind", after=[1])])
        yield from store.complete(1, None, new("second"))
        assert (yield from states(store, 1, 2, 3)) == [
            State.COMPLETED, State.BLOCKED, State.PENDING,
        ]  # fmt: skip
        yield from store.complete(3, '"end"')
        assert (yield from states(store, 2)) == [State.PENDING]
        ((blocker,),) = (yield from store.blockers([2])).values()
        assert (blocker.task, blocker.output) == ("second", '"end"')

    play(script)


def test_K3_an_end_from_outside_commits_or_rolls_back_with_the_callers_own_write(
    play: Play, store: Store, app: Towline, database: Database
) -> None:
    def prepare() -> Steps[list[Claimed]]:
        yield from store.enqueue([new(), new("behind", after=[1]), new(), new()])
        return (yield from claim(store, 1))

    held = play(prepare)

    def decide() -> Steps[None]:
        first = yield from store.complete(1, None, new("next"), by="ann")
        yield from store.complete(first.continued_by or 0, "1")
        yield from store.fail(3, "no")
        yield from store.cancel(4)

    play.with_own_write(decide, keep=False)
    assert [job.state for job in app.jobs(newest=False)] == [
        State.RUNNING, State.BLOCKED, State.PENDING, State.PENDING,
    ]  # fmt: skip
    play.with_own_write(decide, keep=True)
    assert [job.state for job in app.jobs(newest=False)] == [
        State.COMPLETED, State.PENDING, State.FAILED, State.CANCELLED, State.COMPLETED,
    ]  # fmt: skip

    def late() -> Steps[list[int]]:
        return (yield from store.finish([completed(job) for job in held])).refused

    assert play(late) == [1]
    view = "SELECT number, outcome, ended_by FROM towline_attempts WHERE job_id = 1 ORDER BY 1"
    assert rows(database, view) == [(1, "lost", None), (2, "continued", "ann")]


class Faces:
    """Bulk control through either face: the same calls, blocking or awaited."""

    def __init__(self, app: Towline, face: str) -> None:
        self.app = app
        self.awaits = face == "awaiting"

    def cancel_many(self, **where: Any) -> int:
        if self.awaits:
            return asyncio.run(self.app.acancel_many(**where))
        return self.app.cancel_many(**where)

    def retry_many(self, **where: Any) -> int:
        if self.awaits:
            return asyncio.run(self.app.aretry_many(**where))
        return self.app.retry_many(**where)

    def states(self) -> list[State]:
        return [job.state for job in self.app.jobs(newest=False)]


@pytest.fixture(params=["blocking", "awaiting"])
def faces(request: pytest.FixtureRequest, app: Towline, monkeypatch: pytest.MonkeyPatch) -> Faces:
    """With pages of three, so that a handful of jobs takes several."""
    monkeypatch.setattr("towline.app.management.BULK_PAGE", 3)
    return Faces(app, request.param)


def test_K4_bulk_control_says_how_many_it_would_touch_and_how_many_it_did(
    faces: Faces, app: Towline
) -> None:
    app.runner.run(
        app.runner.store.enqueue([new("a"), new("b"), new("a"), new("a", queue="q"), new("a")])
    )
    app.complete(1)
    assert faces.cancel_many(preview=True, task="a") == 3
    assert faces.states() == [State.COMPLETED] + [State.PENDING] * 4
    assert faces.cancel_many(task="a", queue="default", by="ann") == 2
    assert faces.states() == [
        State.COMPLETED, State.PENDING, State.CANCELLED, State.PENDING, State.CANCELLED,
    ]  # fmt: skip
    assert app.job(5).ended_by == "ann"
    app.fail(2, "bad")
    assert faces.retry_many(preview=True, everything=True) == 3
    assert faces.retry_many(preview=True, state="failed") == 1
    assert faces.retry_many(task="a") == 2
    assert faces.retry_many(task="a") == 0
    assert faces.cancel_many(state="running") == 0
    assert faces.cancel_many(everything=True) == 3
    assert faces.retry_many(state="cancelled") == 3
    assert faces.states() == [State.COMPLETED, State.FAILED] + [State.PENDING] * 3


def test_K4_bulk_control_passes_over_what_its_own_work_has_ended_or_revived(
    faces: Faces, app: Towline
) -> None:
    """Cancelling a chain's last job fails an older job behind it; retrying it revives that one."""
    store = app.runner.store
    app.runner.run(store.enqueue([new(), new("behind", after=[1]), new("keyed", key="k")]))
    app.runner.run(store.complete(1, None, new("last")))
    assert faces.cancel_many(chain=1) == 1
    assert faces.retry_many(task="last") == 1
    assert faces.states() == [State.COMPLETED, State.BLOCKED, State.PENDING, State.PENDING]
    assert faces.cancel_many(everything=True) == 2
    assert faces.states() == [
        State.COMPLETED, State.FAILED, State.CANCELLED, State.CANCELLED,
    ]  # fmt: skip
    app.runner.run(store.enqueue([new("keyed", key="k")]))
    assert faces.retry_many(everything=True) == 1
    assert faces.states() == [
        State.COMPLETED, State.BLOCKED, State.CANCELLED, State.PENDING, State.PENDING,
    ]  # fmt: skip


def test_K4_bulk_control_joins_the_callers_transaction(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from one_of_each(store)
        preview = yield from store.bulk("cancel", JobFilter(), True, None, 100)
        touched = yield from store.bulk("cancel", JobFilter(state=State.SCHEDULED), False, None, 9)
        assert (preview.number, touched.number) == (4, 1)
        touched = yield from store.bulk("retry", JobFilter(), False, None, 100)
        assert touched.number == 3
        assert (yield from states(store, 1, 2, 3, 4, 5, 6, 7)) == [
            State.RUNNING, State.BLOCKED, State.PENDING, State.PENDING,
            State.COMPLETED, State.PENDING, State.PENDING,
        ]  # fmt: skip

    play(script)


def test_R2_a_running_job_is_deleted_only_by_force(app: Towline) -> None:
    """Finding D1: rarely meant; a cancel comes first, or the word for it."""
    app.runner.run(app.runner.store.enqueue([new()]))
    worker = app.runner.run(Op("register", lambda: register(app.runner.store)))
    app.runner.run(app.runner.store.claim(worker, ["default"], 1))
    with pytest.raises(InvalidState, match=r"job 1 is running.*force=True"):
        app.delete(1)
    assert app.delete(1, force=True) == [1]


def test_K1_reasons_and_names_are_cut_to_a_length(app: Towline) -> None:
    """Finding A28."""
    app.runner.run(app.runner.store.enqueue([new(), new()]))
    app.cancel(1, reason="r" * 10_000_000, by="b" * 10_000)
    (attempt,) = app.attempts(1)
    assert len(attempt.error or "") < 66_000
    assert (attempt.error or "").endswith("(10,000,000 characters)")
    assert attempt.ended_by == "b" * 200
