"""Deleting, pruning, folding, and the size of the file. Every kind of connection."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.conformance.conftest import Play
from tests.database import Database
from tests.kit import (
    DAY,
    HOUR,
    SECOND,
    Clock,
    claim,
    completed,
    continued,
    failed,
    new,
    register,
    rows,
    states,
)
from towline import Towline
from towline.errors import NotFound, StillNeeded
from towline.model import Outcome, Policy, State
from towline.operation import Op, Steps
from towline.records import Ending
from towline.store import Store
from towline.store.listing import ChainFilter, JobFilter
from towline.store.retention import KeepFor, Pruned
from towline.store.turn import promote

TABLES = ("job", "live", "attempt", "chain", "key", "blocker")
AGES = KeepFor(7 * DAY, 30 * DAY, 30 * DAY)


def sizes(database: Database) -> dict[str, int]:
    """How many rows each table of jobs has."""
    found = {name: rows(database, f"SELECT count(*) FROM towline_{name}")[0][0] for name in TABLES}
    return {name: number for name, number in found.items() if number}


def left(store: Store) -> Steps[list[int]]:
    """The ids of the jobs that are still stored."""
    return [job.id for job in (yield from store.jobs(JobFilter(), 1000, newest=False)).records]


def end(store: Store, id: int, outcome: State = State.COMPLETED) -> Steps[None]:
    """End an open job from outside."""
    if outcome is State.COMPLETED:
        yield from store.complete(id, "1")
    elif outcome is State.FAILED:
        yield from store.fail(id, "bad")
    else:
        yield from store.cancel(id)


def prune_all(store: Store, ages: KeepFor = AGES, limit: int = 500) -> Steps[list[Pruned]]:
    """One round of retention, batch by batch."""
    batches: list[Pruned] = []
    while not batches or not batches[-1].done:
        batches.append((yield from store.prune(ages, limit)))
    return batches


def test_R3_a_deleted_chain_leaves_no_row_of_any_kind(
    play: Play, store: Store, clock: Clock, database: Database
) -> None:
    """Jobs in every state, attempts, edges on both sides, keys; then the ids are not used again."""

    def fill() -> Steps[None]:
        yield from store.enqueue([
            new("a", key="k", priority=9), new("b"), new("c", after=[1, 2]), new("d", after=[2]),
            new("e", delay=HOUR), new("f"),
        ])  # fmt: skip
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("g", after=[2], priority=9))])
        yield from end(store, 4)  # completed without waiting: no longer waits for chain 2
        (running,) = yield from claim(store)
        assert running.job_id == 2
        assert (yield from states(store, 1, 3, 4, 7)) == [
            State.COMPLETED, State.BLOCKED, State.COMPLETED, State.BLOCKED,
        ]  # fmt: skip

    play(fill)
    assert sizes(database) == {
        "job": 7, "live": 5, "attempt": 2, "chain": 6, "key": 1, "blocker": 4,
    }  # fmt: skip

    def delete_one() -> Steps[list[int]]:
        return (yield from store.delete([3]))

    assert play(delete_one) == [3]
    assert sizes(database) == {
        "job": 6, "live": 4, "attempt": 2, "chain": 5, "key": 1, "blocker": 2,
    }  # fmt: skip

    def delete() -> Steps[None]:
        assert (yield from store.delete([1])) == [1]
        assert (yield from store.delete([2, 5])) == [2, 5]
        assert (yield from left(store)) == [4, 6]

    play(delete)
    assert sizes(database) == {"job": 2, "live": 1, "attempt": 1, "chain": 2}

    def delete_all() -> Steps[None]:
        yield from store.delete([4, 6])
        with pytest.raises(NotFound, match="no chain 4"):
            yield from store.delete([4])
        with pytest.raises(NotFound, match="no job 6"):
            yield from store.job(6)
        ((again, created),) = yield from store.enqueue([new("a", key="k")])
        assert (again.id, created) == (8, True)
        counts = yield from store.counts()
        assert {s: n for s, (n, _) in counts["default"].items() if n} == {State.PENDING: 1}

    play(delete_all)


def test_R3_a_chain_that_open_jobs_wait_for_is_not_deleted_and_they_are_named(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([
            new(), new("b", after=[1]), new("c", after=[1]), new("d", after=[1]),
            new("w", after=[1], policy=Policy.WAIT), new(),
        ])  # fmt: skip
        yield from store.cancel(4)  # has ended: waits for nothing
        with pytest.raises(StillNeeded, match=r"chain 1 .* jobs 2, 3, 5 wait for it") as caught:
            yield from store.delete([1])
        assert caught.value.dependents == (2, 3, 5)
        assert (yield from left(store)) == [1, 2, 3, 4, 5, 6]
        # In one set with all that wait for it, it goes; a set that lacks one does not.
        with pytest.raises(StillNeeded) as caught:
            yield from store.delete([6, 1, 2, 3])
        assert caught.value.dependents == (5,)
        assert (yield from store.delete([1, 2, 3, 5])) == [1, 2, 3, 5]
        assert (yield from left(store)) == [4, 6]

    play(script)


def test_R3_cascade_takes_what_it_waited_for_also_blockers_of_continuations(
    play: Play, store: Store, database: Database
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([
            new("deep"),  # 1
            new("direct", after=[1]),  # 2
            new("root", priority=9),  # 3, continues with 7 behind 4
            new("of the continuation"),  # 4
            new("stranger"),  # 5
            new("outside", after=[1]),  # 6
        ])  # fmt: skip
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("next", after=[4, 2]))])
        assert (yield from store.job(7)).chain_id == 3
        with pytest.raises(StillNeeded) as caught:
            yield from store.delete([3], cascade=True)
        assert caught.value.dependents == (6,)
        assert (yield from left(store)) == [1, 2, 3, 4, 5, 6, 7]
        yield from store.cancel(6)
        assert (yield from store.delete([3], cascade=True)) == [1, 2, 3, 4]
        assert (yield from left(store)) == [5, 6]

    play(script)
    assert sizes(database) == {"job": 2, "live": 1, "attempt": 1, "chain": 2}


def test_R3_deleting_a_running_chain_fences_its_worker(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from store.enqueue([new()])
        (held,) = yield from claim(store, 1, worker)
        yield from store.delete([1])
        assert (yield from store.finish([continued(held, new("late"))])).refused == [1]
        assert (yield from store.renew(worker, "w1", SECOND, {(1, 1)})).lost == [(1, 1)]
        assert (yield from left(store)) == []

    play(script)


def test_R4_each_end_is_kept_for_its_own_time_and_open_jobs_for_ever(
    play: Play, store: Store, clock: Clock, database: Database
) -> None:
    def fill() -> Steps[None]:
        yield from store.enqueue([new(key="k"), new(), new(), new(), new(delay=999 * DAY)])
        yield from end(store, 1)
        yield from end(store, 2, State.FAILED)
        yield from end(store, 3, State.CANCELLED)
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("g"))])  # 6 ends much later
        clock.advance(20 * 86400)
        yield from end(store, 6)

    play(fill)

    def prune(expected: Sequence[int], ages: KeepFor = AGES) -> None:
        def script() -> Steps[None]:
            yield from prune_all(store, ages)
            assert (yield from left(store)) == expected

        play(script)

    forever = KeepFor(None, None, None)
    prune([1, 2, 3, 4, 5, 6], forever)
    prune([2, 3, 4, 5, 6], KeepFor(7 * DAY, None, None))
    assert sizes(database) == {"job": 5, "live": 1, "attempt": 4, "chain": 4}
    clock.advance(7 * 86400 - 1)
    prune([2, 3, 4, 5, 6])
    clock.advance(1)
    prune([2, 3, 5])  # a chain is as old as its last end
    clock.advance(3 * 86400)
    prune([2, 5], KeepFor(None, None, 30 * DAY))
    prune([5])
    clock.advance(500 * 86400)
    prune([5])
    assert sizes(database) == {"job": 1, "live": 1, "chain": 1}


def test_R4_what_an_open_or_a_retriable_job_needs_is_never_pruned(
    play: Play, store: Store, clock: Clock
) -> None:
    """1 is behind the open 4; 2 is what the failed 5 needs, which 6 waits for; 3 is nobody's."""

    def fill() -> Steps[None]:
        yield from store.enqueue([
            new(), new(), new(),
            new("open", after=[1], delay=99 * DAY),
            new("failed", after=[2]),
            new("waits", after=[5], policy=Policy.WAIT),
            new("done", after=[3]),
        ])  # fmt: skip
        for id in (1, 2, 3):
            yield from end(store, id)
        yield from end(store, 5, State.FAILED)
        yield from end(store, 7)
        clock.advance(99 * 86400 - 1)
        yield from prune_all(store)
        assert (yield from left(store)) == [1, 2, 4, 5, 6]

    play(fill)

    def go_on() -> Steps[None]:
        yield from promote(store)
        clock.advance(1)
        yield from promote(store)
        (held,) = yield from claim(store)
        ((blocker,),) = (yield from store.blockers([4])).values()
        assert (held.job_id, blocker.output) == (4, "1")
        yield from store.finish([completed(held)])
        yield from store.retry(5)
        (held,) = yield from claim(store)
        assert held.job_id == 5
        yield from store.finish([completed(held)])
        assert (yield from states(store, 6)) == [State.PENDING]
        yield from end(store, 6)
        yield from prune_all(store)
        assert (yield from left(store)) == [4, 5, 6]
        clock.advance(7 * 86400)
        yield from prune_all(store)
        assert (yield from left(store)) == []

    play(go_on)


def test_R4_a_failed_job_keeps_its_blocker_until_it_is_old_itself(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(), new("d", after=[1])])
        yield from end(store, 1)
        yield from end(store, 2, State.FAILED)
        clock.advance(29 * 86400)
        yield from prune_all(store)
        assert (yield from left(store)) == [1, 2]
        assert (yield from store.retry(2)).state is State.PENDING
        yield from end(store, 2, State.CANCELLED)
        clock.advance(30 * 86400)
        yield from prune_all(store)
        assert (yield from left(store)) == []

    play(script)


def test_R4_pruning_goes_on_in_bounded_batches_from_where_it_stopped(
    play: Play, store: Store, clock: Clock
) -> None:
    def fill() -> Steps[None]:
        yield from store.enqueue([new() for _ in range(10)])
        for id in (1, 3, 4, 5, 7, 10):
            yield from end(store, id)
        clock.advance(8 * 86400)
        yield from store.enqueue([new(), new()])
        yield from end(store, 12)

    play(fill)

    def batch() -> Steps[tuple[int, bool, list[int]]]:
        pruned = yield from store.prune(AGES, limit=4)
        return pruned.chains, pruned.done, (yield from left(store))

    assert [play(batch) for _ in range(4)] == [
        (4, False, [2, 6, 7, 8, 9, 10, 11, 12]),  # what stays is passed over
        (2, True, [2, 6, 8, 9, 11, 12]),  # the youngest end of the table: begin anew
        (0, True, [2, 6, 8, 9, 11, 12]),
        (0, True, [2, 6, 8, 9, 11, 12]),
    ]

    def rest() -> Steps[None]:
        yield from end(store, 2)
        assert (yield from store.prune(AGES, limit=4)).done
        clock.advance(7 * 86400)
        yield from prune_all(store, limit=4)
        assert (yield from left(store)) == [6, 8, 9, 11]

    play(rest)


def test_R4_retention_is_on_by_default_and_can_be_set_and_turned_off(
    app: Towline, clock: Clock, url: str
) -> None:
    kept = Towline(url, clock=clock, keep_completed=None, keep_failed=None, keep_cancelled=None)
    short = Towline(url, clock=clock, keep_completed=timedelta(hours=1), keep_failed=60)
    app.runner.run(app.runner.store.enqueue([new() for _ in range(6)]))
    for id in (1, 2, 3):
        app.complete(id)
    app.fail(4, "bad")
    app.cancel(5)
    clock.advance(7 * 86400 - 1)
    assert (app.prune(), kept.prune()) == (0, 0)
    clock.advance(1)
    assert app.prune() == 3
    assert [job.id for job in app.jobs()] == [6, 5, 4]
    app.complete(6)
    clock.advance(3600)
    assert (kept.prune(), short.prune()) == (0, 2)
    clock.advance(23 * 86400)
    assert (kept.prune(), app.prune()) == (0, 1)
    kept.close()
    short.close()


def test_R2_folding_old_roll_ups_changes_no_count(
    play: Play, store: Store, clock: Clock, database: Database
) -> None:
    """Minutes become hours after two days, hours days after ninety, days one row in the end."""
    expected = {State.COMPLETED: 24, State.FAILED: 8, State.CANCELLED: 8}

    def told(store: Store) -> Steps[dict[State, int]]:
        counts = yield from store.counts()
        return {state: number for state, (number, _) in counts["default"].items() if number}

    def fill() -> Steps[None]:
        for minute in range(8):
            yield from store.enqueue([new() for _ in range(5)])
            held = yield from claim(store, 5)
            endings = [completed(job) for job in held[:3]]
            endings += [failed(held[3]), Ending(held[4], Outcome.CANCELLED)]
            for slot, ending in enumerate(endings):
                yield from store.finish([ending], "w", slot)
            clock.advance({2: 7200, 5: 86400}.get(minute, 60))
        assert (yield from told(store)) == expected

    play(fill)
    written = "SELECT count(*), sum(ended), sum(removed), sum(duration) FROM towline_rollup"
    lines, *sums = rows(database, written)[0]
    assert lines == 8 * 5

    def fold() -> Steps[dict[State, int]]:
        yield from store.prune(KeepFor(999 * DAY, None, None))
        return (yield from told(store))

    after: list[int] = []
    for days in (0, 3, 0, 97, 0, 400):
        clock.advance(days * 86400)
        assert play(fold) == expected
        lines, *same = rows(database, written)[0]
        assert same == sums
        after.append(lines)
    # Three outcomes, in three hours, in two days, in all time.
    assert after == [40, 9, 9, 6, 6, 3]

    def prune() -> Steps[dict[State, int]]:
        yield from prune_all(store)
        return (yield from told(store))

    assert play(prune) == {}


@pytest.mark.heavy
def test_R5_the_tables_of_a_queue_at_a_steady_rate_stop_growing(
    app: Towline, store: Store, clock: Clock, database: Database
) -> None:
    def round_of_work() -> Steps[None]:
        jobs = [new(key=f"k{clock()}-{i}", arguments=f'"{"x" * 200}"') for i in range(30)]
        yield from store.enqueue([*jobs, new("d")])
        held = yield from claim(store, 100)
        endings = [completed(job, f'"{"y" * 100}"') for job in held[:25]]
        yield from store.finish([*endings, *(failed(job, "e" * 500) for job in held[25:])], "w")
        clock.advance(30 * 86400)  # a month, so that the roll-ups get as old as they can, too
        yield from prune_all(store, KeepFor(90 * DAY, 150 * DAY, 150 * DAY), limit=20)

    def size_after(rounds: int) -> int:
        for _ in range(rounds):
            app.runner.run(Op("round", round_of_work))
            database.tidy()
        return database.size()

    early = size_after(40)
    assert size_after(40) <= early
    assert sizes(database)["job"] < 31 * 6


def test_R6_vacuum_makes_the_room_of_pruned_jobs_free(
    app: Towline, store: Store, clock: Clock, postgres: Database
) -> None:
    """On SQLite it also gives pages back: tests/sqlite."""

    def come_and_go() -> int:
        app.runner.run(store.enqueue([new(arguments=f'"{"x" * 2000}"') for _ in range(50)]))
        assert app.cancel_many(everything=True) == 50
        clock.advance(31 * 86400)
        assert app.prune() == 50
        app.vacuum()
        return postgres.size()

    *_, early, _, late = (come_and_go() for _ in range(6))
    assert late <= early


def test_R4_a_long_chain_goes_in_bounded_parts_and_tells_its_end_until_the_last(
    play: Play, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding A14: a batch is bounded by jobs; one chain may have any number of them."""
    monkeypatch.setattr("towline.store.retention.PRUNE_JOBS", 3)

    def fill() -> Steps[None]:
        yield from store.enqueue([new(), new()])
        for _ in range(7):
            yield from store.complete(2, None, new("next"))
        yield from store.complete(2, '"the end"')
        yield from end(store, 1)
        clock.advance(8 * 86400)

    play(fill)

    def batch() -> Steps[tuple[bool, str | None, int]]:
        pruned = yield from store.prune(AGES)
        chains = yield from store.chains(ChainFilter(), 10)
        last = (yield from store.chain(2))[1] if chains.records else None
        jobs = yield from store.jobs(JobFilter(), 20)
        return pruned.done, None if last is None else last.last_output, len(jobs.records)

    assert [play(batch) for _ in range(4)] == [
        (False, '"the end"', 6),
        (False, '"the end"', 3),
        (True, None, 0),
        (True, None, 0),
    ]
