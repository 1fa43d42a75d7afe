"""Blockers: jobs that wait for chains, and what they see of them."""

from __future__ import annotations

from contextlib import closing
from datetime import date
from typing import Any

import pytest
from msgspec.structs import replace

from tests.conformance.conftest import Play
from tests.database import Database
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
from towline import Failure, Towline
from towline.errors import BlockerError
from towline.model import ChainState, Outcome, Policy, State
from towline.operation import Steps
from towline.records import Claimed, Ending, NewBlocker, NewJob
from towline.store import Store, read
from towline.store.listing import ChainFilter, JobFilter
from towline.task.batch import new_jobs
from towline.task.context import Blockers


def stored(store: Store) -> Steps[tuple[int, int, int, int]]:
    """How much there is: jobs, chains, open jobs, and edges behind the first chain."""
    jobs = yield from store.jobs(JobFilter(), 1000)
    chains = yield from store.chains(ChainFilter(), 1000)
    ((live,),) = yield store.sql.count_live()
    edges = yield from store.dependents(1)
    assert isinstance(live, int)
    return len(jobs.records), len(chains.records), live, len(edges)


# ---- B1, B2, B4: waiting and being freed


def test_B1_a_job_with_unfinished_blockers_is_blocked_and_one_without_is_pending_at_once(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        a, b, c = yield from put(store, new(), new(), new())
        yield from store.complete(a, "1")
        yield from store.complete(b, "2")
        free, half, bare = yield from put(store, new(after=[a, b]), new(after=[a, c, b]), new())
        records = yield from read.records(store, [free, half, bare])
        assert [(r.state, r.open_blockers, r.blockers) for r in records] == [
            ("pending", 0, 2),
            ("blocked", 1, 3),
            ("pending", 0, 0),
        ]
        assert [job.job_id for job in (yield from claim(store, 10))] == [c, free, bare]

    play(script)


def test_B1_outputs_arrive_in_declared_order_on_every_attempt(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        ids = yield from put(store, *[new(f"t{n}") for n in range(4)])
        declared = [ids[2], ids[0], ids[3], ids[1]]
        (job,) = yield from put(store, new(after=declared))
        for id in (ids[1], ids[3], ids[2], ids[0]):
            yield from end(store, id, "completed")
        for attempt in (1, 2, 3):
            turn = yield from beat(store, 5)
            (held,) = turn.claimed
            assert (held.job_id, held.attempt, held.blockers) == (job, attempt, 4)
            assert [(b.position, b.chain_id, b.output) for b in turn.blockers[job]] == [
                (position, id, f'"output of {id}"') for position, id in enumerate(declared)
            ]
            yield from store.finish([failed(held, delay=0)])

    play(script)


def test_B1_a_freed_job_still_waits_for_its_time(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        (blocker,) = yield from put(store, new())
        later, soon = yield from put(
            store, new(after=[blocker], delay=HOUR), new(after=[blocker], delay=HOUR // 2)
        )
        clock.advance(1800)
        yield from end(store, blocker, "completed")
        assert (yield from states(store, later, soon)) == ["scheduled", "pending"]
        assert (yield from store.peek(())).next_due == clock.time + HOUR // 2

    play(script)


def test_B2_each_end_subtracts_its_share_and_the_last_one_frees(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        blockers = yield from put(store, *[new() for _ in range(6)])
        (job,) = yield from put(store, new("waiting", after=blockers))
        held = yield from claim(store, 6)
        # One alone, three folded into one turn, then the last two in reverse.
        for some, left in (([3], 5), ([0, 5, 2], 2), ([4], 1)):
            yield from store.finish([completed(held[n]) for n in some])
            record = yield from store.job(job)
            assert (record.state, record.open_blockers) == (State.BLOCKED, left)
            assert (yield from claim(store)) == []
        # An ending that is refused frees nothing.
        assert (yield from store.finish([completed(held[3])])).accepted == []
        assert (yield from states(store, job)) == ["blocked"]
        yield from store.finish([completed(held[1])])
        record = yield from store.job(job)
        assert (record.state, record.open_blockers) == (State.PENDING, 0)
        assert [job.job_id for job in (yield from claim(store, 10))] == [job]

    play(script)


def test_B4_a_blocker_that_continues_keeps_blocking_until_its_last_job_ends(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (chain,) = yield from put(store, new("first"))
        (early,) = yield from put(store, new("early", after=[chain]))
        for step in range(3):
            (held,) = yield from claim(store, 10)
            assert held.chain_id == chain
            yield from store.finish([continued(held, new(f"step {step}"))])
            assert (yield from states(store, early)) == ["blocked"]
        # Whoever comes after the first continuation waits for the last job too.
        (late,) = yield from put(store, new("late", after=[chain]))
        assert (yield from states(store, late)) == ["blocked"]
        (held,) = yield from claim(store, 10)
        yield from store.finish([completed(held, '"the end"')])
        assert (yield from states(store, early, late)) == ["pending", "pending"]
        outputs = yield from store.blockers([early, late])
        for job in (early, late):
            assert [(b.task, b.output) for b in outputs[job]] == [("step 2", '"the end"')]

    play(script)


# ---- B5: what is refused


def by_index(*indexes: int) -> list[NewBlocker]:
    return [NewBlocker(index=index) for index in indexes]


REFUSED: dict[str, tuple[list[NewJob], str]] = {
    "the same chain twice": ([new("x", after=[1, 2, 1])], "names chain 1 twice"),
    "a call of the batch twice": (
        [new("x"), new("y", blockers=by_index(0, 0))],
        "names chain 4 twice",
    ),
    "two calls that are one chain": (
        [new("x", key="k"), new("x", key="k"), new("y", blockers=by_index(0, 1))],
        "names chain 4 twice",
    ),
    "a chain that does not exist": ([new("x"), new("y", after=[1, 99])], "chain 99 of job y"),
    "a job that is not the first of a chain": ([new("x", after=[3])], "chain 3 of job x"),
    "a call outside the batch": ([new("x", blockers=by_index(7))], "outside the batch"),
    "a call before the batch": ([new("x", blockers=by_index(-1))], "outside the batch"),
    "itself": ([new("x", blockers=by_index(0))], "in a circle: x"),
    "each other": (
        [new("free"), new("x", blockers=by_index(2)), new("y", blockers=by_index(1, 0))],
        "in a circle: x, y",
    ),
    "a long way round": (
        [new(f"x{n}", after=[1], key=f"k{n}") for n in range(3)]
        + [new(f"y{n}", blockers=by_index(3 + (n + 1) % 4)) for n in range(4)],
        "in a circle: y0, y1, y2, y3",
    ),
}


def test_B5_a_batch_with_a_job_that_cannot_wait_is_refused_and_nothing_is_stored(
    play: Play, store: Store, database: Database
) -> None:
    def begin() -> Steps[None]:
        yield from put(store, new(), new("behind", after=[1]))
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("next"))])

    play(begin)
    before = play(lambda: stored(store))
    assert before == (3, 2, 2, 1)
    for wrong, (batch, text) in REFUSED.items():
        database.free_ids()
        with pytest.raises(BlockerError, match=text):
            play(lambda batch=batch: put(store, *batch))  # type: ignore[misc]
        assert play(lambda: stored(store)) == before, wrong
    # The keys of the batches are free as well.
    assert play(lambda: iter(store.enqueue([new("x", key="k")])))[0].created
    assert play(lambda: iter(store.enqueue([new("x0", key="k0")])))[0].created


def test_B5_a_continuation_cannot_wait_for_its_own_chain(play: Play, store: Store) -> None:
    """Nor for one that waits for it, near or a long way round. It is refused, and the job is still
    in the worker's hand."""

    def begin() -> Steps[tuple[Claimed, dict[str, int]]]:
        (first,) = yield from put(store, new())
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("second"))])
        (held,) = yield from claim(store)
        (near,) = yield from put(store, new("near", after=[first]))
        free, chain = yield from put(store, new("free", priority=9), new("chain", priority=8))
        # A chain whose second job waits, with a free one beside: the way leads through its tail.
        (other,) = yield from claim(store)
        assert other.job_id == free
        (other,) = yield from claim(store)
        yield from store.finish([continued(other, new("tail", after=[near]))])
        (far,) = yield from put(store, new("far", after=[free, chain]))
        return held, {"its own chain": first, "a chain that waits for it": near, "a long way": far}

    held, chains = play(begin)
    before = play(lambda: stored(store))
    for wrong, chain in chains.items():
        ending = continued(held, new(after=[chain]))
        with pytest.raises(BlockerError, match=r"wait for .*own chain"):
            play(lambda ending=ending: iter(store.finish([ending])))  # type: ignore[misc]
        assert play(lambda: stored(store)) == before, wrong

    def again() -> Steps[list[State]]:
        assert (yield from store.finish([completed(held)])).accepted == [held.job_id]
        return (yield from states(store, chains["a chain that waits for it"]))

    assert play(again) == ["pending"]


def test_B5_two_chains_that_continue_in_one_turn_cannot_wait_for_each_other(
    play: Play, store: Store
) -> None:
    def begin() -> Steps[list[Claimed]]:
        yield from put(store, new(), new())
        return (yield from claim(store, 2))

    def both() -> Steps[None]:
        endings = [
            continued(one, new(after=[other.chain_id])),
            continued(other, new(after=[one.chain_id])),
        ]
        yield from store.finish(endings)

    one, other = play(begin)
    with pytest.raises(BlockerError, match="waits for its own chain"):
        play(both)
    assert play(lambda: stored(store)) == (2, 2, 2, 0)


def test_B5_a_continuation_may_wait_for_a_chain_that_has_waited_for_it(
    play: Play, store: Store
) -> None:
    """The edge is there, but nothing waits along it any more."""

    def script() -> Steps[None]:
        (first,) = yield from put(store, new())
        ran, runs = yield from put(
            store,
            new("ran", after=[first], policy=Policy.RUN),
            new("runs", after=[first], policy=Policy.RUN),
        )
        yield from end(store, first, "failed")
        held = yield from claim(store, 2)
        yield from store.finish([completed(held[0])])
        yield from store.retry(first)
        (again,) = yield from claim(store)
        yield from store.finish([continued(again, new("next", after=[ran, runs]))])
        _, last = yield from store.chain(first)
        assert (last.task, last.state, last.open_blockers) == ("next", State.BLOCKED, 1)
        yield from store.finish([completed(held[1])])
        assert (yield from states(store, last.id)) == ["pending"]

    play(script)


# ---- B8: a whole graph


def test_B8_a_graph_is_one_batch(play: Play, store: Store, app: Towline) -> None:
    @app.task
    def step(name: str) -> str:
        return name

    root = step.call("root")
    left = step.using(after=[root], label="left").call("left")
    right = step.using(after={"up": root}, label="right").call("right")
    foot = step.using(after={"l": left, "r": right}).call("foot")

    def script() -> Steps[None]:
        # The foot first, the root not at all: it is stored because others wait for it.
        answers = yield from store.enqueue(new_jobs([foot, right, left]))
        assert [a.record.arguments for a in answers] == [
            f'{{"name":"{name}"}}' for name in ("foot", "right", "left", "root")
        ]
        ids = [answer.record.id for answer in answers]
        foot_id, right_id, left_id, top = ids
        assert [a.record.state for a in answers] == ["blocked", "blocked", "blocked", "pending"]
        edges = yield from store.blockers(ids)
        found = {
            id: [(edge.position, edge.name, edge.chain_id) for edge in edges.get(id, [])]
            for id in ids
        }
        assert found == {
            top: [],
            left_id: [(0, None, top)],
            right_id: [(0, "up", top)],
            foot_id: [(0, "l", left_id), (1, "r", right_id)],
        }
        assert (yield from finish_all(store)) == [top, right_id, left_id, foot_id]

    play(script)


def test_B8_a_graph_handed_in_on_a_connection_comes_and_goes_with_its_transaction(
    app: Towline, database: Database
) -> None:
    @app.task
    def step(name: str) -> str:
        return name

    stored_before = step.enqueue("stored")
    root = step.using(key="root").call("root")
    sides = [step.using(after=[root, stored_before]).call(f"side {n}") for n in range(3)]
    foot = step.using(after=sides).call("foot")
    with closing(database.connect()) as connection:
        (job,) = app.enqueue_many([foot], on=connection)
        assert (job.state, job.open_blockers) == (State.BLOCKED, 3)
        assert len(app.jobs(on=connection)) == 6
        assert len(app.jobs()) == 1
        connection.rollback()
        assert len(app.jobs()) == 1
        # Two graphs over one keyed call are one transaction too, and share that chain.
        jobs = app.enqueue_many([foot, step.using(key="root").call("again"), root], on=connection)
        connection.commit()
    assert [job.created for job in jobs] == [True, True, False]
    assert jobs[1].chain_id == jobs[2].chain_id
    assert len(app.jobs()) == 6


def test_B8_calls_that_wait_for_each_other_are_refused(app: Towline) -> None:
    @app.task
    def step(name: str) -> str:
        return name

    after: list[Any] = []
    one = step.using(after=after).call("one")
    two = step.using(after=[one]).call("two")
    after.append(two)
    with pytest.raises(BlockerError, match="in a circle: step, step"):
        app.enqueue_many([step.call("free"), one])
    assert len(app.jobs()) == 0
    assert app.counts() == {}


# ---- B9: what the handler sees


def test_B9_outputs_come_by_position_and_by_name_converted_to_what_is_asked(
    play: Play, store: Store, app: Towline
) -> None:
    @app.task
    def when() -> date:
        return date(2030, 1, 2)

    def script() -> Steps[Blockers]:
        known, foreign, null = yield from put(store, new("when"), new("foreign"), new("foreign"))
        blockers = [
            NewBlocker(foreign, name="raw"),
            NewBlocker(known, name="day"),
            NewBlocker(null),
        ]
        (job,) = yield from put(store, new(blockers=blockers))
        yield from store.complete(known, '"2030-01-02"')
        yield from store.complete(foreign, '{"n":1,"day":"2030-01-02"}')
        yield from store.complete(null, "null")
        turn = yield from beat(store, 1)
        return Blockers(turn.blockers[job], app.decode_output)

    seen = play(script)
    plain = {"n": 1, "day": "2030-01-02"}
    assert len(seen) == 3
    assert list(seen) == [plain, date(2030, 1, 2), None]
    assert [seen[0], seen[1], seen[-1]] == [plain, date(2030, 1, 2), None]
    assert seen[1:] == [date(2030, 1, 2), None]
    assert seen.names == ("raw", "day", None)
    assert (seen["day"], seen["raw"]) == (date(2030, 1, 2), plain)
    assert seen.get("day", str) == "2030-01-02"
    assert seen.get("day", date) == date(2030, 1, 2)
    assert seen.get(0, dict[str, Any]) == plain
    with pytest.raises(KeyError, match="no blocker named 'hour'; there are raw, day"):
        seen["hour"]
    with pytest.raises(IndexError):
        seen[3]


def test_B9_a_failed_blocker_arrives_as_a_failure(play: Play, store: Store, app: Towline) -> None:
    def script() -> Steps[tuple[Blockers, list[int]]]:
        ids = yield from put(store, new(), new(), new())
        _, unwanted, good = ids
        named = [NewBlocker(id, name=f"n{id}") for id in ids]
        (job,) = yield from put(store, new(blockers=named, policy=Policy.RUN))
        (held, *_) = yield from claim(store, 3)
        yield from store.finish([replace(failed(held, "no space"), delay=None)])
        yield from store.cancel(unwanted, "changed my mind")
        yield from store.complete(good, "[1, 2]")
        turn = yield from beat(store, 1)
        return Blockers(turn.blockers[job], app.decode_output), ids

    seen, (broken, unwanted, _) = play(script)
    assert list(seen) == [
        Failure(broken, ChainState.FAILED, "no space"),
        Failure(unwanted, ChainState.CANCELLED, "changed my mind"),
        [1, 2],
    ]
    assert seen[f"n{broken}"] == seen.get(0, int) == Failure(broken, ChainState.FAILED, "no space")
    assert seen.get(2, tuple[int, int]) == (1, 2)


def test_B9_a_chain_that_continued_gives_the_output_of_its_last_job(
    play: Play, store: Store, app: Towline
) -> None:
    @app.task
    def words() -> int:
        return 0

    @app.task
    def day() -> date:
        return date(2030, 1, 2)

    def script() -> Steps[Blockers]:
        (first,) = yield from put(store, new("words"))
        (job,) = yield from put(store, new(after=[first]))
        (held,) = yield from claim(store)
        yield from store.finish([continued(held, new("day"))])
        (held,) = yield from claim(store)
        yield from store.finish([Ending(held, Outcome.COMPLETED, output='"2030-01-02"')])
        turn = yield from beat(store, 1)
        return Blockers(turn.blockers[job], app.decode_output)

    assert list(play(script)) == [date(2030, 1, 2)]
