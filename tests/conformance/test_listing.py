"""Lists, cursors and counts. Every kind of connection."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.conftest import Play
from tests.database import Database
from tests.kit import HOUR, Clock, claim, completed, continued, failed, new, register, rows
from tests.speed import by_speed
from towline import Towline
from towline.app.answers import AtLeast
from towline.errors import InvalidSetting, StillNeeded
from towline.model import ChainState, Outcome, Policy, State
from towline.operation import Mark, Op, Steps
from towline.records import Ending
from towline.store import Store
from towline.store.listing import NO_ERROR, ChainFilter, JobFilter, RecordPage
from towline.store.retention import KeepFor
from towline.store.turn import promote

Filter = JobFilter | ChainFilter


def listed(
    store: Store, filter: Filter, limit: int = 1000, newest: bool = True
) -> Steps[list[int]]:
    """The ids of every page, one after the other."""
    found: list[int] = []
    cursor: int | None = None
    page: RecordPage[Any]
    while True:
        if isinstance(filter, JobFilter):
            page = yield from store.jobs(filter, limit, cursor, newest)
        else:
            page = yield from store.chains(filter, limit, cursor, newest)
        assert len(page.records) <= limit
        found += [record.id for record in page.records]
        cursor = page.cursor
        if cursor is None:
            return found


def every_kind_of_job(store: Store, clock: Clock) -> Steps[None]:
    """Jobs 1 to 12 in every state, in three lanes, with keys and labels, at three times."""
    yield from register(store)
    yield from store.enqueue([
        new("a", priority=9, label="night"),  # 1 running
        new("b", after=[1], queue="mail"),  # 2 blocked
        new("a", delay=99 * HOUR, queue="mail", priority=1),  # 3 scheduled
        new("b", key="k1"),  # 4 pending
    ])  # fmt: skip
    clock.advance(2 * 3600)
    yield from store.enqueue([
        new("a", priority=8, label="night", key="k2"),  # 5 completed
        new("b", priority=8, queue="mail"),  # 6 failed
        new("a", priority=8),  # 7 cancelled
        new("a", priority=8, key="k3", label="day"),  # 8 completed, continued by 11
    ])  # fmt: skip
    clock.advance(2 * 3600)
    yield from store.enqueue([
        new("b", priority=8),  # 9 scheduled again after a time-out
        new("c", priority=8, queue="mail", label="night"),  # 10 parked, seen as pending
    ])  # fmt: skip
    held = {job.job_id: job for job in (yield from claim(store, 7, queues=["default", "mail"]))}
    assert sorted(held) == [1, 5, 6, 7, 8, 9, 10]
    yield from store.finish([
        completed(held[5]), failed(held[6]), Ending(held[7], Outcome.CANCELLED),
        continued(held[8], new("c", queue="slow", label="later")),  # 11 pending
        Ending(held[9], Outcome.TIMEOUT, delay=HOUR),
    ], "w1")  # fmt: skip
    yield from store.park([held[10]])
    yield from store.enqueue([new("a", key="k2", queue="slow")])  # 12 pending, the key anew


JOBS: dict[str, tuple[JobFilter, list[int]]] = {
    "all": (JobFilter(), list(range(1, 13))),
    "running": (JobFilter(state=State.RUNNING), [1]),
    "blocked": (JobFilter(state=State.BLOCKED), [2]),
    "scheduled": (JobFilter(state=State.SCHEDULED), [3, 9]),
    "pending": (JobFilter(state=State.PENDING), [4, 10, 11, 12]),
    "completed": (JobFilter(state=State.COMPLETED), [5, 8]),
    "failed": (JobFilter(state=State.FAILED), [6]),
    "cancelled": (JobFilter(state=State.CANCELLED), [7]),
    "outcome completed": (JobFilter(outcome=Outcome.COMPLETED), [5]),
    "outcome continued": (JobFilter(outcome=Outcome.CONTINUED), [8]),
    "outcome timeout": (JobFilter(outcome=Outcome.TIMEOUT), [9]),
    "task": (JobFilter(task="a"), [1, 3, 5, 7, 8, 12]),
    "queue": (JobFilter(queue="mail"), [2, 3, 6, 10]),
    "chain": (JobFilter(chain=8), [8, 11]),
    "key": (JobFilter(key="k2"), [5, 12]),
    "key of a chain": (JobFilter(key="k3"), [8, 11]),
    "label": (JobFilter(label="night"), [1, 5, 10]),
    "task and queue": (JobFilter(task="a", queue="mail"), [3]),
    "state and queue": (JobFilter(state=State.PENDING, queue="slow"), [11, 12]),
    "state and task": (JobFilter(state=State.SCHEDULED, task="b"), [9]),
    "failed and task": (JobFilter(state=State.FAILED, task="a"), []),
    "label and task": (JobFilter(label="night", task="a"), [1, 5]),
    "key and state": (JobFilter(key="k2", state=State.PENDING), [12]),
    "open states": (JobFilter(state=frozenset({State.RUNNING, State.BLOCKED})), [1, 2]),
    "bad states": (JobFilter(state=frozenset({State.FAILED, State.CANCELLED})), [6, 7]),
    "open and bad": (JobFilter(state=frozenset({State.SCHEDULED, State.FAILED})), [3, 6, 9]),
    "ended": (JobFilter(state=frozenset({State.COMPLETED, State.FAILED})), [5, 6, 8]),
    "open and completed": (JobFilter(state=frozenset({State.COMPLETED, State.RUNNING})), [1, 5, 8]),
    "states and queue": (
        JobFilter(state=frozenset({State.BLOCKED, State.FAILED}), queue="mail"),
        [2, 6],
    ),
    "chain and state": (JobFilter(chain=8, state=State.COMPLETED), [8]),
    "state and outcome": (JobFilter(state=State.SCHEDULED, outcome=Outcome.TIMEOUT), [9]),
    "completed and queue": (JobFilter(state=State.COMPLETED, queue="default"), [5, 8]),
    "unknown": (JobFilter(task="nobody"), []),
    "roots": (JobFilter(roots=True), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]),
    "roots and queue": (JobFilter(roots=True, queue="slow"), [12]),
    "roots and state": (JobFilter(roots=True, state=State.PENDING), [4, 10, 12]),
    "roots of a chain": (JobFilter(roots=True, chain=8), [8]),
    "task of the chain": (JobFilter(chain_task="a"), [1, 3, 5, 7, 8, 11, 12]),
    "not of the job": (JobFilter(chain_task="c"), [10]),
    "task of the chain, roots": (JobFilter(chain_task="a", roots=True), [1, 3, 5, 7, 8, 12]),
    "tasks of chain and job": (JobFilter(chain_task="a", task="c"), [11]),
    "task of the chain and state": (JobFilter(chain_task="a", state=State.PENDING), [11, 12]),
    "no such chains": (JobFilter(chain_task="nobody"), []),
    "worker": (JobFilter(worker="w1"), [1, 5, 6, 7, 8, 9]),
    "worker and state": (JobFilter(worker="w1", state=State.RUNNING), [1]),
    "worker and task": (JobFilter(worker="w1", task="b"), [6, 9]),
    "worker and completed": (JobFilter(worker="w1", state=State.COMPLETED), [5, 8]),
    "no such worker": (JobFilter(worker="nobody"), []),
}
CHAINS: dict[str, tuple[ChainFilter, list[int]]] = {
    "all": (ChainFilter(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]),
    "open": (ChainFilter(state=ChainState.OPEN), [1, 2, 3, 4, 8, 9, 10, 12]),
    "completed": (ChainFilter(state=ChainState.COMPLETED), [5]),
    "failed": (ChainFilter(state=ChainState.FAILED), [6]),
    "cancelled": (ChainFilter(state=ChainState.CANCELLED), [7]),
    "task of the first job": (ChainFilter(task="a"), [1, 3, 5, 7, 8, 12]),
    "not of a later one": (ChainFilter(task="c"), [10]),
    "key": (ChainFilter(key="k3"), [8]),
    "label of the first job": (ChainFilter(label="day"), [8]),
    "not of a later job": (ChainFilter(label="later"), []),
    "state and task": (ChainFilter(state=ChainState.OPEN, task="b"), [2, 4, 9]),
    "key and state": (ChainFilter(key="k2", state=ChainState.OPEN), [12]),
}


def test_R1_each_filter_alone_and_together_finds_the_same_in_both_directions_and_any_pages(
    play: Play, store: Store, clock: Clock
) -> None:
    play(lambda: every_kind_of_job(store, clock))

    def look() -> Steps[None]:
        for table in (JOBS, CHAINS):
            for name, (filter, expected) in table.items():
                for limit in (1000, 1, 2):
                    found = yield from listed(store, filter, limit, newest=False)
                    assert found == expected, name
                    found = yield from listed(store, filter, limit)
                    assert found == expected[::-1], name

    play(look)


def test_R1_times_are_from_inclusive_to_exclusive_and_go_with_other_filters(
    play: Play, store: Store, clock: Clock
) -> None:
    began = clock()
    play(lambda: every_kind_of_job(store, clock))
    second, third = began + 2 * HOUR, began + 4 * HOUR
    spans: list[tuple[int | None, int | None, list[int]]] = [
        (None, None, list(range(1, 13))),
        (second, None, list(range(5, 13))),
        (second + 1, None, [9, 10, 11, 12]),
        (None, second, [1, 2, 3, 4]),
        (None, second + 1, [1, 2, 3, 4, 5, 6, 7, 8]),
        (second, third, [5, 6, 7, 8]),
        (third + 1, None, []),
        (None, began, []),
        (third, second, []),
    ]

    def look() -> Steps[None]:
        for since, until, expected in spans:
            for limit in (1000, 3):
                span = JobFilter(since=since, until=until)
                assert (yield from listed(store, span, limit)) == expected[::-1], (since, until)
                assert (yield from listed(store, span, limit, newest=False)) == expected
                later = replace(span, task="a")
                assert (yield from listed(store, later, limit, newest=False)) == [
                    id for id in expected if id in (1, 3, 5, 7, 8, 12)
                ]
                chains = ChainFilter(since=since, until=until)
                assert (yield from listed(store, chains, limit)) == [
                    id for id in expected[::-1] if id != 11
                ]

    play(look)


def test_R1_times_of_the_end_find_what_has_ended_then_in_every_state_and_by_what_it_raised(
    play: Play, store: Store, clock: Clock
) -> None:
    """Jobs 1 to 5 are created at once and end an hour apart; 4 ends twice, 6 never."""
    began = clock()

    def fill() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new("ab"[i % 2], queue="qr"[i > 2]) for i in range(6)])
        held = {job.job_id: job for job in (yield from claim(store, 5, queues=["q", "r"]))}
        raised = replace(failed(held[2]), error_type="builtins.KeyError")
        for ending in (
            completed(held[1]),
            raised,
            Ending(held[3], Outcome.CANCELLED),
            failed(held[4]),
            replace(failed(held[5]), error_type="builtins.KeyError", delay=HOUR),  # not its end
        ):
            clock.advance(3600)
            yield from store.finish([ending], "w1")
        clock.advance(3600)
        yield from store.retry(4)
        (again,) = yield from claim(store, 1, queues=["r"])
        assert again.job_id == 4
        yield from store.finish([failed(again)], "w1")

    play(fill)
    first, last, all = began + HOUR, began + 6 * HOUR, {1, 2, 3, 4}
    spans: list[tuple[int | None, int | None, set[int]]] = [
        (first, None, all),
        (first + 1, None, {2, 3, 4}),
        (None, first, set()),
        (None, first + 1, {1}),
        (first + HOUR, last, {2, 3}),
        (last, None, {4}),
        (last + 1, None, set()),
        (last, first, set()),
    ]
    others: dict[str, tuple[JobFilter, set[int]]] = {
        "any": (JobFilter(), all),
        "failed": (JobFilter(state=State.FAILED), {2, 4}),
        "completed": (JobFilter(state=State.COMPLETED), {1}),
        "open": (JobFilter(state=State.SCHEDULED), set()),
        "outcome": (JobFilter(outcome=Outcome.CANCELLED), {3}),
        "task": (JobFilter(task="b"), {2, 4}),
        "queue": (JobFilter(queue="q"), {1, 2, 3}),
        "task of the chain": (JobFilter(chain_task="a"), {1, 3}),
        "roots": (JobFilter(roots=True), all),
        "worker": (JobFilter(worker="w1"), all),
        "ids": (JobFilter(ids=frozenset({2, 5, 6})), {2}),
        "error": (JobFilter(error_type="builtins.KeyError"), {2}),
        "no error": (JobFilter(error_type=NO_ERROR, state=State.FAILED), {4}),
        "created": (JobFilter(since=began, until=began + 1), all),
        "created later": (JobFilter(since=began + 1), set()),
    }

    def look() -> Steps[None]:
        for since, until, ended in spans:
            for name, (other, fitting) in others.items():
                filter = replace(other, ended_since=since, ended_until=until)
                for limit in (1000, 1):
                    found = yield from listed(store, filter, limit)
                    assert found == sorted(ended & fitting, reverse=True), (name, since, until)
                    found = yield from listed(store, filter, limit, newest=False)
                    assert found == sorted(ended & fitting), (name, since, until)
        raised = JobFilter(error_type="builtins.KeyError")
        assert (yield from listed(store, raised)) == [5, 2]  # 5 will be tried again

    play(look)


def test_R1_what_was_never_tried_has_not_raised_nothing(play: Play, store: Store) -> None:
    """Whatever else is asked for, which finds no more. 1 went well, 2 did not, 3 runs, 4 waits."""

    def look() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new("a", label="x") for _ in range(4)])
        held = yield from claim(store, 3)
        raised = replace(failed(held[1]), error_type="builtins.KeyError")
        yield from store.finish([completed(held[0]), raised], "w1")
        for other in (
            JobFilter(), JobFilter(task="a"), JobFilter(queue="default"), JobFilter(label="x"),
            JobFilter(chain_task="a"), JobFilter(ids=frozenset({1, 2, 3, 4})),
        ):  # fmt: skip
            assert (yield from listed(store, replace(other, error_type=NO_ERROR))) == [1], other
        pending = JobFilter(error_type=NO_ERROR, state=State.PENDING)
        assert (yield from listed(store, pending)) == []

    play(look)


def test_R2_a_list_by_the_end_looks_at_ends_only_and_at_no_more_than_a_page_may(
    play: Play, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.store.listing.EXAMINED", 30)

    def fill() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new("a") for _ in range(100)])
        held = yield from claim(store, 100)
        yield from store.finish([completed(job) for job in held if job.job_id > 1])
        clock.advance(3600)
        yield from store.finish([completed(job) for job in held if job.job_id == 1])

    play(fill)
    filter = JobFilter(ended_since=clock())

    def look() -> Steps[None]:
        page = yield from store.jobs(filter, 50)
        assert (page.records, page.cursor) == ([], 71)
        assert (yield from listed(store, filter)) == [1]  # stored first, ended last

    play(look)


def grow(store: Store, number: int) -> Steps[None]:
    jobs = [new("a", queue=f"q{i % 3}", priority=i % 2) for i in range(number)]
    yield from store.enqueue(jobs)


def test_R1_cursors_lose_and_repeat_nothing_when_rows_are_added_between_pages(
    play: Play, store: Store
) -> None:
    """All rows share one time stamp. What came later is seen oldest first, not newest first."""

    def page(
        filter: Filter, cursor: int | None, newest: bool
    ) -> Steps[tuple[list[int], int | None]]:
        read: Callable[..., Any] = store.jobs if isinstance(filter, JobFilter) else store.chains
        found = yield from read(filter, 4, cursor, newest)
        return [record.id for record in found.records], found.cursor

    def walk(filter: Filter, newest: bool) -> Steps[None]:
        before = yield from listed(store, filter, newest=False)
        seen, cursor = yield from page(filter, None, newest)
        while cursor is not None and (newest or seen[-1] <= before[-1]):
            yield from grow(store, 2)
            ids, cursor = yield from page(filter, cursor, newest)
            seen += ids
        assert seen == sorted(set(seen), reverse=newest)
        assert [id for id in sorted(seen) if id <= before[-1]] == before
        assert (max(seen) > before[-1]) is not newest

    def script() -> Steps[None]:
        yield from grow(store, 9)
        for filter in (
            JobFilter(), JobFilter(state=State.PENDING), JobFilter(task="a"), ChainFilter(),
        ):  # fmt: skip
            yield from walk(filter, newest=True)
            yield from walk(filter, newest=False)

    play(script)


def test_R1_a_page_that_examined_enough_comes_back_short_with_a_cursor(
    play: Play, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.store.listing.EXAMINED", 20)

    def pages(filter: JobFilter) -> Steps[list[list[int]]]:
        found: list[list[int]] = []
        cursor: int | None = None
        while True:
            page = yield from store.jobs(filter, 10, cursor)
            found.append([job.id for job in page.records])
            cursor = page.cursor
            if cursor is None:
                return found

    def script() -> Steps[None]:
        yield from store.enqueue([new("b" if id == 55 else "a", label="l") for id in range(1, 101)])
        yield from store.cancel(7)
        # A filter with an index of its own finds at once; beside another it is tested row by row.
        assert (yield from pages(JobFilter(state=State.CANCELLED, task="a"))) == [[7]]
        hidden = JobFilter(task="b", state=State.PENDING)  # 99 pending jobs, 20 looked at per page
        assert (yield from pages(hidden)) == [[], [], [55], [], []]
        hidden = JobFilter(label="l", task="b")  # 100, so that the end shows on a sixth page
        assert (yield from pages(hidden)) == [[], [], [55], [], [], []]
        # More open chains than may be looked at: the walk goes through all chains instead.
        assert len((yield from listed(store, ChainFilter(state=ChainState.OPEN), 7))) == 99

    play(script)


def test_R1_the_public_pages_say_the_same_in_words(app: Towline, clock: Clock) -> None:
    app.runner.run(app.runner.store.enqueue([new("a", label="l"), new("b"), new("a"), new("a")]))
    app.cancel(3)
    page = app.jobs(task="a", limit=2)
    assert ([job.id for job in page], len(page), page[0].id) == ([4, 3], 2, 4)
    assert page.cursor is not None
    rest = app.jobs(task="a", limit=2, cursor=page.cursor)
    assert ([job.id for job in rest], rest.cursor) == ([1], None)
    assert [job.id for job in app.jobs(state="cancelled", outcome="cancelled")] == [3]
    assert 3 in [job.id for job in app.jobs(state=["cancelled", State.PENDING])]
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=clock())
    assert len(app.jobs(since=now, until=now + timedelta(seconds=1))) == 4
    assert [chain.id for chain in app.chains(state="open", label="l")] == [1]
    wrong: list[dict[str, Any]] = [
        {"limit": 0}, {"limit": 10_001}, {"cursor": "x"}, {"state": "odd"}, {"outcome": "odd"},
        {"state": []}, {"state": ["failed", "odd"]}, {"state": 1},
    ]  # fmt: skip
    for where in wrong:
        with pytest.raises(InvalidSetting):
            app.jobs(**where)
    with pytest.raises(InvalidSetting, match="time zone"):
        app.jobs(since=datetime(2026, 1, 1))  # noqa: DTZ001


def recount(database: Database) -> dict[str, dict[State, int]]:
    """Jobs by queue and state, from the rows themselves."""
    found: dict[str, dict[State, int]] = {}
    for queue, state, number in rows(
        database, "SELECT queue, state, count(*) FROM towline_jobs GROUP BY 1, 2"
    ):
        found.setdefault(queue, {})[State(state)] = number
    return found


def told(store: Store) -> Steps[dict[str, dict[State, int]]]:
    """The counts, without zeros; every number must be exact."""
    found = yield from store.counts()
    assert not any(more for by_state in found.values() for _, more in by_state.values())
    return {
        queue: counts
        for queue, by_state in found.items()
        if (counts := {state: number for state, (number, _) in by_state.items() if number})
    }


def random_act(store: Store, chance: random.Random, clock: Clock) -> Steps[str]:
    """One thing that may happen to some jobs."""
    stored = (yield from store.jobs(JobFilter(), 1000)).records
    act = chance.choice(
        [
            "enqueue",
            "enqueue",
            "work",
            "work",
            "work",
            "cancel",
            "retry",
            "delete",
            "prune",
            "outside",
        ]
    )
    some = chance.choice(stored) if stored else None
    if act == "enqueue" or some is None:
        chains = sorted({job.chain_id for job in stored})
        after = chance.sample(chains, min(len(chains), chance.randrange(3)))
        policy = chance.choice(list(Policy))
        jobs = [new(chance.choice("ab"), queue=chance.choice("xy"), max_attempts=2)]
        jobs.append(new("d", queue="x", after=after, policy=policy))
        yield from store.enqueue(jobs)
        return "enqueue"
    if act == "work":
        yield from promote(store)
        for held in (yield from claim(store, 3, queues=["x", "y"])):
            ending = chance.choice([
                completed(held), failed(held), failed(held, delay=0),
                continued(held, new("c", queue="y")), Ending(held, Outcome.CANCELLED),
                Ending(held, Outcome.SNOOZED, delay=0), Ending(held, Outcome.LOST, delay=0),
                Ending(held, Outcome.RELEASED),
            ])  # fmt: skip
            yield from store.finish([ending], "w", slot=chance.randrange(3))
    elif act == "cancel" and some.state.open:
        yield from store.cancel(some.id)
    elif act == "outside" and some.state.open:
        match chance.randrange(3):
            case 0:
                yield from store.complete(some.id, "1")
            case 1:
                yield from store.complete(some.id, None, new("c", queue="x"))
            case _:
                yield from store.fail(some.id, "no")
    elif act == "retry":
        yield from store.bulk("retry", JobFilter(), False, None, 5)
    elif act == "delete":
        try:
            yield from store.delete([some.chain_id], cascade=chance.random() < 0.5)
        except StillNeeded:
            pass
    else:
        clock.advance(chance.choice([1, 30, 3600]))
        yield from store.prune(KeepFor(HOUR, 2 * HOUR, 2 * HOUR), limit=4)
    return act


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(by_speed(3, 8)))
def test_R2_counts_equal_a_recount_after_a_random_history(
    app: Towline, store: Store, clock: Clock, database: Database, seed: int
) -> None:
    chance = random.Random(seed)
    for _ in range(60):
        act = app.runner.run(Op("act", lambda: random_act(store, chance, clock)))
        counted = app.runner.run(Op("told", lambda: told(store)))
        assert counted == recount(database), act


def test_R2_counts_are_the_same_on_every_kind_after_every_kind_of_end(
    play: Play, store: Store, clock: Clock, database: Database
) -> None:
    play(lambda: every_kind_of_job(store, clock))

    def go_on() -> Steps[None]:
        yield from store.retry(6)
        yield from store.delete([5])
        yield from store.cancel(1)

    assert play(lambda: told(store)) == recount(database)
    play(go_on)
    assert play(lambda: told(store)) == recount(database) == {
        "default": {
            State.PENDING: 1, State.SCHEDULED: 1, State.COMPLETED: 1, State.CANCELLED: 2,
        },
        "mail": {State.PENDING: 2, State.SCHEDULED: 1, State.FAILED: 1},
        "slow": {State.PENDING: 2},
    }  # fmt: skip


def test_R2_counts_by_task_are_the_same_on_every_kind(
    play: Play, store: Store, app: Towline, clock: Clock, database: Database
) -> None:
    play(lambda: every_kind_of_job(store, clock))
    found: dict[str, dict[State, int]] = {}
    by_task = "SELECT task, state, count(*) FROM towline_jobs GROUP BY task, state"
    for task, state, number in rows(database, by_task):
        found.setdefault(task, {})[State(state)] = number
    counted = play(lambda: iter(store.counts(by_task=True)))
    assert {
        task: {state: number for state, (number, _) in states.items()}
        for task, states in counted.items()
    } == found
    assert app.counts(by="task") == found
    assert found["a"] == {
        State.RUNNING: 1, State.SCHEDULED: 1, State.COMPLETED: 2, State.CANCELLED: 1,
        State.PENDING: 1,
    }  # fmt: skip


def test_R2_what_was_claimed_ahead_is_pending_in_the_counts_by_task(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new("a"), new("a"), new("b")])
        yield from store.claim(1, ["default"], 1, ahead=2)
        assert (yield from store.counts(by_task=True)) == {
            "a": {State.RUNNING: (1, False), State.PENDING: (1, False)},
            "b": {State.PENDING: (1, False)},
        }

    play(script)


def test_R2_counts_by_task_beyond_the_limit_are_at_least_that_many(
    play: Play, store: Store, app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.store.counts.COUNTED", 3)
    play(lambda: iter(store.enqueue([new("many") for _ in range(4)])))
    assert isinstance(app.counts(by="task")["many"][State.PENDING], AtLeast)


def test_counts_by_something_else_are_refused(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match='by= is "queue" or "task", not \'label\''):
        app.counts(by="label")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_R1_jobs_of_very_many_chains_of_one_task_are_walked_by_id(
    play: Play, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(lambda: every_kind_of_job(store, clock))
    for limit in ("FEW_CHAINS", "EXAMINED"):
        with monkeypatch.context() as patch:
            patch.setattr(f"towline.store.listing.{limit}", 1)
            found = play(lambda: listed(store, JobFilter(chain_task="a"), 3))
        assert found == [12, 11, 8, 7, 5, 3, 1]


def test_roots_is_true_or_false(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match="roots= is True or False, not 'yes'"):
        app.jobs(roots="yes")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    assert list(app.jobs(roots=False)) == []


def test_the_view_for_people_says_when_a_job_has_changed(
    play: Play, store: Store, clock: Clock, database: Database
) -> None:
    def changed() -> list[Any]:
        return [one for (one,) in rows(database, "SELECT changed_at FROM towline_jobs ORDER BY id")]

    def script() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([new(), new(delay=HOUR)])

    play(script)
    at_first = changed()
    clock.advance(60)
    held = play(lambda: iter(store.claim(1, ["default"], 1)))
    claimed = changed()
    assert claimed[0] > at_first[0]
    assert claimed[1] == at_first[1]
    clock.advance(60)
    play(lambda: iter(store.finish([failed(held[0])])))
    ended = changed()
    assert ended[0] > claimed[0]
    play(lambda: iter(store.run_now(2)))
    assert changed()[0] == ended[0]
    assert changed()[1] > ended[1]


def test_R2_open_jobs_beyond_the_limit_are_at_least_that_many(
    play: Play, store: Store, app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("towline.store.counts.COUNTED", 3)

    def fill() -> Steps[None]:
        yield from store.enqueue([new(queue="three") for _ in range(3)])
        yield from store.enqueue([new(queue="four", priority=i) for i in range(4)])
        yield from store.enqueue([new(queue="done") for _ in range(5)])
        held = yield from claim(store, 9, queues=["done"])
        yield from store.finish([completed(job) for job in held])
        counts = yield from store.counts()
        assert counts == {
            "three": {State.PENDING: (3, False)},
            "four": {State.PENDING: (3, True)},
            "done": {State.COMPLETED: (5, False)},
        }

    play(fill)
    counts = app.counts()
    assert isinstance(counts["four"][State.PENDING], AtLeast)
    assert (counts["four"][State.PENDING], str(counts["four"][State.PENDING])) == (3, "3+")
    assert not isinstance(counts["three"][State.PENDING], AtLeast)
    assert counts["done"] == {State.COMPLETED: 5}


def test_R7_a_job_carries_its_label_and_its_task_its_docstring(
    app: Towline, database: Database
) -> None:
    @app.task
    def tidy(room: int) -> int:
        """Tidy a room.

        Twice a week.
        """
        return room

    @app.task
    def plain() -> None: ...

    job = tidy.using(label="Ann's room: 1 % <é>").enqueue(1)
    unlabelled = tidy.enqueue(2)
    assert (job.label, app.job(job.id).label) == ("Ann's room: 1 % <é>",) * 2
    assert (unlabelled.label, app.chain(job.chain_id).label) == (None, job.label)
    assert rows(database, "SELECT label FROM towline_jobs ORDER BY id") == [
        (job.label,), (None,),
    ]  # fmt: skip
    assert inspect.getdoc(app.registry[job.task]) == "Tidy a room.\n\nTwice a week."
    assert plain.__doc__ is None


def test_R1_very_many_queues_cost_a_bounded_number_of_statements(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Findings A19 and P20: not one statement for each lane."""
    monkeypatch.setattr("towline.store.listing.STRIPS", 5)
    app.runner.run(
        app.runner.store.enqueue([new(queue=f"q{n}", priority=n % 3) for n in range(40)])
    )
    asked: list[str] = []

    def told(op: Op[Any]) -> Op[Any]:
        def steps() -> Steps[Any]:
            running = iter(op)
            try:
                statement = next(running)
                while True:
                    assert not isinstance(statement, Mark)
                    asked.append(statement.query.name)
                    statement = running.send((yield statement))
            except StopIteration as stop:
                return stop.value

        return Op(op.name, steps, reads=True)

    counts = app.runner.run(told(app.runner.store.counts()))
    assert counts == {f"q{n}": {State.PENDING: (1, False)} for n in range(40)}
    page = app.runner.run(told(app.runner.store.jobs(JobFilter(state=State.PENDING), 10)))
    assert [record.id for record in page.records] == list(range(40, 30, -1))
    page = app.runner.run(told(app.runner.store.jobs(JobFilter(task="a"), 10, page.cursor)))
    assert [record.id for record in page.records] == list(range(30, 20, -1))
    assert len(asked) < 20, asked
