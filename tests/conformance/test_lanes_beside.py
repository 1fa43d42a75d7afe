"""Lanes and limits beside the rest: what comes too late, keys, changes, fan-out, schedules."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.conformance.test_lanes import QUEUES, ids, job, lane_of, limited, take, unbounded
from tests.database import Database
from tests.kit import MINUTE, SECOND, Clock, completed, continued, new, put, register, rows, states
from towline import Cron, Towline
from towline.errors import InvalidState
from towline.model import Policy
from towline.operation import Steps
from towline.records import NewBlocker
from towline.schedule import NewSchedule
from towline.store import Store, read
from towline.store.limit import Numbers
from towline.store.turn import PASSES

# ---- Y1: what came too late


@pytest.mark.parametrize("lane", [None, "acme"])
def test_Y1_G2_what_comes_too_late_takes_no_slot_and_none_of_the_rate(
    play: Play, store: Store, clock: Clock, lane: str | None
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, None if lane is None else "*", 1, rate=1, per=MINUTE)
        late = yield from put(store, *[job(lane, expires=SECOND) for _ in range(3)])
        good, other = yield from put(store, job(lane), job(lane))
        clock.advance(2)
        (held,) = yield from take(store)
        assert held.job_id == good
        assert (yield from states(store, *late)) == ["cancelled"] * 3
        assert (yield from ids(store)) == []
        yield from store.finish([completed(held)])
        assert (yield from ids(store)) == []  # by the rate
        clock.advance(64)
        assert (yield from ids(store)) == [other]

    play(script)


def test_Y1_G2_a_lane_of_what_came_too_late_alone_is_empty_and_another_goes_on(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        unbounded(store)
        yield from store.set_limit("mail", None, Numbers(2))
        yield from store.set_limit("mail", "*", Numbers(1))
        late = yield from put(store, *[job(expires=SECOND) for _ in range(2 * PASSES + 5)])
        clock.advance(2)
        worker = yield from register(store)
        (good,) = yield from put(store, job("other", priority=-1))
        gone: list[int] = []
        begun: list[int] = []
        again = True
        while again:
            turn = yield from store.turn(worker, "w1", QUEUES, 2, gated=["mail"])
            gone += [held.job_id for held in turn.expired]
            begun += [held.job_id for held in turn.claimed]
            again = turn.again
            assert not again or len(turn.expired) == PASSES
        assert (begun, sorted(gone)) == ([good], late)
        assert (yield from lane_of(store)) is None
        (more,) = yield from put(store, job())
        assert (yield from ids(store)) == [more]

    play(script)


# ---- keys


def test_D3_replace_moves_a_job_to_the_lane_that_is_given(
    play: Play, store: Store, database: Database
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 3)
        yield from store.set_limit("mail", "acme", Numbers(0))
        (id,) = yield from put(store, job(key="k"))
        assert (yield from ids(store)) == []
        said: dict[str, Any] = {"weight": 2, "key": "k", "on_conflict": "replace"}
        yield from put(store, job("other", given=["lane", "weight"], **said))
        record = yield from store.job(id)
        assert (record.lane, record.weight) == ("other", 2)
        (held,) = yield from take(store)
        assert (held.job_id, held.lane, held.weight) == (id, "other", 2)
        yield from put(store, job("other"), job("other"))
        assert len((yield from ids(store))) == 1

    play(script)
    found = rows(database, "SELECT lane, weight FROM towline_live WHERE weight IS NOT NULL")
    assert found == [("other", 2)]


def test_D3_replace_takes_a_job_out_of_lanes_and_puts_one_in(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 0)
        (id,) = yield from put(store, job(key="k"))
        again: dict[str, Any] = {"key": "k", "on_conflict": "replace", "given": ["lane"]}
        yield from put(store, job(None, **again))
        assert (yield from store.job(id)).live_state == 0
        yield from put(store, job("other", **again))
        assert (yield from store.job(id)).live_state == 4
        assert (yield from ids(store)) == []
        yield from store.set_limit("mail", "*", Numbers())
        assert (yield from ids(store)) == [id]

    play(script)


def test_Y2_a_line_of_laned_jobs_goes_on_one_by_one(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        how: dict[str, Any] = {"key": "k", "on_conflict": "after", "policy": Policy.RUN}
        line = yield from put(store, *[job(**how) for _ in range(3)])
        for id in line:
            (held,) = yield from take(store)
            assert held.job_id == id
            assert (yield from ids(store)) == []
            yield from store.finish([completed(held)])
        assert (yield from ids(store)) == []

    play(script)


# ---- changes by hand


def test_K3_a_job_in_a_lane_is_changed_and_stays_in_it(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        first, second, third = yield from put(store, job(), job(), job("other", priority=3))
        assert (yield from store.change(second, {"priority": 5})).live_state == 4
        (held,) = yield from take(store, 1)
        assert (held.job_id, held.priority) == (second, 5)
        assert (yield from store.change(first, {"run_at": clock() + MINUTE})).state == "scheduled"
        yield from store.finish([completed(held)])
        assert (yield from ids(store)) == [third]
        assert (yield from store.change(first, {"run_at": clock()})).live_state == 4
        assert (yield from ids(store)) == [first]

    play(script)


def test_K3_a_job_in_a_lane_stays_in_its_queue(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (id,) = yield from put(store, job())
        with pytest.raises(InvalidState, match=f"job {id} is in lane acme of queue mail"):
            yield from store.change(id, {"queue": "default"})

    play(script)


def test_a_chain_that_runs_again_is_in_the_lane_again(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        yield from put(store, job(weight=1))
        (held,) = yield from take(store)
        yield from store.finish([completed(held)])
        again = yield from store.rerun(held.job_id)
        assert (again.lane, again.weight, again.live_state) == ("acme", 1, 4)
        assert (yield from ids(store)) == [again.id]

    play(script)


# ---- fan-out and groups


def test_F4_children_wait_in_their_lanes_and_the_continuation_in_its_predecessors(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        yield from put(store, job(task="split"))
        (held,) = yield from take(store)
        blockers = [NewBlocker(index=0), NewBlocker(index=1)]
        children = job("a"), job("acme")
        merge = new("merge", children=children, blockers=blockers, inherit_queue=True)
        yield from store.finish([continued(held, merge)])
        both = yield from take(store)
        assert {each.lane for each in both} == {"a", "acme"}
        assert (yield from ids(store)) == []
        yield from store.finish([completed(each) for each in both])
        (last,) = yield from take(store)
        assert (last.task, last.lane, last.chain_id) == ("merge", "acme", held.chain_id)

    play(script)


def test_F1_members_of_a_group_take_turns_in_their_lanes(play: Play, app: Towline) -> None:
    store = app.runner.store

    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    group = app.enqueue_group([send.call(tenant) for tenant in "aab"], then=send.call("a"))

    def script() -> Steps[None]:
        yield from limited(store, "*", 1)
        for expected in (["a", "b"], ["a"]):
            held = yield from take(store)
            assert sorted(str(each.lane) for each in held) == expected
            yield from store.finish([completed(each) for each in held])
        (last,) = yield from take(store)
        assert (last.job_id, last.lane) == (group.id, "a")

    play(script)


# ---- schedules


def test_N1_a_tick_keeps_the_lane_the_weight_and_how_long_its_job_is_good(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from limited(store, "*", 3)
        plan = NewSchedule("s", job(weight=2, expires=30 * SECOND), Cron(every=60).timing)
        yield from store.set_schedule(plan)
        clock.advance(60)
        assert (yield from store.fire(["a"])).jobs == 1
        (held,) = yield from take(store)
        assert (held.lane, held.weight) == ("acme", 2)
        assert held.expires_at == clock() + 30 * SECOND
        ran = yield from store.run_schedule("s")
        assert (ran.lane, ran.expires_at, ran.live_state) == ("acme", clock() + 30 * SECOND, 4)
        clock.advance(31)
        yield from store.finish([completed(held)])
        assert (yield from ids(store)) == []
        assert (yield from read.job(store, ran.id)).state == "cancelled"

    play(script)


# ---- declarations


def test_N9_a_limit_that_was_set_at_run_time_is_left_as_it_is(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from store.set_limit("mail", "*", Numbers(9))
        yield from put(store, job("other", queue="gate"))
        yield from take(store, queues=["gate"])  # its gate has a row without a number
        declared = {("mail", "*"): Numbers(2), ("gate", ""): Numbers(1)}
        done = yield from store.declare_limits(declared, ["mail", "gate"], "d1")
        assert (done.changed, done.taken, done.postponed) == (
            [("gate", "")],
            [("mail", "*")],
            False,
        )
        again = yield from store.declare_limits({}, ["mail", "gate"], "d2")
        assert again.changed == [("gate", "")]
        assert [(x.queue, x.concurrency) for x in (yield from store.limits())] == [("mail", 9)]

    play(script)


def test_N9_a_glance_says_in_what_limits_were_declared_and_which_queues_have_gates(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        declared = {("mail", "*"): Numbers(2), ("other", ""): Numbers(1)}
        yield from store.declare_limits(declared, ["mail", "other"], "d1")
        seen = yield from store.glance([], ["mail", "other", "default"], ["mail", "other"])
        assert (seen.declared_in, list(seen.gated)) == (["d1"], ["other"])
        yield from put(store, job())
        yield from store.declare_limits({("mail", "*"): Numbers(2)}, ["mail"], "d2")
        seen = yield from store.glance([], ["mail", "default"], ["mail", "other"])
        assert (sorted(seen.declared_in), list(seen.gated)) == (["d1", "d2"], ["mail"])
        assert (yield from store.glance([], [], ["default"])).declared_in == []

    play(script)
