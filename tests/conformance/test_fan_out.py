"""Fan-out by return: a continuation brings along the jobs that it waits for."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.kit import HOUR, beat, claim, completed, continued, failed, finish_all, new, put, states
from towline import Towline
from towline.errors import BlockerError, DuplicateKey, InvalidSetting
from towline.model import Policy
from towline.operation import Op, Steps
from towline.records import Claimed, NewBlocker, NewJob
from towline.store import Store, read
from towline.store.listing import ChainFilter, JobFilter
from towline.task import Next
from towline.task.batch import MOST_CHILDREN, next_job


def born(*indexes: int) -> list[NewBlocker]:
    return [NewBlocker(index=index) for index in indexes]


def merge(*children: NewJob, **fields: Any) -> NewJob:
    """A continuation behind its children, all of them unless its blockers say otherwise."""
    fields.setdefault("blockers", born(*range(len(children))))
    return new("merge", children=children, inherit_queue=True, **fields)


def everything(store: Store) -> Steps[list[tuple[int, str, str]]]:
    """All jobs, oldest first, with their tasks and states."""
    found = yield from store.jobs(JobFilter(), 100, newest=False)
    return [(record.chain_id, record.task, str(record.state)) for record in found.records]


def test_F4_children_the_continuation_and_the_completion_are_one(play: Play, store: Store) -> None:
    """Each child is a chain of its own; the continuation goes on with the chain behind them."""

    def script() -> Steps[None]:
        (split,) = yield from put(store, new("split", queue="q", priority=3))
        (held,) = yield from claim(store, queues=["q"])
        finished = yield from store.finish([continued(held, merge(new("a"), new("b")))])
        assert finished.accepted == [split]
        chain, last = yield from store.chain(split)
        assert (last.task, last.position, last.queue, last.state) == ("merge", 1, "q", "blocked")
        assert (last.blockers, last.open_blockers) == (2, 2)
        a, b = [record.chain_id for record in (yield from store.blockers([last.id]))[last.id]]
        records = yield from read.records(store, [a, b])
        assert [(r.task, r.chain_id, r.position, r.queue, r.state) for r in records] == [
            ("a", a, 0, "default", "pending"),
            ("b", b, 0, "default", "pending"),
        ]
        assert a < b < last.id  # older, so claimed before
        assert (yield from read.job(store, split)).continued_by == last.id

        turn = yield from beat(store, 10)
        assert [job.task for job in turn.claimed] == ["a", "b"]
        yield from store.finish([completed(job, f'"{job.task}"') for job in turn.claimed])
        assert (yield from states(store, last.id)) == ["pending"]
        (held,) = yield from claim(store, queues=["q"])
        outputs = (yield from store.blockers([held.job_id]))[held.job_id]
        assert [record.output for record in outputs] == ['"a"', '"b"']
        yield from store.finish([completed(held, '"merged"')])
        chain, last = yield from store.chain(split)
        assert (chain.state, last.last_output) == ("completed", '"merged"')

    play(script)


@pytest.mark.parametrize("stale", ["attempt", "worker", "ended"])
def test_F4_a_refused_attempt_leaves_no_children(play: Play, store: Store, stale: str) -> None:
    """It is written after the fence, and only for what passed it."""

    def script() -> Steps[None]:
        split, other = yield from put(store, new("split"), new("other"))
        held, fine = yield from claim(store, 2)
        if stale == "attempt":
            held = held._replace(attempt=held.attempt + 1)
        elif stale == "worker":
            held = held._replace(worker=7)
        else:
            yield from store.cancel(split)
        before = yield from everything(store)
        finished = yield from store.finish(
            [continued(held, merge(new("a"), new("b"))), continued(fine, merge(new("c")))]
        )
        assert (finished.accepted, finished.refused) == ([other], [split])
        after = yield from everything(store)
        assert [job[1:] for job in after if job not in before] == [
            ("other", "completed"), ("c", "pending"), ("merge", "blocked"),
        ]  # fmt: skip
        chains = yield from store.chains(ChainFilter(), 10)
        assert sorted(chain.task for chain in chains.records) == ["c", "other", "split"]

    play(script)


def test_F4_children_are_stored_in_the_commit_that_completes_the_job(
    play: Play, store: Store
) -> None:
    class Away(Exception):
        pass

    def begin() -> Steps[Claimed]:
        yield from put(store, new("split"))
        (held,) = yield from claim(store)
        return held

    def broken() -> Steps[None]:
        yield from store.finish([continued(held, merge(new("a"), new("b")))])
        assert len((yield from everything(store))) == 4
        raise Away

    held = play(begin)
    with pytest.raises(Away):
        play(broken)
    assert play(partial(everything, store)) == [(held.job_id, "split", "running")]
    play(lambda: iter(store.finish([continued(held, merge(new("a")))])))
    assert [job[1:] for job in play(partial(everything, store))] == [
        ("split", "completed"), ("a", "pending"), ("merge", "blocked"),
    ]  # fmt: skip


def test_F4_an_attempt_that_is_tried_again_leaves_no_children(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from put(store, new("split"))
        (held,) = yield from claim(store)
        yield from store.finish([failed(held, delay=0)])
        assert [task for _, task, _ in (yield from everything(store))] == ["split"]

    play(script)


def test_F4_children_wait_for_one_another_and_for_stored_chains(play: Play, store: Store) -> None:
    """A whole graph: nested calls, and what was there before."""

    def script() -> Steps[None]:
        (stored,) = yield from put(store, new("stored", queue="later"))
        yield from put(store, new("split"))
        (held,) = yield from claim(store)
        deep = new("deep", blockers=[NewBlocker(chain_id=stored)])
        over = new("over", blockers=born(1))
        following = merge(over, deep, new("free"), blockers=born(0, 2))
        yield from store.finish([continued(held, following)])
        assert [job[1:] for job in (yield from everything(store))] == [
            ("stored", "pending"), ("split", "completed"),
            ("deep", "blocked"), ("free", "pending"), ("over", "blocked"), ("merge", "blocked"),
        ]  # fmt: skip
        yield from finish_all(store)
        (first,) = yield from claim(store, queues=["later"])
        yield from store.finish([completed(first)])
        yield from finish_all(store)
        assert {state for *_, state in (yield from everything(store))} == {"completed"}

    play(script)


@pytest.mark.parametrize("policy", [Policy.FAIL, Policy.WAIT, Policy.RUN], ids=lambda p: p.name)
def test_F4_a_child_behind_a_failure_fails_as_it_is_stored(
    play: Play, store: Store, policy: Policy
) -> None:
    """And what follows from that: the continuation, its chain, and what waits for that chain."""

    def script() -> Steps[None]:
        (bad,) = yield from put(store, new("bad"))
        yield from store.fail(bad, "broken")
        (split,) = yield from put(store, new("split"))
        (behind,) = yield from put(store, new("behind", after=[split]))
        (held,) = yield from claim(store)
        child = new("child", blockers=[NewBlocker(chain_id=bad)])
        finished = yield from store.finish([continued(held, merge(child, policy=policy))])
        assert finished.accepted == [split]
        chain, last = yield from store.chain(split)
        wanted = {
            Policy.FAIL: ("failed", "failed", "failed"),
            Policy.WAIT: ("open", "blocked", "blocked"),
            Policy.RUN: ("open", "pending", "blocked"),
        }[policy]
        (waiting,) = yield from states(store, behind)
        assert (chain.state, last.state, waiting) == wanted

    play(script)


def test_F4_a_child_with_a_key_that_is_taken_is_the_chain_that_has_it(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        (taken,) = yield from put(store, new("part", key="k", delay=HOUR))
        (split,) = yield from put(store, new("split"))
        (held,) = yield from claim(store)
        yield from store.finish(
            [continued(held, merge(new("part", key="k"), new("part", key="free")))]
        )
        _, last = yield from store.chain(split)
        blockers = (yield from store.blockers([last.id]))[last.id]
        assert [record.chain_id for record in blockers] == [taken, last.id - 1]
        assert (last.state, last.open_blockers) == ("blocked", 2)

    play(script)


REFUSED = {
    "its own chain": (merge(new("c", after=[1])), BlockerError, "waits for its own chain"),
    "what waits for it": (merge(new("c", after=[2])), BlockerError, "waits for its own chain"),
    "nothing": (merge(new("c", after=[10**6])), BlockerError, "does not exist"),
    "its own key": (merge(new("split", key="own")), BlockerError, "its own chain"),
    "a key that must be free": (
        merge(new("split", key="own", on_conflict="raise")), DuplicateKey, "already has key",
    ),
    "one child twice": (merge(new("c"), blockers=born(0, 0)), BlockerError, "twice"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_F4_what_cannot_be_waited_for_is_said_and_nothing_is_stored(
    app: Towline, store: Store, what: str
) -> None:
    following, error, words = REFUSED[what]
    run = app.runner.run
    (split,) = run(Op("put", lambda: put(store, new("split", key="own"))))
    (behind,) = run(Op("put", lambda: put(store, new("behind", after=[split]))))
    assert (split, behind) == (1, 2)
    (held,) = run(Op("claim", lambda: claim(store)))
    with pytest.raises(error, match=words):
        run(store.finish([continued(held, following)]))
    assert [str(job.state) for job in app.jobs(newest=False)] == ["running", "blocked"]
    assert len(list(app.chains())) == 2


def test_F4_from_outside_a_job_is_completed_with_its_fan_out(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (split,) = yield from put(store, new("split"))
        yield from store.complete(split, None, merge(new("a"), new("b")))
        assert [job[1:] for job in (yield from everything(store))] == [
            ("split", "completed"), ("a", "pending"), ("b", "pending"), ("merge", "blocked"),
        ]  # fmt: skip
        yield from finish_all(store)
        chain, _ = yield from store.chain(split)
        assert chain.state == "completed"

    play(script)


@pytest.fixture
def tasks(app: Towline) -> dict[str, Any]:
    @app.task
    def part(doc: int, number: int) -> int:
        return doc * number

    @app.task
    def join(doc: int) -> int:
        return doc

    return {"part": part, "join": join}


def test_F4_calls_become_children_by_position_name_and_through_others(
    tasks: dict[str, Any],
) -> None:
    part, join = tasks["part"], tasks["join"]
    one, two = part.call(1, 1), part.call(1, 2)
    both = join.using(after={"one": one, "two": two}).call(1)
    job = next_job(join.using(after={"both": both, "two": two, "stored": 5}).then(1))
    assert [child.task for child in job.children] == ["join", "part", "part"]
    assert [(b.name, b.index, b.chain_id) for b in job.blockers] == [
        ("both", 0, None), ("two", 1, None), ("stored", None, 5),
    ]  # fmt: skip
    assert [(b.name, b.index) for b in job.children[0].blockers] == [("one", 2), ("two", 1)]
    assert job.inherit_queue
    assert not job.children[1].inherit_queue


def test_more_children_than_a_return_may_bring_are_refused(tasks: dict[str, Any]) -> None:
    part, join = tasks["part"], tasks["join"]
    calls = [part.call(1, number) for number in range(MOST_CHILDREN + 1)]
    most: Next[Any] = join.using(after=calls[:-1]).then(1)
    assert len(next_job(most).children) == MOST_CHILDREN == 10_000
    with pytest.raises(InvalidSetting, match=r"at most 10,000 .* use ctx\.transaction\(\)"):
        next_job(join.using(after=calls).then(1))


def test_a_child_commits_with_its_continuation_and_takes_no_connection(
    tasks: dict[str, Any],
) -> None:
    part, join = tasks["part"], tasks["join"]
    with pytest.raises(InvalidSetting, match="commits with its continuation and takes no on="):
        next_job(join.using(after=[part.using(on=object()).call(1, 1)]).then(1))


def test_F4_app_complete_takes_a_fan_out_on_both_faces(app: Towline, tasks: dict[str, Any]) -> None:
    part, join = tasks["part"], tasks["join"]
    job = join.enqueue(3)
    app.complete(job.id, join.using(after=[part.call(3, n) for n in range(3)]).then(3))
    last = app.chain(job.id).last
    assert last is not None
    assert (last.state, last.open_blockers) == ("blocked", 3)
    asyncio.run(app.acomplete(last.id, join.using(after={"one": part.call(3, 9)}).then(4)))
    last = app.chain(job.id).last
    assert last is not None
    assert (last.position, last.state, last.open_blockers) == (2, "blocked", 1)
