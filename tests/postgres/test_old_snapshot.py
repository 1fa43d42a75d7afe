"""P7: a snapshot that stays open keeps the entries of what was claimed; claims begin behind them.

What is counted is what the server counts itself: entries of an index that a statement has passed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg
import pytest

from tests import servers
from tests.kit import SECOND, Clock, completed, failed, new, register
from tests.postgres.conftest import on_newest
from towline import Towline
from towline.operation import Op, Statement, Steps
from towline.postgres import heads
from towline.records import Claimed, Ending
from towline.store.turn import Turn

pytestmark = on_newest

TURN = 200
MANY = heads.MANY


class Walk(NamedTuple):
    """A statement that says how many entries it has passed."""

    name: str
    passed: int

    @property
    def whole(self) -> bool:
        return not self.name.endswith("_above")


class Hand:
    """A worker, turn by turn; what its claims and promotions have passed is noted."""

    def __init__(self, app: Towline, clock: Clock) -> None:
        self._app, self._clock = app, clock
        lease = 10**6 * SECOND
        enter = Op("register", lambda: register(app.runner.store, "hand", lease=lease))
        self.worker = app.runner.run(enter)
        self.ends: list[Ending] = []
        self.claims: list[Walk] = []
        self.promotions: list[Walk] = []

    def turn(self, room: int = TURN, end: Callable[[Claimed], Ending] = completed) -> Turn:
        """End what the last turn claimed, claim as many; a twentieth of a second passes."""
        self._clock.advance(0.05)
        store = self._app.runner.store
        op = store.turn(self.worker, "hand", ["default"], room, self.ends)
        turn = self._app.runner.run(Op("turn", lambda: self._noted(iter(op)), loss=op.loss))
        self.ends = [end(job) for job in turn.claimed]
        return turn

    def _noted(self, steps: Steps[Turn]) -> Steps[Turn]:
        item = next(steps)
        try:
            while True:
                rows = yield item
                if isinstance(item, Statement):
                    name = item.query.name
                    if name.startswith("claim_pending"):
                        self.claims.append(Walk(name, rows[0][0]))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
                    if name.startswith("promote_due"):
                        self.promotions.append(Walk(name, rows[0][0]))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
                item = steps.send(rows)
        except StopIteration as stop:
            result: Turn = stop.value
            return result


@pytest.fixture
def hand(app: Towline, clock: Clock) -> Hand:
    return Hand(app, clock)


@pytest.fixture
def snapshot(connect: Callable[..., psycopg.Connection[Any]]) -> Callable[[], None]:
    """Open a snapshot; calling it ends it."""
    reader = connect()
    reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    reader.execute("SELECT count(*) FROM towline_job").fetchall()
    return reader.rollback


def fill(app: Towline, number: int, **fields: Any) -> list[int]:
    records = app.runner.run(app.runner.store.enqueue([new(**fields) for _ in range(number)]))
    return [record.id for record, _ in records]


def test_P7_claims_do_not_walk_over_what_was_claimed_before(
    app: Towline, hand: Hand, snapshot: Callable[[], None]
) -> None:
    """Without this each of them passes all that was claimed since the snapshot began."""
    ids = fill(app, 40 * TURN)
    claimed = [job.job_id for _ in range(40) for job in hand.turn().claimed]
    assert claimed == ids
    late = hand.claims[20:]
    behind = [walk.passed for walk in late if not walk.whole]
    assert len(behind) >= 10
    # What was claimed since the last whole claim, a quarter of a second before, and the turn's own.
    assert max(behind) <= 7 * TURN
    assert max(walk.passed for walk in late if walk.whole) > 30 * TURN


def test_P7_a_worker_that_keeps_up_does_not_either(
    app: Towline, hand: Hand, snapshot: Callable[[], None]
) -> None:
    """Each turn finds less than it has room for, and there is nothing behind."""
    for _ in range(60):
        fill(app, 100)
        assert len(hand.turn().claimed) == 100
    late = hand.claims[40:]
    assert max(walk.passed for walk in late if not walk.whole) <= 700
    assert sum(walk.whole for walk in late) <= len(late) // 4


def test_P7_what_is_hidden_from_such_a_claim_is_found_a_moment_later(
    app: Towline, hand: Hand, clock: Clock, snapshot: Callable[[], None]
) -> None:
    """L6, but for a quarter of a second: another priority, and a job that comes back."""
    fill(app, 3 * MANY)
    while hand.turn().claimed and hand.claims[-1].whole:
        pass
    (urgent,) = fill(app, 1, priority=9)
    (back,) = hand.turn(1).claimed
    assert back.priority == 0
    hand.ends = [failed(back, delay=0)]
    turns = int(heads.PAUSE / (0.05 * SECOND)) + 2
    seen = {job.job_id for _ in range(turns) for job in hand.turn(2).claimed}
    assert {back.job_id, urgent} <= seen


def test_P7_a_turn_with_room_left_says_when_it_may_find_more(
    app: Towline, hand: Hand, clock: Clock, snapshot: Callable[[], None]
) -> None:
    fill(app, 2 * MANY)
    while hand.turn().claimed:
        pass
    turn = hand.turn()
    assert turn.next_due is not None
    assert 0 < turn.next_due - clock() <= heads.PAUSE
    (urgent,) = fill(app, 1, priority=9)
    clock.time = turn.next_due
    assert [job.job_id for job in hand.turn().claimed] == [urgent]


def test_P7_a_look_begins_there_too_unless_it_must_see_everything(
    app: Towline, hand: Hand, clock: Clock, snapshot: Callable[[], None]
) -> None:
    """A worker looks before its turns, many times a second; one that drains must know for sure."""
    fill(app, 2 * MANY)
    while hand.turn().claimed:
        pass
    fill(app, 1, priority=9)
    peek, run = app.runner.store.peek, app.runner.run
    (seen, all_of_it) = (run(peek(["default"], 5, (), each)) for each in (hand.worker, None))
    assert (seen.pending, all_of_it.pending) == (0, 1)
    assert seen.next_due is not None
    assert seen.next_due - clock() <= heads.PAUSE
    assert all_of_it.next_due is None


def test_P7_once_the_snapshot_is_gone_every_claim_is_whole_again(
    app: Towline, hand: Hand, snapshot: Callable[[], None], eye: Callable[..., Any]
) -> None:
    fill(app, 30 * TURN)
    for _ in range(15):
        hand.turn()
    assert not hand.claims[-1].whole or not hand.claims[-2].whole
    snapshot()
    eye("VACUUM towline_live")
    for _ in range(8):
        hand.turn()
    assert all(walk.whole and walk.passed < MANY for walk in hand.claims[-2:])


def test_P7_nobody_else_pays(make_app: Callable[..., Towline], clock: Clock) -> None:
    """Without an old snapshot every claim is whole, and exact.

    On a server of its own: while anybody's transaction stays open, in whichever database, a server
    does not look again at what it may clear away. An ANALYZE has a snapshot, too.
    """
    with servers.durable_server(servers.startable()[-1]) as server:
        with psycopg.connect(server.url, autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET autovacuum = off")
            admin.execute("SELECT pg_reload_conf()")
        app = make_app(server.url, clock=clock)
        app.migrate()
        hand = Hand(app, clock)
        fill(app, 20 * TURN)
        for _ in range(20):
            hand.turn()
        app.close()
    assert len(hand.claims) == 20
    assert all(walk.whole for walk in hand.claims)


def test_P7_promotion_does_not_walk_over_what_was_promoted(
    app: Towline, hand: Hand, clock: Clock, snapshot: Callable[[], None]
) -> None:
    app.runner.store.many_passed = 500  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    soon = fill(app, 3000, delay=SECOND)
    clock.advance(2)
    seen = [job.job_id for _ in range(16) for job in hand.turn().claimed]
    assert sorted(seen) == soon
    for _ in range(6):  # what is due is seen at once, as ever
        (one,) = fill(app, 1, delay=SECOND // 100)
        assert [job.job_id for job in hand.turn().claimed] == [one]
    late = hand.promotions[-6:]
    assert max(walk.passed for walk in late if not walk.whole) < 100
    assert sum(walk.whole for walk in late) <= 2


def test_P7_a_job_that_is_stored_late_is_promoted_a_moment_later(
    app: Towline, hand: Hand, clock: Clock, snapshot: Callable[[], None], eye: Callable[..., Any]
) -> None:
    app.runner.store.many_passed = 500  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
    fill(app, 1000, delay=SECOND)
    clock.advance(2)
    while hand.promotions[-1:] == [] or hand.promotions[-1].whole:
        hand.turn(1000)
    (late,) = fill(app, 1, delay=SECOND)
    eye("UPDATE towline_live SET run_at = 1 WHERE job_id = %s", late)
    turn = hand.turn(1000)
    assert turn.next_due is not None
    assert turn.next_due - clock() <= heads.PAUSE
    clock.time = turn.next_due
    assert [job.job_id for job in hand.turn().claimed] == [late]
