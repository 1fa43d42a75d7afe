"""Limits of queues and lanes: what may begin, who is next, and that every way out of running, and
every way into a lane, is told. Both engines, every kind of connection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.database import Database
from tests.kit import SECOND, Clock, claim, completed, continued, failed, new, put, register, rows
from towline import Towline
from towline.errors import InvalidState
from towline.model import Outcome, State
from towline.operation import Steps
from towline.records import Claimed, Ending, LaneRecord, NewJob
from towline.store import Store, read
from towline.store.limit import Numbers
from towline.store.turn import promote, unpark

QUEUES = ("mail", "default")
FULL, RESTING = 1, 2


def job(lane: str | None = "acme", **fields: Any) -> NewJob:
    fields.setdefault("queue", "mail")
    return new(lane=lane, **fields)


def take(store: Store, room: int = 10, queues: Sequence[str] = QUEUES) -> Steps[list[Claimed]]:
    return (yield from claim(store, room, queues=queues))


def ids(store: Store, room: int = 10, queues: Sequence[str] = QUEUES) -> Steps[list[int]]:
    return [held.job_id for held in (yield from take(store, room, queues))]


def lane_of(store: Store, name: str = "acme") -> Steps[LaneRecord | None]:
    found, _ = yield from store.lanes("mail", 100)
    return next((lane for lane in found if lane.lane == name), None)


def unbounded(store: Store) -> None:
    """A lane that is full opens when it is told to, and not after a while."""
    store.backstop = None


def limited(store: Store, lane: str | None, concurrency: int, **more: int) -> Steps[None]:
    unbounded(store)
    numbers = Numbers(concurrency, more.get("rate"), more.get("per"))
    yield from store.set_limit("mail", lane, numbers)


# ---- what may run


def test_G1_no_more_of_a_lane_runs_than_its_limit_allows(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 2)
        yield from store.set_limit("mail", "big", Numbers(3))
        yield from put(store, *[job("acme") for _ in range(4)], *[job("big") for _ in range(4)])
        held = yield from take(store)
        assert Counter(each.lane for each in held) == {"acme": 2, "big": 3}
        assert (yield from ids(store)) == []
        yield from store.finish([completed(held[0])])
        (again,) = yield from take(store)
        assert again.lane == held[0].lane
        assert (yield from ids(store)) == []

    play(script)


def test_G1_no_more_of_a_queue_runs_than_its_limit_allows(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, None, 3)
        yield from put(store, *[job(None) for _ in range(3)], *[job(f"l{n}") for n in range(3)])
        yield from put(store, new(), new())
        held = yield from take(store)
        assert Counter(each.queue for each in held) == {"mail": 3, "default": 2}
        assert (yield from ids(store)) == []
        mine = [each for each in held if each.queue == "mail"]
        yield from store.finish([completed(mine[0]), completed(mine[1])])
        assert len((yield from ids(store))) == 2

    play(script)


def test_G1_a_heavy_job_counts_with_its_weight_and_is_waited_for(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 3)
        (first, heavy, light) = yield from put(store, job(), job(weight=3), job())
        held = yield from take(store)
        assert [each.job_id for each in held] == [first]
        assert (yield from ids(store)) == []
        yield from store.finish([completed(held[0])])
        (alone,) = yield from take(store)
        assert (alone.job_id, alone.weight) == (heavy, 3)
        assert (yield from ids(store)) == []
        yield from store.finish([completed(alone)])
        assert (yield from ids(store)) == [light]

    play(script)


def test_G1_a_job_heavier_than_its_limit_runs_alone(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, None, 2)
        heavy, light = yield from put(store, job(None, weight=5), job(None))
        (held,) = yield from take(store)
        assert held.job_id == heavy
        assert (yield from ids(store)) == []
        yield from store.finish([completed(held)])
        assert (yield from ids(store)) == [light]

    play(script)


def test_G1_nothing_is_claimed_ahead_from_lanes_or_limited_queues(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, None, 9)
        yield from put(store, *[job() for _ in range(5)], *[job(None) for _ in range(5)])
        yield from put(store, *[new() for _ in range(5)])
        worker = yield from register(store)
        held = yield from store.claim(worker, QUEUES, 3, "w1", 4)
        ahead = held[3:]
        assert len(held) == 7
        assert {each.queue for each in ahead} == {"default"}

    play(script)


def test_G5_waiting_for_a_limit_is_no_claim_and_no_attempt(
    play: Play, store: Store, database: Database
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        first, second = yield from put(store, job(), job())
        for _ in range(5):
            yield from take(store)
        one, two = yield from read.records(store, [first, second])
        assert (one.attempt, one.state) == (1, State.RUNNING)
        assert (two.attempt, two.used, two.lost, two.state) == (0, 0, 0, State.PENDING)

    play(script)
    assert rows(database, "SELECT * FROM towline_attempt") == []


# ---- who is next


def test_G6_lanes_take_turns_whatever_waits_in_them(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from put(store, *[job("big") for _ in range(40)])
        assert Counter(h.lane for h in (yield from take(store, 4))) == {"big": 4}
        yield from put(store, *[job(f"l{n}") for n in range(3) for _ in range(5)])
        for _ in range(5):
            got = Counter(held.lane for held in (yield from take(store, 4)))
            assert got == {"big": 1, "l0": 1, "l1": 1, "l2": 1}

    play(script)


def test_G6_with_room_for_one_lanes_come_in_turn_though_the_clock_steps_back(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from put(store, *[job(f"l{n}") for n in range(3) for _ in range(4)])
        order: list[str | None] = []
        for step in range(9):
            clock.advance(-100 if step == 4 else 1)
            order += [held.lane for held in (yield from take(store, 1))]
        assert Counter(order) == {"l0": 3, "l1": 3, "l2": 3}
        assert order[:3] == order[3:6] == order[6:9]

    play(script)


def test_G6_a_lane_that_empties_again_and_again_comes_after_those_that_wait(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from put(store, *[job("backlog") for _ in range(20)])
        got: Counter[str | None] = Counter()
        for _ in range(12):
            for name in ("one", "two"):
                if not (yield from lane_of(store, name)):
                    yield from put(store, job(name))
            clock.advance(1)
            got.update(held.lane for held in (yield from take(store, 1)))
        assert got["backlog"] == 4

    play(script)


def test_G7_priority_orders_inside_a_lane_and_between_lanes(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        low, high = yield from put(store, job("a"), job("a", priority=5))
        top, middle = yield from put(store, job("b", priority=9), job("b", priority=1))
        plain, urgent = yield from put(store, job(None, priority=1), new(priority=7))
        taken = []
        for _ in range(6):
            taken += yield from ids(store, 1)
        assert taken[:3] == [top, urgent, high]
        assert set(taken[3:5]) == {middle, plain}
        assert taken[5] == low

    play(script)


def test_G7_plain_jobs_and_lanes_starve_neither(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        yield from put(store, *[job() for _ in range(60)], *[job(None) for _ in range(60)])
        yield from put(store, *[new() for _ in range(60)])
        half = yield from take(store, 20)
        laned = sum(held.lane is not None for held in half)
        assert laned == 10
        got: Counter[str] = Counter()
        for _ in range(60):
            clock.advance(0.012345)
            (held,) = yield from take(store, 1)
            got["laned" if held.lane else "plain"] += 1
        assert min(got.values()) >= 15

    play(script)


# ---- rates


def test_G4_no_more_begins_in_a_window_than_the_rate(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        unbounded(store)
        yield from store.set_limit("mail", None, Numbers(None, 5, 10 * SECOND))
        yield from store.set_limit("mail", "*", Numbers(None, 2, 10 * SECOND))
        yield from put(store, *[job(f"l{n % 3}") for n in range(30)], job(None), job(None))
        began: list[tuple[int, Claimed]] = []
        for _ in range(60):
            held = yield from take(store)
            began += [(clock(), each) for each in held]
            yield from store.finish([completed(each) for each in held])
            clock.advance(0.7)
        for at, _ in began:
            window = [each for moment, each in began if at <= moment < at + 10 * SECOND]
            assert len(window) <= 5
            lanes = Counter(each.lane for each in window if each.lane)
            assert max(lanes.values(), default=0) <= 2
        assert len(began) >= 0.9 * 5 * 4

    play(script)


def test_G4_a_lane_that_was_empty_meanwhile_remembers_what_it_has_spent(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        unbounded(store)
        yield from store.set_limit("mail", "*", Numbers(None, 1, 10 * SECOND))
        yield from put(store, job())
        yield from store.finish([completed(each) for each in (yield from take(store))])
        lane = yield from lane_of(store)
        assert lane is not None
        assert (lane.closed, lane.waiting, lane.began) == (3, 0, 1)
        (second,) = yield from put(store, job())
        assert (yield from ids(store)) == []
        due = (yield from store.peek(QUEUES)).next_due
        assert due is not None
        assert 10 * SECOND <= due - clock() <= 10.5 * SECOND
        clock.time = due - 1
        assert (yield from ids(store)) == []
        clock.time = due
        held = yield from take(store)
        assert [each.job_id for each in held] == [second]
        yield from store.finish([completed(held[0])])
        clock.advance(11)
        assert (yield from ids(store)) == []
        assert (yield from lane_of(store)) is None

    play(script)


# ---- every way out of running is told, with the backstop off


def ended(store: Store, held: Claimed) -> Steps[None]:
    yield from store.finish([completed(held)])


def went_on(store: Store, held: Claimed) -> Steps[None]:
    yield from store.finish([continued(held, job(None, queue="other"))])


def is_retried(store: Store, held: Claimed) -> Steps[None]:
    yield from store.finish([failed(held, delay=60 * SECOND)])


def was_released(store: Store, held: Claimed) -> Steps[None]:
    yield from store.finish([Ending(held, Outcome.RELEASED, started=False)])


def was_parked(store: Store, held: Claimed) -> Steps[None]:
    assert (yield from store.park([held])) == 1


def was_cancelled(store: Store, held: Claimed) -> Steps[None]:
    yield from store.cancel(held.job_id)


def was_completed(store: Store, held: Claimed) -> Steps[None]:
    yield from store.complete(held.job_id, "1")


def was_failed(store: Store, held: Claimed) -> Steps[None]:
    yield from store.fail(held.job_id, "no")


def was_deleted(store: Store, held: Claimed) -> Steps[None]:
    yield from store.delete([held.chain_id])


def was_swept(store: Store, held: Claimed) -> Steps[None]:
    yield from store.unregister(1)
    assert (yield from store.sweep([], [1])) == 1


def was_a_stray(store: Store, held: Claimed) -> Steps[None]:
    yield from register(store, "w1", lease=10**12)
    yield from store.renew(1, "w1", 10**12, set())


def lost_its_job(store: Store, held: Claimed) -> Steps[None]:
    yield store.sql.delete_jobs.many(("id",), [(held.job_id,)])
    assert (yield from store.sweep([], [1])) == 1


WAYS_OUT = [
    ended, went_on, is_retried, was_released, was_parked, was_cancelled, was_completed, was_failed,
    was_deleted, was_swept, was_a_stray, lost_its_job,
]  # fmt: skip


@pytest.mark.parametrize("leaves", WAYS_OUT, ids=lambda way: str(way.__name__))
def test_G2_whatever_ends_a_run_frees_its_slot(
    play: Play, store: Store, leaves: Callable[[Store, Claimed], Steps[None]]
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        first, second = yield from put(store, job(priority=-1), job(priority=-2))
        (held,) = yield from take(store)
        assert held.job_id == first
        assert (yield from ids(store)) == []
        lane = yield from lane_of(store)
        assert lane is not None
        assert (lane.closed, lane.opens_at, lane.waiting, lane.running) == (FULL, None, 1, 1)
        yield from leaves(store, held)
        back = leaves in (was_released, was_a_stray)  # it is the next again
        assert (yield from ids(store)) == [first if back else second]
        assert (yield from ids(store)) == []

    play(script)


def test_G3_who_was_swept_and_comes_back_frees_nothing_twice(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        yield from put(store, *[job() for _ in range(3)])
        worker = yield from register(store)
        (held,) = yield from store.claim(worker, QUEUES, 5, "w1")
        assert (yield from store.sweep([], [worker])) == 1
        (other,) = yield from take(store)
        assert (yield from store.finish([completed(held)])).refused == [held.job_id]
        lane = yield from lane_of(store)
        assert lane is not None
        assert lane.closed == FULL
        assert (yield from ids(store)) == []
        assert (yield from store.finish([completed(other)])).accepted

    play(script)


# ---- every way into a lane is told


def test_G2_whatever_makes_a_job_pending_puts_it_into_its_lane(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        (due,) = yield from put(store, job("due", delay=5 * SECOND))
        (first,) = yield from put(store, new())
        (behind,) = yield from put(store, job("behind", after=[first]))
        (now,) = yield from put(store, job("now", delay=60 * SECOND))
        (bad,) = yield from put(store, job("bad"))
        (dropped,) = yield from put(store, job("dropped"))
        (keyed,) = yield from put(store, job("keyed", key="k", delay=60 * SECOND))
        yield from store.cancel(dropped)
        held = yield from take(store)
        assert {each.job_id for each in held} == {first, bad}
        by_id = {each.job_id: each for each in held}
        yield from store.finish([completed(by_id[first]), failed(by_id[bad])])
        clock.advance(5)
        yield from promote(store)
        yield from store.run_now(now)
        yield from store.retry(bad)
        yield from store.retry(dropped)
        yield from put(store, job("keyed", key="k", on_conflict="replace"))
        states = [r.live_state for r in (yield from read.records(store, [due, behind, now, bad]))]
        assert states == [4, 4, 4, 4]
        assert set((yield from ids(store))) == {due, behind, now, bad, dropped, keyed}

    play(script)


def test_a_laned_job_of_an_unknown_task_is_parked_and_comes_back_into_its_lane(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        strange, known = yield from put(store, job(task="strange", priority=1), job())
        (held,) = yield from take(store)
        yield from store.park([held])
        assert (yield from store.parked()) == {"strange": 1}
        assert (yield from ids(store)) == [known]
        assert (yield from unpark(store, ["strange"], QUEUES)) == 1
        assert (yield from store.parked()) == {}
        assert (yield from ids(store)) == []
        yield from store.cancel(known)
        assert (yield from ids(store)) == [strange]

    play(script)


def test_a_continuation_stays_in_the_lane_of_its_queue(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from put(store, job())
        (held,) = yield from take(store)
        following = new(inherit_queue=True)
        yield from store.finish([continued(held, following)])
        (next,) = yield from take(store)
        assert (next.queue, next.lane, next.position) == ("mail", "acme", 1)
        yield from store.finish([continued(next, new(queue="default"))])
        (last,) = yield from take(store)
        assert (last.queue, last.lane) == ("default", None)

    play(script)


def test_a_lane_whose_first_job_was_deleted_by_hand_goes_on(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        first, second = yield from put(store, job(), job())
        yield store.sql.delete_jobs.many(("id",), [(first,)])
        assert (yield from ids(store)) == []
        assert (yield from store.drop_orphans(QUEUES)) == 1
        assert (yield from ids(store)) == [second]

    play(script)


# ---- what changes a limit


def test_G11_limits_change_up_down_to_zero_and_away_with_jobs_waiting_and_running(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        yield from put(store, *[job() for _ in range(9)])
        assert len((yield from ids(store))) == 1
        yield from store.set_limit("mail", "*", Numbers(3))
        held = yield from take(store)
        assert len(held) == 2
        yield from store.set_limit("mail", "acme", Numbers(0))
        assert (yield from ids(store)) == []
        yield from store.finish([completed(held[0])])
        assert (yield from ids(store)) == []
        assert (yield from store.running(1)) >= {held[1][:2]}  # nothing that runs is stopped
        yield from store.set_limit("mail", "acme", Numbers())
        assert len((yield from ids(store))) == 1
        assert {limit.lane for limit in (yield from store.limits("mail"))} == {"*"}
        yield from store.set_limit("mail", "*", Numbers())
        assert len((yield from ids(store))) == 5
        assert (yield from store.limits()) == []

    play(script)


def test_G11_a_queue_is_limited_at_once_though_its_workers_do_not_know(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from put(store, *[job(None) for _ in range(4)])
        yield from limited(store, None, 1)
        worker = yield from register(store)
        turn = yield from store.turn(worker, "w1", QUEUES, 8)
        assert turn.claimed == []
        assert (turn.gated, turn.again) == (["mail"], True)
        turn = yield from store.turn(worker, "w1", QUEUES, 8, gated=turn.gated or ())
        assert len(turn.claimed) == 1
        assert not turn.again

    play(script)


def test_limits_say_how_much_of_them_is_used(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        yield from store.set_limit("mail", None, Numbers(9, 3, SECOND), "ops")
        yield from store.set_limit("mail", "acme", Numbers(2))
        yield from put(store, job(weight=2), job(None))
        assert len((yield from ids(store))) == 2
        queue, lane = yield from store.limits()
        assert (queue.queue, queue.lane, queue.running, queue.began) == ("mail", "", 3, 3)
        assert (queue.changed_by, queue.declared, queue.edited) == ("ops", False, False)
        assert queue.opens_at is not None
        assert (lane.lane, lane.concurrency, lane.running) == ("acme", 2, 2)
        (line,) = (yield from store.audit(None, "mail", 10)).records
        assert (line.action, line.done_by) == ("limit", "ops")

    play(script)


def test_N9_declared_limits_are_applied_when_they_are_new_or_changed(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        declared = {("mail", ""): Numbers(5), ("mail", "*"): Numbers(2)}
        places = [("mail", ""), ("mail", "*")]
        assert (yield from store.declare_limits(declared, ["mail"], "d")).changed == places
        assert (yield from store.declare_limits(declared, ["mail"], "d")).changed == []
        yield from store.set_limit("mail", "*", Numbers(9))  # a person's word survives a deploy
        yield from store.set_limit("other", None, Numbers(1))
        assert (yield from store.declare_limits(declared, ["mail"], "d")).changed == []
        found = {(x.queue, x.lane): x for x in (yield from store.limits())}
        assert found["mail", "*"].concurrency == 9
        assert (found["mail", "*"].edited, found["mail", ""].edited) == (True, False)
        declared["mail", "*"] = Numbers(3)
        assert (yield from store.declare_limits(declared, ["mail"], "d")).changed == [("mail", "*")]
        assert (
            yield from store.declare_limits({}, ["default"], "d")
        ).changed == []  # another app's
        assert (yield from store.declare_limits({}, ["mail"], "d")).changed == places
        assert [x.queue for x in (yield from store.limits())] == ["other"]

    play(script)


def test_N9_a_declared_limit_that_a_person_took_away_stays_away(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        declared = {("mail", "acme"): Numbers(1), ("mail", "*"): Numbers(2)}
        yield from store.declare_limits(declared, ["mail"], "d")
        yield from store.set_limit("mail", "acme", Numbers())
        assert (yield from store.declare_limits(declared, ["mail"], "d")).changed == []
        yield from put(store, *[job() for _ in range(4)])
        assert len((yield from ids(store))) == 2  # that of each lane

    play(script)


# ---- lanes that rest, run_now, lists


def test_G14_a_lane_rests_for_all_and_only_it(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        yield from put(store, job(), job(), job("other"), job("other"))
        held = {each.lane: each for each in (yield from take(store, 2))}
        end = Ending(held["acme"], Outcome.SNOOZED, delay=30 * SECOND, rests=True)
        yield from store.finish([end])
        (other,) = yield from take(store)
        assert other.lane == "other"
        (third,) = yield from put(store, job())
        assert (yield from ids(store)) == []
        lane = yield from lane_of(store)
        assert lane is not None
        assert (lane.closed, lane.opens_at) == (RESTING, clock() + 30 * SECOND)
        assert (yield from store.peek(QUEUES)).next_due == clock() + 30 * SECOND
        clock.advance(30)
        yield from promote(store)
        held_again = yield from ids(store)
        assert held["acme"].job_id in held_again
        assert third in held_again

    play(script)


def test_run_now_in_a_lane_is_refused_with_how_much_of_it_runs(play: Play, store: Store) -> None:
    def script() -> Steps[str]:
        yield from limited(store, "*", 2)
        *_, last = yield from put(store, job(), job(), job())
        yield from take(store)
        with pytest.raises(InvalidState) as refused:
            yield from store.run_now(last)
        return str(refused.value)

    assert play(script) == (
        "job 3 waits in lane acme of queue mail (2 of 2 running); set_limit lets it go"
    )


def test_a_paused_queue_gives_nothing_from_its_lanes(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, None, 5)
        yield from put(store, job(), job(None))
        yield from store.pause("mail")
        assert (yield from ids(store)) == []
        assert (yield from store.peek(QUEUES)).pending == 0
        yield from store.resume("mail")
        assert len((yield from ids(store))) == 2

    play(script)


def test_a_look_finds_what_a_claim_would(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, None, 2)
        yield from put(store, job(), job("other"), job(None))
        found = yield from store.peek(QUEUES, 5)
        assert found.pending > 0
        assert found.gated == ["mail"]
        held = yield from take(store)
        assert len(held) == 2
        found = yield from store.peek(QUEUES, 5)
        assert (found.pending, found.waits) == (0, True)
        yield from store.finish([completed(each) for each in held])
        assert (yield from store.peek(QUEUES, 5)).pending > 0

    play(script)


def test_lists_and_counts_show_what_waits_in_lanes_as_pending(play: Play, app: Towline) -> None:
    store = app.runner.store

    def script() -> Steps[None]:
        yield from put(store, job(), job("other"), job(None))
        counts = yield from store.counts()
        assert counts["mail"][State.PENDING] == (3, False)

    play(script)
    assert [found.id for found in app.jobs(lane="other")] == [2]
    assert [found.id for found in app.jobs(lane="acme", state="pending")] == [1]
    assert app.job(1).lane == "acme"
