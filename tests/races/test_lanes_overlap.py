"""G1, G2: whatever commits between two statements of a claim under limits, nothing runs above a
limit and no lane sleeps; and who holds a gate delays nobody else. With the backstop off.

PostgreSQL only: on SQLite the writer is the gate.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any, Generic, TypeVar

import psycopg
import pytest

from tests import database as databases
from tests.kit import Clock, completed, new, register
from tests.races.overlap import Open
from tests.speed import by_speed
from towline import Towline
from towline.model import Outcome
from towline.operation import Op, Statement, Steps
from towline.records import Claimed, Ending
from towline.store import Store
from towline.store.limit import Numbers
from towline.store.turn import Turn
from towline.times import MICRO

pytestmark = pytest.mark.parametrize(
    "database", by_speed([databases.newest()], databases.names()[1:]), indirect=True
)


@pytest.fixture
def store(app: Towline) -> Store:
    app.runner.store.backstop = None
    return app.runner.store


class Others:
    """What others do meanwhile, each in a transaction of its own."""

    def __init__(self, url: str) -> None:
        self.app = Towline(url)
        self.store = self.app.runner.store
        self.store.backstop = None
        self.held: list[Claimed] = []

    def put(self, number: int = 1, lane: str = "acme", priority: int = 0) -> None:
        jobs = [new(queue="mail", lane=lane, priority=priority) for _ in range(number)]
        self.app.runner.run(self.store.enqueue(jobs))

    def claim(self, room: int = 5) -> list[Claimed]:
        got = self.app.runner.run(self.store.claim(1, ["mail"], room))
        self.held += got
        return got

    def jump(self) -> None:
        """What is stored last begins first."""
        self.put(1, priority=9)
        self.claim(1)

    def finish(self) -> None:
        if self.held:
            self.app.runner.run(self.store.finish([completed(self.held.pop(0))]))

    def claim_and_finish(self) -> None:
        self.claim()
        self.finish()

    def release(self) -> None:
        if self.held:
            end = Ending(self.held.pop(0), Outcome.RELEASED, started=False)
            self.app.runner.run(self.store.finish([end]))

    def cancel(self) -> None:
        if self.held:
            self.app.runner.run(self.store.cancel(self.held.pop(0).job_id))

    def running(self) -> int:
        found = self.app.runner.run(self.store.limits("mail"))
        return next(limit.running or 0 for limit in found if limit.lane == "")


ACTS: dict[str, Callable[[Others], object]] = {
    "enqueues": Others.put,
    "claims": Others.claim,
    "jumps the queue": Others.jump,
    "finishes": Others.finish,
    "claims and finishes": Others.claim_and_finish,
    "releases": Others.release,
    "cancels": Others.cancel,
}


T = TypeVar("T")


class Meanwhile(Generic[T]):
    """A claim, with something done by others before its statement of this number, or at its end."""

    def __init__(self, op: Op[T], number: int, act: Callable[[], object]) -> None:
        self._op = op
        self._number = number
        self._act = act
        self.before = ""  # which statement it was

    def op(self) -> Op[T]:
        return Op("meanwhile", self._steps)

    def _steps(self) -> Steps[T]:
        running = iter(self._op)
        number = 0
        try:
            asked = next(running)
            while True:
                if isinstance(asked, Statement):
                    if number == self._number:
                        self.before = asked.query.name
                        self._act()
                    number += 1
                asked = running.send((yield asked))
        except StopIteration as stop:
            if not self.before:
                self._act()
            found: T = stop.value
            return found


@pytest.fixture
def others(app: Towline, url: str) -> Iterator[Others]:
    app.migrate()
    others = Others(url)
    yield others
    others.app.close()


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize("lanes", ["new", "with room", "full"])
def test_G1_G2_whatever_comes_between_two_statements_of_a_claim(
    app: Towline, store: Store, others: Others, act: str, lanes: str
) -> None:
    """One of two may run. All that is stored is done in the end, by whoever asks, though nothing is
    looked at that was not told: each claim gives what may run, until nothing is left."""
    app.runner.run(store.set_limit("mail", None, Numbers(2)))
    app.runner.run(store.set_limit("mail", "*", Numbers(1)))
    step = "first"
    for number in range(100):
        others.put(4)
        others.put(2, "second")
        if lanes != "new":  # they have been looked at, and are open
            others.claim(1)
            if lanes == "with room":
                others.finish()
            app.runner.run(store.set_limit("mail", "*", Numbers(1)))
        claim = Meanwhile(store.claim(1, ["mail"], 5), number, lambda: ACTS[act](others))
        mine = app.runner.run(claim.op())
        step = claim.before
        assert others.running() <= 2, step
        while True:  # a lane that sleeps is never found
            running = [held.lane for held in (*mine, *others.held)]
            assert len(running) == len(set(running)), step
            app.runner.run(store.finish([completed(held) for held in (*mine, *others.held)]))
            others.held.clear()
            mine = app.runner.run(store.claim(1, ["mail"], 5))
            if not mine:
                break
        assert [job.id for job in app.jobs(state=["pending", "running"])] == [], step
        if not step:
            break
    assert not step


def test_G1_what_began_before_the_gate_was_held_is_counted(
    app: Towline, store: Store, others: Others
) -> None:
    """Two lanes are known and open, and another begins a job of the first that was not there when
    the claim began: the claim finds room for one, not for two."""
    app.runner.run(store.set_limit("mail", None, Numbers(2)))
    for number in range(100):
        others.put(4)
        others.put(2, "second")
        others.claim(1)
        others.finish()
        app.runner.run(store.set_limit("mail", "*", Numbers(1)))
        claim = Meanwhile(store.claim(1, ["mail"], 5), number, others.jump)
        app.runner.run(claim.op())
        assert others.running() <= 2, claim.before
        for job in app.jobs(state=["pending", "running"]):
            app.cancel(job.id)
        others.held.clear()
        if not claim.before:
            return
    raise AssertionError("a claim never ends")


def test_G4_a_claim_whose_turn_began_long_before_its_gate_keeps_the_rate(
    app: Towline, store: Store, clock: Clock, url: str
) -> None:
    """A turn asks for the time when it begins, and may be held up before it comes to the gate: what
    others began meanwhile counts, and is not moved back to the turn's own time."""
    rate, per = 4, MICRO
    app.runner.run(store.set_limit("mail", None, Numbers(None, rate, per)))
    app.runner.run(store.enqueue([new(queue="mail") for _ in range(9 * rate)]))
    worker = app.runner.run(Op("register", lambda: register(store)))
    starts: list[int] = []

    def claim() -> None:
        starts.extend(held.claimed_at for held in app.runner.run(store.claim(1, ["mail"], 99)))

    with closing(Towline(url, clock=clock)) as slow:

        def meanwhile() -> None:
            for _ in range(5):  # the window moves on, and what began first is forgotten
                clock.advance(0.3)
                claim()

        claim()
        clock.advance(0.8)
        turn = slow.runner.store.turn(worker, "w1", ["mail"], 99, gated=["mail"])
        late = slow.runner.run(Meanwhile(turn, 1, meanwhile).op())
        starts += [held.claimed_at for held in late.claimed]
        for _ in range(5):
            clock.advance(0.3)
            claim()
    starts.sort()
    assert len(starts) > 2 * rate
    for first in starts:
        assert sum(first <= at < first + per for at in starts) <= rate, starts


def test_G1_while_one_claims_another_leaves_the_queue(app: Towline, store: Store, url: str) -> None:
    app.runner.run(store.set_limit("mail", None, Numbers(2)))
    app.runner.run(store.enqueue([new(queue="mail") for _ in range(9)]))
    app.runner.run(store.enqueue([new()]))

    def turn() -> Steps[Turn]:
        worker = yield from register(store)
        return (yield from store.turn(worker, "w1", ["mail", "default"], 5, gated=["mail"]))

    claiming = Open(app, url, store.claim(1, ["mail"], 5))
    taking = Open(app, url, Op("turn", turn))
    assert not taking.waits
    taken = taking.commit()
    assert [held.queue for held in taken.claimed] == ["default"]
    assert taken.missed
    assert len(claiming.commit()) == 2
    assert app.runner.run(store.claim(1, ["mail"], 5)) == []


def test_G10_enqueueing_into_a_lane_waits_for_nobody(app: Towline, store: Store, url: str) -> None:
    """Neither for a worker that claims from it, nor for another caller who has not committed."""
    app.runner.run(store.enqueue([new(queue="mail", lane="acme")]))
    open: list[Open[Any]] = [
        Open(app, url, store.claim(1, ["mail"], 5)),
        *[Open(app, url, store.enqueue([new(queue="mail", lane="acme")])) for _ in range(2)],
        Open(app, url, store.enqueue([new(queue="mail", lane="acme", key="k")])),
        Open(app, url, store.enqueue([new(queue="mail", lane="new")])),
    ]
    assert not any(each.waits for each in open)
    for each in open:
        each.commit()
    taken = app.runner.run(store.claim(1, ["mail"], 9))
    assert len(taken) == 4


def test_G12_an_open_transaction_that_set_a_limit_delays_its_queue_and_nothing_else(
    app: Towline, store: Store, url: str
) -> None:
    app.runner.run(store.enqueue([new(queue="mail", lane="acme"), new(queue="other", lane="acme")]))
    app.runner.run(store.enqueue([new(queue="mail"), new()]))
    queues = ["mail", "other", "default"]
    first = Open(app, url, store.set_limit("mail", None, Numbers(1)))  # its gate is not there yet
    worker = app.runner.run(Op("register", lambda: register(store)))
    taken = app.runner.run(store.turn(worker, "w1", queues, 9, gated=["mail", "other"]))
    assert sorted(held.queue for held in taken.claimed) == ["default", "mail", "other"]
    assert [held.lane for held in taken.claimed if held.queue == "mail"] == [None]
    assert (
        app.runner.run(store.renew(worker, "w1", 10**9, {h[:2] for h in taken.claimed})).lost == []
    )
    first.commit()
    ends = [completed(held) for held in taken.claimed]
    second = Open(app, url, store.set_limit("mail", None, Numbers(5)))
    done = app.runner.run(store.turn(worker, "w1", queues, 9, ends, gated=["mail", "other"]))
    assert len(done.finished.accepted) == 3
    assert done.claimed == []
    assert done.missed
    second.commit()
    (last,) = app.runner.run(store.claim(worker, queues, 9))
    assert last.lane == "acme"


def test_G12_an_open_transaction_that_cancelled_a_laned_job_delays_its_lane_at_most(
    app: Towline, store: Store, url: str
) -> None:
    app.runner.run(store.set_limit("mail", "*", Numbers(1)))
    app.runner.run(store.enqueue([new(queue="mail", lane=lane) for lane in "aabb"]))
    held = {each.lane: each for each in app.runner.run(store.claim(1, ["mail"], 9))}
    cancelling = Open(app, url, store.cancel(held["a"].job_id))
    app.runner.run(store.finish([completed(held["b"])]))
    (next,) = app.runner.run(store.claim(1, ["mail"], 9))
    assert next.lane == "b"
    cancelling.commit()
    (last,) = app.runner.run(store.claim(1, ["mail"], 9))
    assert last.lane == "a"


def test_a_flood_of_notes_in_one_lane_hides_no_other(app: Towline, store: Store, url: str) -> None:
    with psycopg.connect(url) as raw:
        for number in range(300):
            raw.execute(
                "INSERT INTO towline_note (queue, lane, priority) VALUES ('mail', %s, 0)",
                ["flood" if number % 2 else f"f{number}"],
            )
    app.runner.run(store.enqueue([new(queue="mail", lane="zzz")]))
    got: list[Claimed] = []
    for _ in range(4):
        claimed = app.runner.run(store.claim(1, ["mail"], 200))
        got += claimed
    assert [held.lane for held in got] == ["zzz"]
    for _ in range(6):
        app.runner.run(store.claim(1, ["mail"], 200))
    with psycopg.connect(url) as raw:
        assert raw.execute("SELECT count(*) FROM towline_note").fetchone() == (0,)
        assert raw.execute("SELECT count(*) FROM towline_lane").fetchone() == (0,)


def test_G14_a_lane_that_is_to_rest_by_a_note_beyond_those_collected_rests_and_hides_nothing(
    app: Towline, others: Others, url: str
) -> None:
    """More lanes have notes than are collected at once; what is offered of the others counts."""
    others.put(21, "zz")
    others.put(2, "zy")
    others.put(1, "zx")
    assert len(others.claim(3)) == 3  # all three lanes have their rows now
    with psycopg.connect(url) as raw:
        for number in range(150):
            raw.execute(
                "INSERT INTO towline_note (queue, lane, free) VALUES ('mail', %s, 1)",
                [f"a{number:03}"],
            )
        raw.execute("INSERT INTO towline_note (queue, lane, until) VALUES ('mail', 'zy', 4e18)")
    got = others.claim(6)
    assert {held.lane for held in got} == {"zz"}
    for _ in range(20):
        others.claim(6)
    assert [job.lane for job in app.jobs(state="pending")] == ["zy"]
