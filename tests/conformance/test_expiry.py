"""Expiry: a job that comes too late does not start, on every kind of connection."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.conformance.conftest import Play
from tests.kit import HOUR, MINUTE, SECOND, Clock, beat, claim, completed, failed, new, put, states
from towline.model import ChainState, Outcome, Policy, State
from towline.operation import Steps
from towline.records import NewBlocker
from towline.store import Store, read
from towline.store.stats import StatsFilter
from towline.store.turn import promote


def test_Y1_a_job_that_would_start_too_late_is_cancelled_and_has_no_start(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        late, at, never = yield from put(
            store,
            new(expires=MINUTE),
            new(expires_at=clock() + HOUR),
            new(),
        )
        record = yield from store.job(late)
        assert record.expires_at == clock() + MINUTE
        clock.advance(60)
        assert [held.job_id for held in (yield from claim(store, 3))] == [at, never]
        record = yield from store.job(late)
        assert (record.state, record.last_number, record.last_started_at) == ("cancelled", 1, None)
        assert record.last_error == "not started before 2027-01-15T08:01:00+00:00"
        chain, _ = yield from store.chain(late)
        assert (chain.state, chain.ended_at) == (ChainState.CANCELLED, clock())
        (attempt,) = yield from store.attempts(late)
        assert (attempt.outcome, attempt.started_at, attempt.final) == (Outcome.CANCELLED, None, 1)

    play(script)


def test_Y1_a_job_that_is_started_in_time_may_go_on_for_as_long_as_it_likes(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        (id,) = yield from put(store, new(expires=MINUTE))
        clock.advance(59.999999)
        (held,) = yield from claim(store)
        clock.advance(3600)
        assert (yield from store.finish([completed(held)])).accepted == [id]

    play(script)


def test_Y1_it_is_looked_at_again_at_each_retry(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        (id,) = yield from put(store, new(expires=HOUR))
        (held,) = yield from claim(store)
        yield from store.finish([failed(held, "boom", delay=2 * HOUR)])
        clock.advance(3 * 3600)
        yield from promote(store)
        assert (yield from claim(store)) == []
        record = yield from store.job(id)
        assert (record.state, record.last_number, record.last_started_at) == ("cancelled", 2, None)
        outcomes = [attempt.outcome for attempt in (yield from store.attempts(id))]
        assert outcomes == [Outcome.FAILED, Outcome.CANCELLED]
        # By hand it comes back, and is looked at once more.
        yield from store.retry(id)
        assert (yield from claim(store)) == []
        assert (yield from states(store, id)) == ["cancelled"]

    play(script)


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [(Policy.FAIL, "failed"), (Policy.WAIT, "blocked"), (Policy.RUN, "pending")],
)
def test_Y1_what_waits_for_it_follows_its_policy(
    play: Play, store: Store, clock: Clock, policy: Policy, wanted: str
) -> None:
    def script() -> Steps[None]:
        (id,) = yield from put(store, new(expires=MINUTE))
        (behind,) = yield from put(store, new("behind", after=[id], policy=policy))
        clock.advance(60)
        # One that is free by it may be claimed in the same breath.
        claimed = yield from claim(store)
        assert [held.job_id for held in claimed] == ([behind] if policy is Policy.RUN else [])
        found = yield from states(store, id, behind)
        assert found == ["cancelled", "running" if policy is Policy.RUN else wanted]

    play(script)


def test_Y1_its_key_is_free_and_a_blocked_one_is_looked_at_when_it_would_start(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, new())
        (id,) = yield from put(store, new(key="k", expires=MINUTE, after=[first]))
        clock.advance(120)
        assert (yield from states(store, id)) == ["blocked"]
        yield from store.complete(first, "1")
        assert (yield from states(store, id)) == ["pending"]
        assert (yield from claim(store)) == []
        assert (yield from states(store, id)) == ["cancelled"]
        ((record, created),) = yield from store.enqueue([new(key="k")])
        assert (created, record.id != id) == (True, True)

    play(script)


@pytest.mark.parametrize("room", [1, 8])
def test_Y1_a_turn_passes_those_that_are_late_and_fills_its_slots(
    play: Play, store: Store, clock: Clock, room: int
) -> None:
    """They end in the turn that finds them, many of them, and those in time begin."""

    def script() -> Steps[None]:
        late = yield from put(store, *[new("late", expires=SECOND) for _ in range(20)])
        (mixed,) = yield from put(store, new("in time"))
        more = yield from put(store, *[new("late", expires=SECOND) for _ in range(3)])
        (last,) = yield from put(store, new("in time"))
        clock.advance(1)
        turn = yield from beat(store, room)
        ids = [mixed, last][:room]
        assert [held.job_id for held in turn.claimed] == ids
        expected = late if room == 1 else [*late, *more]
        assert sorted(held.job_id for held in turn.expired) == expected
        for number, record in enumerate((yield from read.records(store, ids))):
            begun = number < turn.begun
            assert (record.state is State.RUNNING, record.started_at is not None) == (begun, begun)
        yield from _count(store, {"cancelled": len(expected)})

    play(script)


def _count(store: Store, wanted: dict[str, int]) -> Steps[None]:
    """The roll-up has them as ended, and no time of theirs."""
    ended: Counter[str] = Counter()
    for row in (yield from store.stats(StatsFilter())):
        ended[row.outcome] += row.ended
        assert not any((row.duration, *row.histogram, row.waited, *row.wait_histogram))
    assert ended == wanted


def test_G3_what_a_late_job_lets_go_is_found_in_a_lane_that_was_just_left_empty(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        (late,) = yield from put(store, new(queue="mail", lane="acme", expires=MINUTE))
        waits = [NewBlocker(chain_id=late)]
        (behind,) = yield from put(
            store, new(queue="mail", lane="acme", policy=Policy.RUN, blockers=waits)
        )
        clock.advance(61)
        (held,) = yield from claim(store, queues=["mail"])
        assert held.job_id == behind
        assert (yield from states(store, late)) == [State.CANCELLED]

    play(script)
