"""The line of a key: strict order, and a debounce that loses nothing, on every kind of
connection."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.kit import (
    HOUR,
    SECOND,
    Clock,
    claim,
    completed,
    continued,
    end,
    failed,
    finish_all,
    new,
    put,
    states,
)
from towline.errors import BlockerError, DuplicateKey
from towline.model import Policy
from towline.operation import Steps
from towline.records import NewBlocker, NewJob
from towline.store import Store, read

POLICIES = [Policy.RUN, Policy.WAIT]


def behind(arguments: str = "{}", *, policy: Policy = Policy.RUN, **fields: Any) -> NewJob:
    fields = {"key": "k", "on_conflict": "after", "policy": policy, **fields}
    return new("t", arguments=arguments, **fields)


def latest(arguments: str = "{}", **fields: Any) -> NewJob:
    return behind(arguments, on_conflict="latest", **fields)


def line_of(store: Store, number: int, **fields: Any) -> Steps[list[int]]:
    """So many chains, each behind the one before."""
    ids: list[int] = []
    for n in range(number):
        ((record, created),) = yield from store.enqueue([behind(f"[{n}]", **fields)])
        assert created
        ids.append(record.id)
    return ids


def holder(store: Store) -> Steps[int]:
    """Who has the key."""
    ((chain,),) = yield store.sql.read_key(task="t", key="k")
    assert isinstance(chain, int)
    return chain


# ---- Y2: after


@pytest.mark.parametrize("policy", POLICIES)
def test_Y2_each_runs_after_the_last_job_of_the_one_before(
    play: Play, store: Store, policy: Policy
) -> None:
    def script() -> Steps[None]:
        first, second, third = ids = yield from line_of(store, 3, policy=policy)
        assert (yield from states(store, *ids)) == ["pending", "blocked", "blocked"]
        records = yield from read.records(store, ids)
        assert [record.ordered for record in records] == [None, 1, 1]
        assert (yield from holder(store)) == third
        (held,) = yield from claim(store, 5)
        yield from store.finish([continued(held, new("next"))])
        assert (yield from states(store, second, third)) == ["blocked", "blocked"]
        (held,) = yield from claim(store, 5)
        assert (held.chain_id, held.task) == (first, "next")
        yield from store.finish([failed(held, delay=0)])
        assert (yield from states(store, second, third)) == ["blocked", "blocked"]
        yield from store.run_now(held.job_id)
        (held,) = yield from claim(store, 5)
        yield from store.finish([completed(held)])
        assert (yield from states(store, second, third)) == ["pending", "blocked"]
        assert (yield from finish_all(store)) == [second, third]
        # The key is free, and the next one waits for nobody.
        (fourth,) = yield from line_of(store, 1, policy=policy)
        assert (yield from states(store, fourth)) == ["pending"]

    play(script)


def test_Y2_it_goes_behind_whoever_has_the_key_and_others_are_given_the_last(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, new("t", key="k"))
        (second,) = yield from line_of(store, 1)
        ((record, created),) = yield from store.enqueue([new("t", key="k")])
        assert (record.id, created) == (second, False)
        with pytest.raises(DuplicateKey, match=f"chain {second} already has key"):
            yield from store.enqueue([new("t", key="k", on_conflict="raise")])
        ((record, _),) = yield from store.enqueue([behind(key="other")])
        assert record.state == "pending"
        assert (yield from finish_all(store)) == [first, record.id, second]

    play(script)


def test_Y2_a_batch_is_a_line_in_the_order_given(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, new("t", key="k"))
        answers = yield from store.enqueue(
            [behind("[1]"), new("t", key="k"), behind("[2]"), latest("[3]"), behind("[4]")]
        )
        one, same, two, replaced, four = [record.id for record, _ in answers]
        assert [created for _, created in answers] == [True, False, True, False, True]
        assert (one, two) == (same, replaced)
        assert (yield from holder(store)) == four
        record = yield from store.job(two)
        assert record.arguments == "[3]"
        assert (yield from finish_all(store)) == [first, one, two, four]
        many = yield from put(store, *[behind() for _ in range(20)])
        assert (yield from finish_all(store)) == many

    play(script)


def test_Y2_a_batch_that_names_a_later_one_as_blocker_is_a_circle(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([behind(blockers=[NewBlocker(index=1)]), behind()])

    with pytest.raises(BlockerError, match="wait for each other in a circle: t, t"):
        play(script)


def test_Y2_what_it_waits_for_besides_counts_too(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        first, other = yield from put(store, behind(), new("other"))
        (second,) = yield from put(store, behind(after=[first, other]))
        (third,) = yield from put(store, behind(after=[other]))
        blockers = yield from store.blockers([second, third])
        # It names the one before it anyway; that is no second edge.
        assert [(b.chain_id, b.position) for b in blockers[second]] == [(first, 0), (other, 1)]
        assert [(b.chain_id, b.position) for b in blockers[third]] == [(second, -1), (other, 0)]
        assert (yield from finish_all(store)) == [first, other, second, third]

    play(script)


# ---- Y3: when one fails


@pytest.mark.parametrize("how", ["failed", "cancelled"])
def test_Y3_one_that_fails_stops_its_line_or_not(play: Play, store: Store, how: str) -> None:
    def script() -> Steps[None]:
        for policy, after in ((Policy.WAIT, "blocked"), (Policy.RUN, "pending")):
            first, second = yield from line_of(store, 2, key=str(policy), policy=policy)
            yield from end(store, first, how)
            assert (yield from states(store, second)) == [after]
            # So do those that come later.
            (third,) = yield from line_of(store, 1, key=str(policy), policy=policy)
            assert (yield from states(store, third)) == ["blocked"]
        # A line that has ended with a failure stands, for those that wait.
        (alone,) = yield from line_of(store, 1, key="alone")
        yield from end(store, alone, how)
        waits, goes_on = yield from put(
            store,
            behind(key="alone", policy=Policy.WAIT),
            behind(key="beside", policy=Policy.WAIT),
        )
        assert (yield from states(store, waits, goes_on)) == ["blocked", "pending"]
        yield from store.retry(alone)
        yield from store.complete(alone, "null")
        assert (yield from states(store, waits)) == ["pending"]

    play(script)


@pytest.mark.parametrize("policy", POLICIES)
def test_Y3_a_failed_one_can_be_retried_while_later_ones_wait(
    play: Play, store: Store, policy: Policy
) -> None:
    def script() -> Steps[None]:
        first, second, third = yield from line_of(store, 3, policy=policy)
        (held,) = yield from claim(store)
        yield from store.finish([failed(held)])
        yield from store.retry(first)
        assert (yield from states(store, first, second, third)) == ["pending", "blocked", "blocked"]
        assert (yield from holder(store)) == third
        assert (yield from finish_all(store)) == [first, second, third]

    play(script)


def test_Y3_it_cannot_be_retried_beside_a_later_one(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        first, second, third = yield from line_of(store, 3)
        yield from end(store, first, "failed")
        (held,) = yield from claim(store)
        for _ in range(2):
            with pytest.raises(DuplicateKey, match=f"open chain {third} has taken its key 'k'"):
                yield from store.retry(first)
            if held.job_id == second:
                yield from store.finish([completed(held)])
                (held,) = yield from claim(store)
        assert held.job_id == third
        yield from store.finish([completed(held)])
        yield from store.retry(first)
        assert (yield from holder(store)) == first

    play(script)


# ---- leaving the line


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_Y2_what_is_behind_one_that_ends_while_it_waits_closes_up(
    play: Play, store: Store, how: str, policy: Policy
) -> None:
    def script() -> Steps[None]:
        first, second, third, fourth = yield from line_of(store, 4, policy=policy)
        (held,) = yield from claim(store, 4)
        yield from end(store, second, how)
        assert (yield from states(store, third, fourth)) == ["blocked", "blocked"]
        # The last one goes: the key is the one's before it, which runs.
        yield from end(store, fourth, how)
        yield from end(store, third, how)
        assert (yield from holder(store)) == first
        (fifth,) = yield from line_of(store, 1, policy=policy)
        assert (yield from states(store, fifth)) == ["blocked"]
        yield from store.finish([completed(held)])
        assert (yield from finish_all(store)) == [fifth]

    play(script)


def test_Y2_one_that_is_deleted_while_it_waits_leaves_the_line(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        first, second, third = yield from line_of(store, 3)
        (held,) = yield from claim(store, 4)
        yield from store.delete([second, third])
        assert (yield from holder(store)) == first
        (fourth,) = yield from line_of(store, 1)
        assert (yield from states(store, fourth)) == ["blocked"]
        yield from store.finish([completed(held)])
        assert (yield from finish_all(store)) == [fourth]

    play(script)


def test_Y2_one_behind_it_that_waits_for_the_one_before_anyway_stays_so(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        first, second = yield from line_of(store, 2)
        (third,) = yield from put(store, behind(after=[first]))
        yield from store.cancel(second)
        record = yield from store.job(third)
        assert (record.state, record.open_blockers) == ("blocked", 1)
        assert (yield from finish_all(store)) == [first, third]

    play(script)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("when", ["before", "later"])
def test_D1_Y2_what_continues_one_that_waits_does_not_leave_the_line_by_a_failure(
    play: Play, store: Store, when: str, policy: Policy
) -> None:
    """It would end its chain, and with it the key, while the one before still runs."""

    def script() -> Steps[None]:
        first, second = yield from line_of(store, 2, policy=policy)
        (held,) = yield from claim(store)
        (other,) = yield from put(store, new())
        following = new("next", after=[other], policy=Policy.FAIL)
        if when == "before":
            yield from store.fail(other, "no")
        yield from store.complete(second, None, following)
        if when == "later":
            yield from store.fail(other, "no")
        tail = yield from read.tail(store, second)
        assert tail is not None
        assert (tail.position, tail.state) == (1, "blocked")
        assert (yield from holder(store)) == second
        (third,) = yield from line_of(store, 1, policy=policy)
        assert (yield from states(store, third)) == ["blocked"]
        assert held.job_id == first
        yield from store.finish([completed(held)])
        if policy is Policy.RUN:
            assert (yield from finish_all(store)) == [tail.id, third]
            return
        assert (yield from finish_all(store)) == []
        yield from store.retry(other)
        assert (yield from finish_all(store)) == [other, tail.id, third]

    play(script)


# ---- Y4: latest


def test_Y4_the_newest_arguments_run_one_runs_and_at_most_one_waits(
    play: Play, store: Store, clock: Clock
) -> None:
    def ask(arguments: str, **fields: Any) -> Steps[tuple[int, bool]]:
        ((record, created),) = yield from store.enqueue([latest(arguments, **fields)])
        return record.id, created

    def script() -> Steps[None]:
        first, created = yield from ask("[1]", delay=SECOND)
        assert created
        assert (yield from ask("[2]")) == (first, False)
        (held,) = yield from claim(store, 5)
        assert held.arguments == "[2]"
        # It has started: what comes now waits behind it, and is replaced there.
        second, created = yield from ask("[3]")
        assert (created, second != first) == (True, True)
        assert (yield from ask("[4]", delay=HOUR)) == (second, False)
        record = yield from store.job(second)
        assert (record.state, record.arguments) == ("blocked", "[4]")
        assert record.run_at == clock() + HOUR
        assert (yield from ask("[5]")) == (second, False)
        # Also when it is to be tried again: it goes on with what it had.
        yield from store.finish([failed(held, delay=HOUR)])
        assert (yield from ask("[6]")) == (second, False)
        yield from store.run_now(first)
        (held,) = yield from claim(store, 5)
        assert (held.job_id, held.arguments) == (first, "[2]")
        # A failure loses nothing.
        yield from store.finish([failed(held)])
        (held,) = yield from claim(store, 5)
        assert (held.job_id, held.arguments) == (second, "[6]")
        yield from store.finish([completed(held)])
        third, created = yield from ask("[7]")
        assert created
        assert (yield from finish_all(store)) == [third]

    play(script)


def test_Y4_one_that_was_claimed_ahead_has_started_and_one_that_went_on_too(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, latest("[1]"))
        (held,) = yield from store.claim(1, ["default"], 0, None, 1)
        assert (yield from states(store, first)) == ["pending"]
        ((second, created),) = yield from store.enqueue([latest("[2]")])
        assert (created, second.state) == (True, "blocked")
        yield from store.finish([continued(held, new("next"))])
        ((third, created),) = yield from store.enqueue([latest("[3]")])
        assert (third.id, third.arguments, created) == (second.id, "[3]", False)
        assert len((yield from finish_all(store))) == 2

    play(script)


# ---- D3: replace


def test_D3_replace_replaces_every_option_that_is_given_and_no_other(
    play: Play, store: Store, clock: Clock
) -> None:
    given: dict[str, Any] = {
        "label": "second",
        "queue": "other",
        "priority": 7,
        "max_attempts": 2,
        "timeout": HOUR,
        "trace": "t",
        "expires_at": clock() + 2 * HOUR,
    }

    def script() -> Steps[None]:
        before: dict[str, Any] = {
            "label": "first",
            "queue": "default",
            "priority": 1,
            "max_attempts": 3,
        }
        (id,) = yield from put(store, new("t", key="k", delay=HOUR, **before))
        for name, value in given.items():
            job = new("t", key="k", on_conflict="replace", given=[name], **{name: value})
            yield from store.enqueue([job])
            before[name] = value
            record = yield from store.job(id)
            assert {name: getattr(record, name) for name in before} == before
            assert record.state == "pending"
        later = new("t", key="k", on_conflict="replace", given=["expires_at"], expires=SECOND)
        yield from store.enqueue([later])
        assert (yield from store.job(id)).expires_at == clock() + SECOND
        (held,) = yield from claim(store, queues=["default", "other"])
        assert (held.job_id, held.queue, held.priority) == (id, "other", 7)
        yield from store.finish([completed(held)])

    play(script)
