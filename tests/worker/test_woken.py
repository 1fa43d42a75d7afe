"""An idle worker is woken: it claims at once; what a claim alone does not see comes after it."""

from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate
from towline import INJECTED, ChainCancelled, Context, State, Task, Towline
from towline.errors import CommitUnknown
from towline.events.kinds import JobExpired, TurnTaken
from towline.operation import Op, Steps
from towline.postgres.store import PostgresStore
from towline.store.turn import Turn
from towline.worker import Worker
from towline.worker.lookout import BUSY_INTERVAL, Lookout


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[Turn]:
    """All that turns of this process gave."""
    taken: list[Turn] = []
    took = Lookout.took

    def note(self: Lookout, turn: Turn, room: int) -> None:
        taken.append(turn)
        took(self, turn, room)

    monkeypatch.setattr(Lookout, "took", note)
    return taken


def idle(worker: Worker, turns: list[Turn]) -> None:
    """Wait until it has looked and found nothing, and nothing wakes it any more."""
    lookout = worker.pump.turns.lookout
    until(lambda: turns and not lookout.may_have_work and not lookout.woken, "an idle worker")
    time.sleep(2 * BUSY_INTERVAL)
    turns.clear()


def test_W6_a_woken_worker_claims_before_anything_else(
    app: Towline, postgres: Database, turns: list[Turn]
) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    with app.worker(concurrency=2) as worker:
        idle(worker, turns)
        assert double.enqueue(4).result(LIMIT) == 8
        assert turns[0].alone
        assert len(turns[0].claimed) == 1
        assert not any(turn.alone for turn in turns[1:]), "the end of a job is a whole turn"


def test_B1_outputs_are_there_for_what_is_claimed_alone(app: Towline, turns: list[Turn]) -> None:
    @app.task
    def first() -> str:
        return ""

    @app.task
    def second(ctx: Context = INJECTED) -> list[object]:
        return list(ctx.blockers)

    app.pause("away")
    waited = first.using(queue="away").enqueue()
    with app.worker(concurrency=2) as worker:
        job = second.using(after=[waited]).enqueue()
        idle(worker, turns)
        app.complete(waited.id, "from outside")
        assert job.result(LIMIT) == ["from outside"]


def test_S3_a_claim_alone_does_not_forget_what_is_due(app: Towline, turns: list[Turn]) -> None:
    """Nor does it keep what is due waiting: the look comes after it, whatever runs."""
    gate = Gate()

    @app.task
    def hold() -> None:
        gate.enter()

    @app.task
    def note() -> str:
        return "on time"

    with app.worker(concurrency=2) as worker:
        idle(worker, turns)
        hold.enqueue()
        gate.wait_inside()
        assert note.using(delay=0.3).enqueue().result(LIMIT) == "on time"
        assert note.enqueue().result(LIMIT) == "on time"
        gate.open()


def one_late_one_good(app: Towline, turns: list[Turn], note: Task[[int], None]) -> None:
    """Both are claimed alone; the late one ends, and is told of once."""
    told: list[object] = []
    app.on(JobExpired.name)(told.append)
    with app.worker(concurrency=2) as worker:
        idle(worker, turns)
        app.pause("default")
        late, good = note.using(expires=0.05).enqueue(1), note.enqueue(2)
        time.sleep(0.1)
        app.resume("default")
        with pytest.raises(ChainCancelled, match="not started before"):
            late.result(LIMIT)
        good.result(LIMIT)
        until(lambda: told, "the event")
    assert sum(event.count for event in told if isinstance(event, JobExpired)) == 1


def test_Y1_what_is_late_when_it_is_claimed_alone_never_starts(
    app: Towline, turns: list[Turn]
) -> None:
    ran: list[int] = []

    @app.task
    def note(n: int) -> None:
        ran.append(n)

    one_late_one_good(app, turns, note)
    assert ran == [2]


def test_Y1_late_items_of_a_chunk_never_reach_its_handler(app: Towline, turns: list[Turn]) -> None:
    ran: list[int] = []

    @app.chunk(size=10, wait=0.01)
    def note(numbers: list[int]) -> None:
        ran.extend(numbers)

    one_late_one_good(app, turns, note)
    assert ran == [2]


def test_Y1_a_late_job_of_a_task_nobody_knows_is_cancelled(app: Towline, turns: list[Turn]) -> None:
    with app.worker(concurrency=2, queues=["default"]) as worker:
        idle(worker, turns)
        app.pause("default")
        late = app.named("elsewhere").using(expires=0.05).enqueue()
        time.sleep(0.1)
        app.resume("default")
        with pytest.raises(ChainCancelled, match="not started before"):
            late.result(LIMIT)


def test_P6_a_claim_whose_answer_is_lost_is_put_back_at_once(
    app: Towline, postgres: Database, turns: list[Turn], trouble: list[logging.LogRecord]
) -> None:
    """It is committed, and the worker does not know what it has."""

    @app.task
    def work() -> str:
        return "done"

    with app.worker(concurrency=2, lease=600) as worker:
        idle(worker, turns)
        claim_alone = PostgresStore.claim_alone
        lost: list[Op[Turn]] = []

        def lose(self: PostgresStore, *given: Any) -> Op[Turn] | None:
            op = claim_alone(self, *given)
            if op is None or lost:
                return op
            lost.append(op)

            def steps() -> Steps[Turn]:
                yield from op
                raise CommitUnknown("the connection was lost")

            return Op("turn", steps, single=True)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PostgresStore, "claim_alone", lose)
            assert work.enqueue().result(LIMIT) == "done"
    assert lost
    assert [str(record.msg) for record in trouble]


def test_G1_a_limited_queue_is_not_claimed_from_alone(app: Towline, turns: list[Turn]) -> None:
    """The worker was idle before the limit was set, and may not know of it."""
    gate = Gate()
    seen: list[int] = []

    @app.task
    def hold() -> None:
        gate.enter()

    with app.worker(concurrency=4) as worker:
        idle(worker, turns)
        app.set_limit("default", concurrency=1)
        for _ in range(3):
            hold.enqueue()
        gate.wait_inside()
        for _ in range(20):
            seen.append(app.counts()["default"].get(State.RUNNING, 0))
            time.sleep(0.02)
        assert max(seen) == 1
        gate.open()


def test_T8_a_claim_alone_is_told_as_a_turn(
    app: Towline, postgres: Database, turns: list[Turn]
) -> None:
    told: list[TurnTaken] = []

    @app.on(TurnTaken.name)
    def note(event: object) -> None:
        assert isinstance(event, TurnTaken)
        told.append(event)

    @app.task
    def work() -> None: ...

    with app.worker(concurrency=2) as worker:
        idle(worker, turns)
        told.clear()
        work.enqueue().result(LIMIT)
        until(lambda: len(told) >= 2, "both turns")
    assert (told[0].claimed, told[0].finished) == (1, 0)
