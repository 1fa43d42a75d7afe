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


def again(*blockers: int, given: tuple[str, ...] = ("blockers",), **fields: Any) -> NewJob:
    named = [NewBlocker(id) for id in blockers]
    return new("t", key="k", on_conflict="replace", blockers=named, given=given, **fields)


def chains_before(store: Store, id: int) -> Steps[list[int]]:
    edges = yield from read.blockers(store, [id])
    return [edge.chain_id for edge in edges.get(id, ())]


def test_D3_replace_gives_the_job_other_chains_to_wait_for(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        one, two = yield from put(store, new("one"), new("two"))
        (id,) = yield from put(store, new("t", key="k", after=[one]))
        yield from store.enqueue([again(two)])
        assert (yield from chains_before(store, id)) == [two]
        yield from end(store, one, "completed")
        assert (yield from store.job(id)).state == "blocked"
        yield from end(store, two, "completed")
        assert (yield from store.job(id)).state == "pending"
        (held,) = yield from claim(store)
        assert held.blockers == 1
        yield from store.finish([completed(held)])

    play(script)


def test_D3_replace_waits_for_nothing_any_more_or_for_the_first_time(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (one,) = yield from put(store, new("one"))
        (id,) = yield from put(store, new("t", key="k", after=[one]))
        yield from store.enqueue([again(delay=HOUR)])
        record = yield from store.job(id)
        assert (record.state, record.blockers, record.open_blockers) == ("scheduled", 0, 0)
        yield from store.enqueue([again(one)])
        record = yield from store.job(id)
        assert (record.state, record.blockers, record.open_blockers) == ("blocked", 1, 1)
        yield from end(store, one, "completed")
        assert (yield from store.job(id)).state == "pending"

    play(script)


def test_D3_replace_waits_for_a_call_of_its_own_batch(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (id,) = yield from put(store, new("t", key="k"))
        waiting = again(given=("blockers",))
        waiting.blockers = [NewBlocker(index=1, name="b")]
        answers = yield from store.enqueue([waiting, new("one")])
        (same, created), (one, _) = answers
        assert (same.id, created, same.state) == (id, False, "blocked")
        yield from end(store, one.id, "completed")
        assert (yield from store.job(id)).state == "pending"

    play(script)


def test_D3_replace_in_one_batch_waits_for_what_the_last_one_named(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        waiting = again(arguments="[2]")
        waiting.blockers = [NewBlocker(index=2)]
        jobs = [new("t", key="k"), waiting, new("one")]
        (first, _), (second, created), (one, _) = yield from store.enqueue(jobs)
        assert (first.id, created) == (second.id, False)
        assert (yield from chains_before(store, first.id)) == [one.id]
        record = yield from store.job(first.id)
        assert (record.state, record.arguments) == ("blocked", "[2]")

    play(script)


@pytest.mark.parametrize("stored", [False, True])
def test_D3_of_several_that_replace_in_one_batch_the_last_one_given_counts(
    play: Play, store: Store, stored: bool
) -> None:
    def script() -> Steps[None]:
        if stored:
            yield from put(store, new("t", key="k"))
        waiting = again(arguments="[1]")
        waiting.blockers = [NewBlocker(index=2)]
        jobs = [waiting, again(arguments="[2]", given=()), new("one")]
        (first, created), (second, again_created), (one, _) = yield from store.enqueue(jobs)
        assert (first.id, created, again_created) == (second.id, not stored, False)
        assert (yield from chains_before(store, first.id)) == [one.id]
        assert (yield from store.job(first.id)).arguments == "[2]"

    play(script)


def test_D3_latest_counts_behind_a_replace_of_its_batch(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (one,) = yield from put(store, new("one"))
        (id,) = yield from put(store, new("t", key="k"))
        answers = yield from store.enqueue([again(one, arguments="[1]"), latest("[2]")])
        assert [(record.id, created) for record, created in answers] == [(id, False)] * 2
        assert (yield from store.job(id)).arguments == "[2]"
        assert (yield from chains_before(store, id)) == [one]

    play(script)


def test_D3_replace_in_one_batch_replaces_who_has_the_key_by_then(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        first = new("t", key="k", arguments="[0]")
        behind = new("t", key="k", arguments="[1]", on_conflict="after", policy=Policy.RUN)
        jobs = [first, behind, again(arguments="[2]", given=())]
        (one, _), (two, _), (three, created) = yield from store.enqueue(jobs)
        assert (three.id, created) == (two.id, False)
        assert (yield from store.job(one.id)).arguments == "[0]"
        assert (yield from store.job(two.id)).arguments == "[2]"

    play(script)


@pytest.mark.parametrize("policy", Policy)
def test_D3_a_replaced_job_behind_a_failure_follows_its_policy(
    play: Play, store: Store, policy: Policy
) -> None:
    def script() -> Steps[None]:
        (one,) = yield from put(store, new("one"))
        yield from end(store, one, "failed")
        (id,) = yield from put(store, new("t", key="k"))
        (behind,) = yield from put(store, new("b", after=[id]))
        yield from store.enqueue([again(one, given=("blockers", "policy"), policy=policy)])
        wanted = {Policy.FAIL: "failed", Policy.WAIT: "blocked", Policy.RUN: "pending"}[policy]
        assert (yield from store.job(id)).state == wanted
        assert (yield from store.job(behind)).state == (
            "failed" if wanted == "failed" else "blocked"
        )

    play(script)


def test_D3_another_policy_alone_counts_for_what_has_failed_before(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (one,) = yield from put(store, new("one"))
        (id,) = yield from put(store, new("t", key="k", after=[one], policy=Policy.WAIT))
        yield from end(store, one, "failed")
        assert (yield from store.job(id)).state == "blocked"
        yield from store.enqueue([again(given=("policy",), policy=Policy.RUN)])
        assert (yield from store.job(id)).state == "pending"
        assert (yield from chains_before(store, id)) == [one]
        yield from store.enqueue([again(given=("policy",), policy=Policy.WAIT)])
        assert (yield from store.job(id)).state == "blocked"

    play(script)


def test_D3_who_stands_in_a_line_stays_in_it(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (one,) = yield from put(store, new("one"))
        first, second = yield from line_of(store, 2)
        yield from store.enqueue([again(one, given=("blockers", "policy"))])
        assert sorted((yield from chains_before(store, second))) == sorted([one, first])
        record = yield from store.job(second)
        assert (record.open_blockers, record.policy) == (2, Policy.RUN)  # the line's, as before
        yield from end(store, one, "completed")
        yield from finish_all(store)
        assert (yield from states(store, first, second)) == ["completed", "completed"]

    play(script)


def test_B5_replace_closes_no_circle(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (id,) = yield from put(store, new("t", key="k"))
        (behind,) = yield from put(store, new("b", after=[id]))
        (far,) = yield from put(store, new("c", after=[behind]))
        for chains, words in (((id,), "its own chain"), ((far,), "what waits for its own chain"),
                              ((far, far), "twice"), ((far + 999,), "does not exist")):  # fmt: skip
            with pytest.raises(BlockerError, match=words):
                yield from store.enqueue([again(*chains)])

    play(script)


@pytest.mark.parametrize("how", ["return", "replace"])
def test_B5_those_that_replace_in_one_batch_close_no_circle(
    play: Play, store: Store, how: str
) -> None:
    def script() -> Steps[None]:
        waiting = again()
        waiting.blockers = [NewBlocker(index=1)]
        between = new("c", blockers=[NewBlocker(index=2)])
        with pytest.raises(BlockerError, match="in a circle: c, t, t"):
            yield from store.enqueue([waiting, between, new("t", key="k", on_conflict=how)])
        assert (yield from store.counts()) == {}

    play(script)
