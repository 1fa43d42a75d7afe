"""Chains: jobs that continue one another, on every kind of connection."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tests.conformance.conftest import Play
from tests.kit import (
    HOUR,
    Clock,
    claim,
    completed,
    continued,
    failed,
    new,
    put,
    states,
)
from towline import Towline
from towline.model import ChainState, Outcome, State
from towline.operation import Steps
from towline.records import Claimed, Ending, NewJob
from towline.store import Store, read
from towline.store.listing import JobFilter
from towline.store.turn import promote
from towline.task.batch import next_job

TRACE = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
OTHER_TRACE = "00-fedcba9876543210fedcba9876543210-fedcba9876543210-01"

Step = Callable[[int], tuple[str, int] | int]  # the next task and its argument, or the output


def advance(store: Store, following: NewJob, queue: str = "default") -> Steps[int]:
    """Claim one job and continue it; return the successor's id."""
    (held,) = yield from claim(store, queues=[queue])
    finished = yield from store.finish([continued(held, following)])
    assert finished.accepted == [held.job_id]
    record = yield from store.job(held.job_id)
    assert record.continued_by is not None
    return record.continued_by


def ids_of(store: Store, chain: int) -> Steps[list[int]]:
    """The jobs of a chain, oldest first."""
    found = yield from store.jobs(JobFilter(chain=chain), 100, newest=False)
    return [record.id for record in found.records]


def test_C1_a_chain_is_named_by_its_first_job_and_a_continuation_is_a_new_job_of_it(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        first, other = yield from put(store, new("first"), new("other", priority=-1))
        second = yield from advance(store, new("second"))
        third = yield from advance(store, new("third"))
        assert len({first, other, second, third}) == 4
        records = yield from read.records(store, [first, second, third])
        assert [(r.chain_id, r.position, r.task) for r in records] == [
            (first, 0, "first"),
            (first, 1, "second"),
            (first, 2, "third"),
        ]
        assert [r.continued_by for r in records] == [second, third, None]
        assert [r.state for r in records] == ["completed", "completed", "pending"]
        assert (yield from ids_of(store, first)) == [first, second, third]
        assert (yield from ids_of(store, other)) == [other]
        chain, last = yield from store.chain(first)
        assert (chain.id, chain.task, chain.state, chain.ended_at, last.id) == (
            first,
            "first",
            ChainState.OPEN,
            None,
            third,
        )

    play(script)


def test_C1_the_continuation_is_stored_in_the_commit_that_completes_its_predecessor(
    play: Play, store: Store
) -> None:
    class Away(Exception):
        pass

    def begin() -> Steps[Claimed]:
        yield from put(store, new())
        (held,) = yield from claim(store)
        return held

    def broken() -> Steps[None]:
        finished = yield from store.finish([continued(held, new("next"))])
        assert finished.accepted == [held.job_id]
        assert len((yield from ids_of(store, held.chain_id))) == 2
        raise Away

    def look() -> Steps[tuple[list[int], list[State]]]:
        ids = yield from ids_of(store, held.chain_id)
        return ids, (yield from states(store, *ids))

    held = play(begin)
    with pytest.raises(Away):
        play(broken)
    assert play(look) == ([held.job_id], [State.RUNNING])
    play(lambda: iter(store.finish([continued(held, new("next"))])))
    (first, following), found = play(look)
    assert (first, following > first) == (held.job_id, True)
    assert found == [State.COMPLETED, State.PENDING]


def test_C2_the_chain_ends_as_its_last_job_ends(play: Play, store: Store, clock: Clock) -> None:
    def outcome(ending: Callable[[Claimed], Ending]) -> Steps[None]:
        (first,) = yield from put(store, new())
        yield from advance(store, new("last"))
        assert (yield from store.chain(first))[0].state is ChainState.OPEN
        (held,) = yield from claim(store)
        clock.advance(1)
        end = ending(held)
        yield from store.finish([end])
        chain, last = yield from store.chain(first)
        assert {str(chain.state), str(last.state)} == {str(end.outcome)}
        assert (last.id, last.last_output, last.last_error) == (held.job_id, end.output, end.error)
        assert chain.ended_at == last.last_ended_at == clock.time
        # The first job says only that it continued.
        record = yield from store.job(first)
        assert (record.state, record.outcome) == (State.COMPLETED, Outcome.CONTINUED)
        assert record.last_ended_at == clock.time - 1_000_000

    def script() -> Steps[None]:
        yield from outcome(lambda held: completed(held, '{"sum":3}'))
        yield from outcome(failed)
        yield from outcome(lambda held: Ending(held, Outcome.CANCELLED, error="not wanted"))

    play(script)


def test_C2_a_job_that_continued_has_no_output_which_is_not_an_output_of_null(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, new())
        second = yield from advance(store, new())
        (held,) = yield from claim(store)
        yield from store.finish([completed(held, "null")])
        before, last = yield from read.records(store, [first, second])
        assert (before.state, last.state) == (State.COMPLETED, State.COMPLETED)
        assert (before.last_output, before.outcome, before.continued_by) == (
            None,
            Outcome.CONTINUED,
            second,
        )
        assert (last.last_output, last.outcome, last.continued_by) == (
            "null",
            Outcome.COMPLETED,
            None,
        )

    play(script)


PROGRAMS: dict[str, tuple[dict[str, Step], str, list[str], int]] = {
    "linear": (
        {"a": lambda n: ("b", n + 1), "b": lambda n: ("c", n * 10), "c": lambda n: n + 2},
        "a",
        ["a", "b", "c"],
        12,
    ),
    "branching": (
        {
            "a": lambda n: ("odd", n) if n % 2 else ("even", n),
            "odd": lambda n: n * 3,
            "even": lambda n: ("odd", n + 1),
        },
        "a",
        ["a", "even", "odd"],
        3,
    ),
    "looping": (
        {"a": lambda n: ("a", n + 1) if n < 7 else n},
        "a",
        ["a"] * 8,
        7,
    ),
    "jumping": (
        {
            "a": lambda n: ("c", n + 1),
            "b": lambda n: ("d", n + 1),
            "c": lambda n: ("a", n + 1) if n < 4 else ("b", n),
            "d": lambda n: n,
        },
        "a",
        ["a", "c", "a", "c", "a", "c", "b", "d"],
        6,
    ),
}


def test_C3_chains_may_be_of_any_shape(play: Play, store: Store) -> None:
    def call(task: str, number: int) -> NewJob:
        return new(task, arguments=json.dumps({"n": number}))

    def script(name: str) -> Steps[None]:
        program, start, path, output = PROGRAMS[name]
        (first,) = yield from put(store, call(start, 0))
        walked: list[str] = []
        while held := (yield from claim(store)):
            (job,) = held
            assert (job.chain_id, job.position) == (first, len(walked))
            walked.append(job.task)
            step = program[job.task](json.loads(job.arguments)["n"])
            ending = (
                completed(job, json.dumps(step))
                if isinstance(step, int)
                else continued(job, call(*step))
            )
            yield from store.finish([ending])
        assert walked == path, name
        chain, last = yield from store.chain(first)
        assert (chain.state, last.last_output) == (ChainState.COMPLETED, str(output)), name

    for name in PROGRAMS:
        play(lambda name=name: script(name))  # type: ignore[misc]


def test_C4_a_continuation_inherits_queue_priority_and_trace(play: Play, store: Store) -> None:
    heir = new("b", inherit_queue=True, inherit_priority=True)

    def script() -> Steps[None]:
        yield from put(store, new("a", queue="slow", priority=7, trace=TRACE))
        for _ in range(2):
            id = yield from advance(store, heir, "slow")
            record = yield from store.job(id)
            assert (record.queue, record.priority, record.trace) == ("slow", 7, TRACE)

    play(script)


def test_C4_a_continuation_may_say_otherwise(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        (blocker,) = yield from put(store, new("blocker", queue="elsewhere"))
        (first,) = yield from put(store, new("a", queue="slow", priority=7, trace=TRACE))
        following = new(
            "b",
            after=[blocker],
            queue="quick",
            priority=-3,
            trace=OTHER_TRACE,
            label="second",
            max_attempts=2,
            timeout=5_000_000,
            delay=HOUR,
        )
        id = yield from advance(store, following, "slow")
        record = yield from store.job(id)
        assert (record.queue, record.priority, record.trace) == ("quick", -3, OTHER_TRACE)
        assert (record.label, record.max_attempts, record.timeout) == ("second", 2, 5_000_000)
        assert (record.state, record.open_blockers) == (State.BLOCKED, 1)
        # Its own blocker first, then its own time.
        yield from store.complete(blocker, '"out"')
        assert (yield from states(store, id)) == ["scheduled"]
        clock.advance(3599)
        assert (yield from promote(store)) == 0
        clock.advance(1)
        assert (yield from promote(store)) == 1
        (held,) = yield from claim(store, queues=["quick"])
        assert (held.job_id, held.chain_id) == (id, first)
        outputs = (yield from store.blockers([id]))[id]
        assert [(b.chain_id, b.output) for b in outputs] == [(blocker, '"out"')]

    play(script)


def test_C4_a_continuation_made_by_then_inherits_what_neither_call_nor_task_says(
    play: Play, store: Store, app: Towline
) -> None:
    @app.task
    def plain() -> None: ...

    @app.task(queue="own", priority=3)
    def settled() -> None: ...

    def script() -> Steps[None]:
        yield from put(store, new("a", queue="slow", priority=7, trace=TRACE))
        seen = []
        queue = "slow"
        for following in (
            plain.then(),
            plain.using(queue="said", trace=OTHER_TRACE).then(),
            plain.using(priority=0).then(),
            settled.then(),
            settled.using(priority=1).then(),
            plain.then(),
        ):
            record = yield from store.job((yield from advance(store, next_job(following), queue)))
            queue = record.queue
            seen.append((record.queue, record.priority, record.trace))
        assert seen == [
            ("slow", 7, TRACE),
            ("said", 7, OTHER_TRACE),
            ("said", 0, OTHER_TRACE),
            ("own", 3, OTHER_TRACE),
            ("own", 1, OTHER_TRACE),
            ("own", 1, OTHER_TRACE),
        ]

    play(script)


def test_C5_two_attempts_to_continue_the_same_job_create_one_successor(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, new())
        (stale,) = yield from claim(store)
        yield from store.finish([Ending(stale, Outcome.RELEASED, started=False)])
        (fresh,) = yield from claim(store)
        assert (stale.attempt, fresh.attempt) == (1, 2)
        early = yield from store.finish([continued(stale, new("stale"))])
        assert (early.accepted, early.refused) == ([], [first])
        good = yield from store.finish([continued(fresh, new("fresh"))])
        assert (good.accepted, good.refused) == ([first], [])
        late = yield from store.finish([continued(stale, new("late"))])
        again = yield from store.finish([continued(fresh, new("again"))])
        assert (late.refused, again.refused) == ([first], [first])
        jobs = yield from ids_of(store, first)
        assert [r.task for r in (yield from read.records(store, jobs))] == ["a", "fresh"]

    play(script)


def test_C5_the_same_ending_twice_in_one_turn_creates_one_successor(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        first, other = yield from put(store, new(), new("other"))
        held, beside = yield from claim(store, 2)
        finished = yield from store.finish([
            continued(held, new("once")),
            continued(held, new("twice")),
            completed(beside),
        ])  # fmt: skip
        assert (finished.accepted, finished.refused) == ([first, other], [first])
        jobs = yield from ids_of(store, first)
        assert [r.task for r in (yield from read.records(store, jobs))] == ["a", "once"]
        assert (yield from states(store, other)) == ["completed"]

    play(script)


def test_C5_a_handler_that_raises_after_asking_to_continue_leaves_no_successor(
    play: Play, store: Store
) -> None:
    def endings(held: Claimed) -> Iterator[Ending]:
        yield Ending(held, Outcome.FAILED, error="boom", next=new("next"))
        yield Ending(held, Outcome.TIMEOUT, error="too slow", next=new("next"))
        yield Ending(held, Outcome.CANCELLED, next=new("next"))
        yield Ending(held, Outcome.FAILED, error="boom", delay=HOUR, next=new("next"))

    def script() -> Steps[None]:
        ended = []
        for which in range(4):
            (first,) = yield from put(store, new())
            (held,) = yield from claim(store)
            yield from store.finish([list(endings(held))[which]])
            assert (yield from ids_of(store, first)) == [first]
            record = yield from store.job(first)
            assert record.continued_by is None
            ended.append(record.state)
        assert ended == ["failed", "failed", "cancelled", "scheduled"]

    play(script)
