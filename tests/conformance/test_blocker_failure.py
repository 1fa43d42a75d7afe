"""Blockers that fail: what the jobs behind them do, and how they are revived."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Play
from tests.kit import (
    HOUR,
    Clock,
    beat,
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
from towline.errors import InvalidState
from towline.model import ChainState, Outcome, Policy, State
from towline.operation import Steps
from towline.records import NewBlocker
from towline.store import Store, read

BAD_ENDS = ("failed", "cancelled")


@pytest.mark.parametrize("how", BAD_ENDS)
def test_B6_by_default_the_dependent_fails_and_the_reason_names_the_blocker(
    play: Play, store: Store, clock: Clock, how: str
) -> None:
    def script() -> Steps[None]:
        bad, good = yield from put(store, new(), new())
        blockers = [NewBlocker(good), NewBlocker(bad, name="sizes")]
        plain, named = yield from put(store, new(after=[bad, good]), new(blockers=blockers))
        clock.advance(5)
        yield from end(store, bad, how)
        text = f"blocker chain {bad}{{}} ended {how}"
        for job, reason in ((plain, text.format("")), (named, text.format(" (sizes)"))):
            chain, record = yield from store.chain(job)
            assert (record.state, record.last_error) == (State.FAILED, reason)
            assert (chain.state, chain.ended_at) == (ChainState.FAILED, clock.time)
            (attempt,) = yield from store.attempts(job)
            assert (attempt.number, attempt.outcome, attempt.started_at) == (
                1,
                Outcome.FAILED,
                None,
            )
        # The other blocker's end changes nothing any more.
        yield from end(store, good, "completed")
        assert (yield from states(store, plain, named)) == ["failed", "failed"]
        assert (yield from claim(store)) == []

    play(script)


@pytest.mark.parametrize("how", BAD_ENDS)
def test_B6_under_policy_wait_it_stays_blocked_until_the_blocker_succeeds(
    play: Play, store: Store, how: str
) -> None:
    def script() -> Steps[None]:
        bad, good = yield from put(store, new(), new())
        (job,) = yield from put(store, new(after=[bad, good], policy=Policy.WAIT))
        for _ in range(2):
            yield from end(store, bad, how)
            assert (yield from states(store, bad, job)) == [how, "blocked"]
            yield from store.retry(bad)
            assert (yield from states(store, bad, job)) == ["pending", "blocked"]
        yield from end(store, good, "completed")
        record = yield from store.job(job)
        assert (record.state, record.open_blockers) == (State.BLOCKED, 1)
        assert (yield from finish_all(store)) == [bad, job]

    play(script)


@pytest.mark.parametrize("how", BAD_ENDS)
def test_B6_under_policy_run_it_runs_and_sees_the_failure(
    play: Play, store: Store, how: str
) -> None:
    def script() -> Steps[None]:
        bad, good = yield from put(store, new(), new())
        (job,) = yield from put(store, new(after=[bad, good], policy=Policy.RUN))
        yield from end(store, bad, how)
        assert (yield from states(store, job)) == ["blocked"]
        yield from end(store, good, "completed")
        turn = yield from beat(store, 5)
        assert [held.job_id for held in turn.claimed] == [job]
        (bad_end, good_end) = turn.blockers[job]
        assert bad_end.error is not None
        assert bad_end.error.startswith(f"job {bad} is")
        assert (bad_end.chain_id, bad_end.state, bad_end.output) == (bad, how, None)
        assert (good_end.chain_id, good_end.state) == (good, "completed")
        assert good_end.output == f'"output of {good}"'

    play(script)


@pytest.mark.parametrize("how", BAD_ENDS)
def test_B6_failure_and_revival_go_through_all_levels(play: Play, store: Store, how: str) -> None:
    def script() -> Steps[None]:
        (root,) = yield from put(store, new("root"))
        levels = [root]
        for level in range(4):
            levels += yield from put(store, new(f"level {level}", after=[levels[-1]]))
        runs, waits = yield from put(
            store,
            new("runs", after=[levels[-1]], policy=Policy.RUN),
            new("waits", after=[levels[2]], policy=Policy.WAIT),
        )
        (behind,) = yield from put(store, new("behind", after=[runs, waits]))
        everything = [*levels, runs, waits, behind]
        yield from end(store, root, how)
        failed_now = [how, *["failed"] * 4]
        assert (yield from states(store, *everything)) == [
            *failed_now,
            "pending",
            "blocked",
            "blocked",
        ]
        reasons = [r.last_error for r in (yield from read.records(store, levels[1:]))]
        assert reasons == [
            f"blocker chain {blocker} ended {state}"
            for blocker, state in zip(levels[:4], failed_now[:4], strict=True)
        ]
        yield from store.retry(root)
        assert (yield from states(store, *everything)) == ["pending", *["blocked"] * 7]
        chains = yield from read.chain_records(store, everything)
        assert {(chain.state, chain.ended_at) for chain in chains} == {(ChainState.OPEN, None)}
        ran = yield from finish_all(store)
        assert ran == [*levels[:4], waits, levels[4], runs, behind]
        assert (yield from states(store, *everything)) == ["completed"] * 8
        # The history of the failure stays beside what happened since.
        history = yield from store.attempts(levels[1])
        assert [(a.number, a.outcome) for a in history] == [
            (1, Outcome.FAILED),
            (2, Outcome.COMPLETED),
        ]

    play(script)


def test_B6_of_two_failed_blockers_both_must_be_retried(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        for first, second in ((0, 1), (1, 0)):
            blockers = yield from put(store, new(), new())
            (job,) = yield from put(store, new(after=blockers))
            (behind,) = yield from put(store, new(after=[job]))
            yield from end(store, blockers[0], "failed")
            yield from end(store, blockers[1], "cancelled")
            yield from store.retry(blockers[first])
            assert (yield from states(store, job, behind)) == ["failed", "failed"]
            yield from end(store, blockers[first], "completed")
            assert (yield from states(store, job, behind)) == ["failed", "failed"]
            yield from store.retry(blockers[second])
            record = yield from store.job(job)
            assert (record.state, record.open_blockers) == (State.BLOCKED, 1)
            assert (yield from finish_all(store)) == [blockers[second], job, behind]

    play(script)


def test_B6_a_diamond_is_revived_whole(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (root,) = yield from put(store, new())
        left, right = yield from put(store, new(after=[root]), new(after=[root]))
        foot, run, mixed = yield from put(
            store,
            new(after=[left, right]),
            new(after=[left, right], policy=Policy.RUN),
            new(after=[root, left]),
        )
        yield from end(store, root, "failed")
        everything = (root, left, right, foot, run, mixed)
        assert (yield from states(store, *everything)) == [
            *["failed"] * 4,
            "pending",
            "failed",
        ]
        yield from store.retry(root)
        records = yield from read.records(store, everything)
        assert [(r.state, r.open_blockers) for r in records] == [
            ("pending", 0),
            ("blocked", 1),
            ("blocked", 1),
            ("blocked", 2),
            ("blocked", 2),
            ("blocked", 2),
        ]
        ran = yield from finish_all(store)
        assert ran == [root, left, right, foot, run, mixed]

    play(script)


def test_B6_a_run_dependent_that_has_not_started_waits_again_when_its_blocker_is_retried(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        bad, open_ = yield from put(store, new(), new(delay=HOUR))
        due, later, half = yield from put(
            store,
            new(after=[bad], policy=Policy.RUN),
            new(after=[bad], policy=Policy.RUN, delay=HOUR),
            new(after=[bad, open_], policy=Policy.RUN),
        )
        yield from end(store, bad, "failed")
        jobs = (due, later, half)
        assert (yield from states(store, *jobs)) == ["pending", "scheduled", "blocked"]
        yield from store.retry(bad)
        records = yield from read.records(store, jobs)
        assert [(r.state, r.open_blockers) for r in records] == [
            ("blocked", 1),
            ("blocked", 1),
            ("blocked", 2),
        ]
        (held,) = yield from claim(store, 10)
        assert held.job_id == bad
        yield from store.finish([completed(held, '"at last"')])
        assert (yield from states(store, *jobs)) == ["pending", "scheduled", "blocked"]
        outputs = yield from store.blockers(jobs)
        assert {outputs[job][0].output for job in jobs} == {'"at last"'}

    play(script)


def test_B6_a_run_dependent_that_has_started_goes_on_when_its_blocker_is_retried(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        bad, worse = yield from put(store, new(), new())
        (job,) = yield from put(store, new(after=[bad, worse], policy=Policy.RUN))
        yield from end(store, bad, "failed")
        yield from end(store, worse, "failed")
        (held,) = yield from claim(store)
        yield from store.retry(bad)
        assert (yield from states(store, job)) == ["running"]
        # It comes back from its run while one blocker is open again, then the other one is, too:
        # now it waits for both of them.
        yield from store.finish([failed(held, delay=0)])
        yield from store.retry(worse)
        assert (yield from states(store, job)) == ["blocked"]
        yield from end(store, bad, "completed")
        assert (yield from states(store, job)) == ["blocked"]
        yield from end(store, worse, "completed")
        assert (yield from states(store, job)) == ["pending"]

    play(script)


@pytest.mark.parametrize("how", BAD_ENDS)
def test_B6_a_job_stored_behind_a_chain_that_has_failed_follows_its_policy_the_same_way(
    play: Play, store: Store, how: str
) -> None:
    def script() -> Steps[None]:
        bad, open_ = yield from put(store, new(), new(delay=HOUR))
        yield from end(store, bad, how)
        answers = yield from store.enqueue(
            [
                new("fails", after=[open_, bad]),
                new("waits", after=[bad], policy=Policy.WAIT),
                new("runs", after=[bad], policy=Policy.RUN),
                new("later", after=[bad], policy=Policy.RUN, delay=HOUR),
                new("behind", blockers=[NewBlocker(index=0)]),
                new("sees", blockers=[NewBlocker(index=0)], policy=Policy.RUN),
            ]
        )
        assert all(answer.created for answer in answers)
        # The handles say so already.
        expected = ["failed", "blocked", "pending", "scheduled", "failed", "pending"]
        assert [answer.record.state for answer in answers] == expected
        fails, waits, runs, later, behind, sees = (answer.record.id for answer in answers)
        ids = (fails, waits, runs, later, behind, sees)
        assert (yield from states(store, *ids)) == expected
        records = yield from read.records(store, [fails, behind])
        assert [r.last_error for r in records] == [
            f"blocker chain {bad} ended {how}",
            f"blocker chain {fails} ended failed",
        ]
        assert (yield from store.chain(fails))[0].state is ChainState.FAILED
        yield from store.retry(bad)
        records = yield from read.records(store, ids)
        assert [(r.state, r.open_blockers) for r in records] == [
            ("blocked", 2),
            *[("blocked", 1)] * 5,
        ]
        yield from end(store, bad, "completed")
        assert (yield from states(store, *ids)) == [
            "blocked",
            "pending",
            "pending",
            "scheduled",
            "blocked",
            "blocked",
        ]

    play(script)


def test_B6_a_continuation_that_waits_fails_its_chain_and_is_revived_with_it(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (bad,) = yield from put(store, new("bad", delay=HOUR))
        (first,) = yield from put(store, new("first"))
        (behind,) = yield from put(store, new("behind", after=[first]))
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("second", after=[bad]))])
        yield from end(store, bad, "failed")
        chain, last = yield from store.chain(first)
        assert (chain.state, last.task, last.state) == (ChainState.FAILED, "second", "failed")
        assert (yield from states(store, first, behind)) == ["completed", "failed"]
        yield from store.retry(bad)
        assert (yield from states(store, first, last.id, behind)) == [
            "completed",
            "blocked",
            "blocked",
        ]
        assert (yield from finish_all(store)) == [bad, last.id, behind]

    play(script)


def test_B6_what_a_blocker_failed_is_retried_by_retrying_the_blocker(
    play: Play, store: Store
) -> None:
    def begin() -> Steps[None]:
        yield from put(store, new(), new(after=[1]), new(after=[1], policy=Policy.RUN))
        yield from end(store, 1, "failed")
        yield from end(store, 3, "failed")

    play(begin)
    with pytest.raises(InvalidState, match=r"job 2 waits for chain 1, which failed"):
        play(lambda: iter(store.retry(2)))
    # Under policy "run" the failure does not stand in the way.
    assert play(lambda: iter(store.retry(3))).state is State.PENDING
    assert play(lambda: states(store, 1, 2, 3)) == ["failed", "failed", "pending"]


def test_B6_only_what_the_failure_failed_is_revived(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (bad,) = yield from put(store, new())
        cancelled, failed_, done = yield from put(
            store,
            new(after=[bad]),
            new(after=[bad], policy=Policy.RUN),
            new(after=[bad], policy=Policy.RUN),
        )
        yield from end(store, cancelled, "cancelled")
        yield from end(store, bad, "failed")
        yield from end(store, failed_, "failed")
        yield from end(store, done, "completed")
        yield from store.retry(bad)
        assert (yield from states(store, cancelled, failed_, done)) == [
            "cancelled",
            "failed",
            "completed",
        ]

    play(script)


def test_B6_a_job_is_not_revived_without_one_of_its_blockers(play: Play, store: Store) -> None:
    """It would find the outputs in other positions than it declared."""

    def script() -> Steps[None]:
        gone, bad = yield from put(store, new(), new())
        (job,) = yield from put(store, new(after=[gone, bad]))
        yield from end(store, bad, "failed")
        yield from end(store, gone, "failed")
        yield from store.delete([gone])
        yield from store.retry(bad)
        assert (yield from states(store, bad, job)) == ["pending", "failed"]

    play(script)


def test_B6_a_dependent_whose_key_was_taken_stays_failed_and_the_others_are_revived(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (bad,) = yield from put(store, new())
        before, keyed, other, after = yield from put(
            store,
            new(after=[bad]),
            new("t", after=[bad], key="k"),
            new("t", after=[bad], key="other"),
            new(after=[bad]),
        )
        (behind,) = yield from put(store, new(after=[keyed]))
        yield from end(store, bad, "failed")
        ((twin, created),) = yield from store.enqueue([new("t", key="k")])
        assert created
        yield from store.retry(bad)
        assert (yield from states(store, bad, before, keyed, other, after, behind)) == [
            "pending",
            "blocked",
            "failed",
            "blocked",
            "blocked",
            "failed",
        ]
        answers = yield from store.enqueue([new("t", key="k"), new("t", key="other")])
        assert [(a.record.id, a.created) for a in answers] == [(twin.id, False), (other, False)]

    play(script)


def test_B6_a_revived_job_still_waits_for_its_time(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        (bad,) = yield from put(store, new())
        (job,) = yield from put(store, new(after=[bad], delay=HOUR))
        due = clock.time + HOUR
        yield from end(store, bad, "failed")
        clock.advance(60)
        yield from store.retry(bad)
        yield from end(store, bad, "completed")
        record = yield from store.job(job)
        assert (record.state, record.run_at) == (State.SCHEDULED, due)

    play(script)
