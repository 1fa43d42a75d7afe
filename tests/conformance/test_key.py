"""Keys: one chain for a key, on every kind of connection."""

from __future__ import annotations

from collections.abc import Sequence
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
    new,
    put,
    states,
)
from towline import Towline
from towline.errors import DuplicateKey
from towline.model import Outcome, State
from towline.operation import Steps
from towline.records import Ending, Enqueued, NewBlocker, NewJob
from towline.store import Store, read
from towline.store.listing import JobFilter
from towline.store.turn import promote
from towline.task.batch import new_jobs


def keyed(arguments: str = "{}", *, task: str = "t", key: str = "k", **fields: Any) -> NewJob:
    return new(task, key=key, arguments=arguments, **fields)


def ask(store: Store, job: NewJob) -> Steps[tuple[int, bool]]:
    """Enqueue one job; the chain it got, and whether that is new."""
    ((record, created),) = yield from store.enqueue([job])
    return record.chain_id, created


def replacing(arguments: str, **fields: Any) -> NewJob:
    return keyed(arguments, on_conflict="replace", **fields)


# ---- D1, D2: who has the key


def test_D1_there_is_one_open_chain_per_task_and_key(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        ids = yield from put(store, keyed('{"n":1}'), keyed(key="other"), keyed(task="u"), new("t"))
        first, other_key, other_task, no_key = ids
        assert len(set(ids)) == 4
        for n in range(3):
            assert (yield from ask(store, keyed(f'{{"n":{n}}}'))) == (first, False)
        assert (yield from ask(store, keyed(key="other"))) == (other_key, False)
        assert (yield from ask(store, keyed(task="u"))) == (other_task, False)
        another, created = yield from ask(store, new("t"))
        assert (another > no_key, created) == (True, True)
        record = yield from store.job(first)
        assert (record.key, record.arguments) == ("k", '{"n":1}')
        found = yield from store.jobs(JobFilter(key="k"), 10)
        assert [job.id for job in found.records] == [other_task, first]

    play(script)


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_D2_scope_open_matches_until_the_chain_ends(play: Play, store: Store, how: str) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, keyed(delay=HOUR))
        for move in ("scheduled", "pending", "running"):
            if move == "pending":
                yield from store.run_now(first)
            elif move == "running":
                yield from claim(store)
            assert (yield from states(store, first)) == [move]
            assert (yield from ask(store, keyed())) == (first, False)
        yield from end(store, first, how)
        second, created = yield from ask(store, keyed())
        assert created
        assert second != first
        assert (yield from ask(store, keyed())) == (second, False)

    play(script)


def test_D2_scope_open_matches_until_the_last_job_ends_also_after_it_has_continued(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (chain,) = yield from put(store, keyed())
        last = chain
        for step in range(3):
            (held,) = yield from claim(store)
            # The continuation is of another task; the key stays that of the first one's.
            yield from store.finish([continued(held, new(f"step {step}"))])
            ((record, created),) = yield from store.enqueue([keyed()])
            assert (record.chain_id, created) == (chain, False)
            # What comes back is the chain's last job, as it stands.
            assert (record.position, record.state) == (step + 1, "pending")
            assert record.id > last
            last = record.id
        other, created = yield from ask(store, keyed(task="step 2"))
        assert created
        held, _ = yield from claim(store, 2)
        assert held.job_id == last
        yield from store.finish([completed(held)])
        second, created = yield from ask(store, keyed())
        assert created
        assert second not in (chain, other)

    play(script)


def test_D2_a_retry_on_its_way_keeps_the_key(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        (chain,) = yield from put(store, keyed())
        (held,) = yield from claim(store)
        yield from store.finish([failed(held, delay=HOUR)])
        assert (yield from ask(store, keyed())) == (chain, False)
        clock.advance(3600)
        yield from promote(store)
        (held,) = yield from claim(store)
        yield from store.finish([Ending(held, Outcome.SNOOZED, delay=HOUR)])
        assert (yield from ask(store, keyed())) == (chain, False)

    play(script)


@pytest.mark.parametrize("how", ["completed", "failed", "cancelled"])
def test_D2_scope_any_matches_for_ever(play: Play, store: Store, clock: Clock, how: str) -> None:
    def script() -> Steps[None]:
        (chain,) = yield from put(store, keyed(scope="any"))
        assert (yield from ask(store, keyed(scope="any"))) == (chain, False)
        # It ends between two enqueues, first by continuing.
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("next"))])
        assert (yield from ask(store, keyed(scope="any"))) == (chain, False)
        _, tail = yield from store.chain(chain)
        yield from end(store, tail.id, how)
        clock.advance(10 * 365 * 86400)
        ((record, created),) = yield from store.enqueue([keyed(scope="any")])
        assert (record.chain_id, created, record.state) == (chain, False, how)
        # The scope is a matter of who asks: who looks at open chains only gets a new one,
        # which then has the key.
        second, created = yield from ask(store, keyed())
        assert created
        assert (yield from ask(store, keyed(scope="any"))) == (second, False)

    play(script)


def test_D2_a_window_counts_from_the_chains_creation(
    play: Play, store: Store, clock: Clock
) -> None:
    within = keyed(scope="any", window=HOUR)

    def script() -> Steps[None]:
        (first,) = yield from put(store, within)
        clock.advance(1800)
        yield from store.complete(first, "null")
        clock.advance(1800 - 0.000001)
        assert (yield from ask(store, within)) == (first, False)
        # Asking does not lengthen it.
        clock.advance(0.000001)
        second, created = yield from ask(store, within)
        assert created
        # An open chain always matches, however old.
        clock.advance(100 * 3600)
        assert (yield from ask(store, within)) == (second, False)
        assert (yield from ask(store, keyed(scope="any", window=SECOND))) == (second, False)
        yield from store.complete(second, "null")
        # The window is the asker's: the same chain is inside one and outside another.
        wide = keyed(scope="any", window=101 * HOUR)
        assert (yield from ask(store, wide)) == (second, False)
        third, created = yield from ask(store, within)
        assert created
        assert len({first, second, third}) == 3

    play(script)


def test_D2_a_key_is_free_again_when_its_chain_is_deleted(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, keyed(scope="any"))
        yield from store.complete(first, "null")
        yield from store.delete([first])
        second, created = yield from ask(store, keyed(scope="any"))
        assert created
        assert second != first

    play(script)


def test_D2_an_older_chain_that_is_deleted_does_not_take_the_key_with_it(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, keyed())
        yield from store.complete(first, "null")
        (second,) = yield from put(store, keyed())
        yield from store.delete([first])
        assert (yield from ask(store, keyed())) == (second, False)

    play(script)


# ---- D3: on conflict


def test_D3_raise_names_the_chain_and_stores_nothing(play: Play, store: Store) -> None:
    play(lambda: put(store, keyed()))
    with pytest.raises(DuplicateKey, match="chain 1 already has key 'k' of task t") as caught:
        play(lambda: put(store, new("bystander"), keyed(on_conflict="raise")))
    assert caught.value.chain_id == 1

    def look() -> Steps[list[int]]:
        return [job.id for job in (yield from store.jobs(JobFilter(), 10)).records]

    assert play(look) == [1]

    def later() -> Steps[tuple[int, bool]]:
        yield from store.complete(1, "null")
        return (yield from ask(store, keyed(on_conflict="raise")))

    second, created = play(later)
    assert (second > 1, created) == (True, True)
    with pytest.raises(DuplicateKey):
        play(lambda: ask(store, keyed(scope="any", on_conflict="raise")))


def test_D3_replace_gives_a_job_that_has_not_started_new_arguments_and_a_new_time(
    play: Play, store: Store, clock: Clock
) -> None:
    def replaced(job: NewJob) -> Steps[tuple[str, str, int]]:
        ((record, created),) = yield from store.enqueue([job])
        assert (record.id, created) == (chain, False)
        assert record == (yield from store.job(chain))
        return str(record.state), record.arguments, (record.run_at or 0) - clock.time

    chain = 1

    def script() -> Steps[None]:
        first = replacing('{"n":0}', delay=HOUR, label="first", priority=3)
        assert (yield from ask(store, first)) == (chain, True)
        # Debounce: each call pushes it further.
        clock.advance(1800)
        pushed = yield from replaced(replacing('{"n":1}', delay=HOUR, label="x", priority=9))
        assert pushed == ("scheduled", '{"n":1}', HOUR)
        # Only arguments and time are replaced.
        record = yield from store.job(chain)
        assert (record.label, record.priority) == ("first", 3)
        # To now, to a time that has passed, and back to later.
        assert (yield from replaced(replacing('{"n":2}'))) == ("pending", '{"n":2}', 0)
        past = replacing('{"n":3}', at=clock.time - HOUR)
        assert (yield from replaced(past)) == ("pending", '{"n":3}', 0)
        assert (yield from replaced(replacing('{"n":4}', delay=SECOND))) == (
            "scheduled",
            '{"n":4}',
            SECOND,
        )
        assert (yield from claim(store)) == []
        clock.advance(1)
        assert (yield from promote(store)) == 1
        (held,) = yield from claim(store)
        assert held.arguments == '{"n":4}'

    play(script)


def test_D3_replace_works_on_a_blocked_job_and_leaves_it_blocked(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        (a, b) = yield from put(store, new(), new())
        (job,) = yield from put(store, keyed('{"n":0}', after=[a, b]))
        yield from store.complete(a, "null")
        assert (yield from ask(store, replacing('{"n":1}', delay=HOUR))) == (job, False)
        record = yield from store.job(job)
        assert (record.state, record.open_blockers, record.arguments) == (
            State.BLOCKED,
            1,
            '{"n":1}',
        )
        yield from store.complete(b, "null")
        record = yield from store.job(job)
        assert (record.state, record.run_at) == (State.SCHEDULED, clock.time + HOUR)

    play(script)


def test_D3_replace_changes_nothing_after_the_first_start(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        (chain,) = yield from put(store, keyed('{"n":0}'))
        (held,) = yield from claim(store)

        def unchanged() -> Steps[None]:
            before = yield from read.records(store, [chain, chain + 1])
            answer = yield from ask(store, replacing('{"n":1}', delay=HOUR))
            assert answer == (chain, False)
            assert (yield from read.records(store, [chain, chain + 1])) == before

        yield from unchanged()  # running
        yield from store.finish([failed(held, delay=HOUR)])
        yield from unchanged()  # waiting for its second attempt
        clock.advance(3600)
        yield from promote(store)
        yield from unchanged()
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("next"))])
        yield from unchanged()  # the continuation is another job
        yield from store.complete(chain, "null")
        yield from unchanged_any(store, chain)

    play(script)


def unchanged_any(store: Store, chain: int) -> Steps[None]:
    """An ended chain in scope is given back as it is."""
    before = yield from read.records(store, [chain, chain + 1])
    answer = yield from ask(store, replacing('{"n":1}', scope="any"))
    assert answer == (chain, False)
    assert (yield from read.records(store, [chain, chain + 1])) == before


# ---- D4: duplicates inside a batch


def seen(answers: Sequence[Enqueued]) -> list[tuple[int, bool, str]]:
    return [(a.record.id, a.created, a.record.arguments) for a in answers]


def test_D4_duplicates_inside_a_batch_collapse_and_results_keep_their_positions(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (stored,) = yield from put(store, keyed("[0]", key="stored"))
        answers = yield from store.enqueue(
            [
                keyed("[1]"),
                keyed("[2]", key="stored"),
                new("t", arguments="[3]"),
                keyed("[4]"),
                keyed("[5]", key="b"),
                keyed("[6]", task="u"),
                keyed("[7]"),
                keyed("[8]", key="b", scope="any"),
            ]
        )
        one, plain, b, u = (answers[place].record.id for place in (0, 2, 4, 5))
        assert stored < one < plain < b < u
        assert seen(answers) == [
            (one, True, "[1]"),
            (stored, False, "[0]"),
            (plain, True, "[3]"),
            (one, False, "[1]"),
            (b, True, "[5]"),
            (u, True, "[6]"),
            (one, False, "[1]"),
            (b, False, "[5]"),
        ]
        assert len((yield from store.jobs(JobFilter(), 100)).records) == 5

    play(script)


def test_D4_replace_inside_a_batch_means_the_last_one_counts(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        answers = yield from store.enqueue(
            [
                keyed("[1]"),
                replacing("[2]", delay=HOUR),
                keyed("[3]"),
                replacing("[4]", delay=SECOND),
            ]
        )
        assert [(a.record.id, a.created) for a in answers] == [
            (1, True),
            (1, False),
            (1, False),
            (1, False),
        ]
        assert {(a.record.state, a.record.arguments) for a in answers} == {("scheduled", "[4]")}
        assert {a.record.run_at for a in answers} == {clock.time + SECOND}
        record = yield from store.job(1)
        assert (record.arguments, record.run_at) == ("[4]", clock.time + SECOND)

    play(script)


def test_D4_raise_inside_a_batch_refuses_all_of_it(play: Play, store: Store) -> None:
    with pytest.raises(DuplicateKey):
        play(lambda: put(store, keyed("[1]"), new(), keyed("[2]", on_conflict="raise")))
    answers = play(lambda: iter(store.enqueue([keyed("[3]")])))
    assert [(created, arguments) for _, created, arguments in seen(answers)] == [(True, "[3]")]


def test_D4_a_duplicate_can_be_waited_for(play: Play, store: Store, app: Towline) -> None:
    @app.task
    def step(name: str) -> None: ...

    one = step.using(key="k").call("one")
    twin = step.using(key="k").call("twin")

    def script() -> Steps[None]:
        answers = yield from store.enqueue(
            new_jobs([step.using(after=[twin]).call("behind twin"), one, twin])
        )
        behind, first, second = (answer.record for answer in answers)
        assert first.id == second.id
        edges = (yield from store.blockers([behind.id]))[behind.id]
        assert [edge.chain_id for edge in edges] == [first.id]
        # Also one that was stored before.
        job, _ = yield from put(store, new(blockers=[NewBlocker(index=1)]), keyed(task="step"))
        assert (yield from states(store, job)) == ["blocked"]

    play(script)


# ---- control of keyed chains


def test_D1_a_retried_chain_takes_its_key_back(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (chain,) = yield from put(store, keyed())
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("next"))])
        yield from store.fail(chain, "broken")
        yield from store.retry(chain)
        assert (yield from ask(store, keyed())) == (chain, False)

    play(script)


def test_D1_a_chain_whose_key_was_taken_cannot_be_retried(play: Play, store: Store) -> None:
    def begin() -> Steps[None]:
        yield from put(store, keyed())
        (held,) = yield from claim(store)
        yield from store.finish([failed(held)])
        assert (yield from ask(store, keyed())) == (2, True)

    play(begin)
    with pytest.raises(DuplicateKey, match="open chain 2 has taken its key 'k'") as caught:
        play(lambda: iter(store.retry(1)))
    assert caught.value.chain_id == 2
    assert play(lambda: states(store, 1, 2)) == ["failed", "pending"]

    def later() -> Steps[list[State]]:
        yield from store.complete(2, "null")
        yield from store.retry(1)
        assert (yield from ask(store, keyed())) == (1, False)
        return (yield from states(store, 1, 2))

    assert play(later) == ["pending", "completed"]
