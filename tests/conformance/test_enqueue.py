"""Storing jobs: order, all or nothing, what comes back, keys after an unknown outcome, traces."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.database import Database
from tests.kit import Clock, claim, completed, continued, failed, new, register
from towline import State, Towline
from towline.errors import BlockerError, DuplicateKey
from towline.model import ChainState, Policy
from towline.operation import Mark, Op, Steps
from towline.records import Enqueued, JobRecord, NewBlocker, NewJob
from towline.store import Store, read

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


# ---- E4: many at once


def test_E4_answers_come_in_the_order_given(play: Play, store: Store) -> None:
    """Also where storing needs another order: a job may be named by one before it."""

    def store_all() -> Steps[Sequence[Enqueued]]:
        first = new("first", blockers=[NewBlocker(index=2)])
        return (
            yield from store.enqueue(
                [first, new("second", key="k"), new("third"), new("b", key="k")]
            )
        )

    answers = play(store_all)
    assert [(record.task, created) for record, created in answers] == [
        ("first", True),
        ("second", True),
        ("third", True),
        ("b", True),
    ]
    assert [record.state for record, _ in answers] == ["blocked", "pending", "pending", "pending"]
    assert sorted(record.id for record, _ in answers) == [1, 2, 3, 4]
    assert all(record.id == record.chain_id for record, _ in answers)


def test_E4_E5_jobs_alike_are_stored_as_each_by_itself(
    play: Play, store: Store, clock: Clock
) -> None:
    """An engine may take many jobs of one shape as one value; between them stand others."""
    shapes: list[dict[str, Any]] = [
        {},
        {"label": "l", "queue": "q", "priority": -3, "max_attempts": 2, "timeout": 5},
        {"delay": 7, "policy": Policy.WAIT},
        {"at": clock.time - 1, "trace": TRACE},
        {"lane": "tenant", "weight": 3},
        {"lane": "tenant", "delay": 7},
        {"expires": 60, "schedule": "s", "tick": 4},
    ]
    texts = ["{}", '{"a":"\\u0000\\ud800"}', '{"a":"' + "ü€🎈" + '"}', '"' + "x" * 5000 + '"']
    jobs: list[NewJob] = []
    for shape in shapes:
        jobs += [new(arguments=text, **shape) for text in texts * 5]
        jobs.append(new("keyed", key=f"k{len(jobs)}", **shape))
    chosen = list(range(0, 40, 2))
    jobs.append(new("last", blockers=[NewBlocker(index=n) for n in chosen]))
    named = [NewBlocker(index=n, name=f"b{n}", trace=TRACE) for n in chosen]
    jobs.append(new("named", blockers=[*named, NewBlocker(index=41, declared=False)]))
    answers = play(lambda: store.enqueue(jobs).__iter__())
    records = [record for record, _ in answers]
    assert records == play(lambda: read.records(store, [record.id for record in records]))
    assert [record.arguments for record in records] == [job.arguments for job in jobs]
    assert [record.policy for record in records] == [job.policy for job in jobs]
    states = [str(record.state) for record in records]
    assert states[:21] == ["pending"] * 21
    assert states[42:63] == ["scheduled"] * 21
    assert states[-2:] == ["blocked", "blocked"]
    last, last_named = records[-2:]
    edges = play(lambda: iter(store.blockers([last.id, last_named.id])))
    assert [edge.chain_id for edge in edges[last.id]] == [records[n].id for n in chosen]
    assert [(edge.name, edge.trace) for edge in edges[last_named.id]] == [
        (None, None),  # the one whose output nobody asked for
        *((f"b{n}", TRACE) for n in chosen),
    ]
    assert last.open_blockers == len(chosen)
    assert last_named.open_blockers == len(chosen) + 1
    assert play(lambda: store.chain(records[61].id).__iter__())[0].state is ChainState.OPEN


def test_E4_an_answer_is_what_a_reader_then_sees(play: Play, store: Store, clock: Clock) -> None:
    jobs = [
        new(label="l", queue="q", priority=-3, max_attempts=2, timeout=5, delay=7, key="k"),
        new(at=clock.time - 1, trace=TRACE, arguments='{"a":1}'),
        new(blockers=[NewBlocker(index=0)]),
    ]
    answers = play(lambda: store.enqueue(jobs).__iter__())
    seen = play(lambda: read.records(store, [record.id for record, _ in answers]))
    assert [record for record, _ in answers] == seen


def test_E4_nothing_asked_nothing_stored(play: Play, app: Towline, store: Store) -> None:
    assert play(lambda: iter(store.enqueue([]))) == []
    assert len(app.jobs()) == 0


IMPOSSIBLE: dict[str, tuple[NewJob, type[Exception]]] = {
    "missing blocker": (new(after=[404]), BlockerError),
    "same blocker twice": (
        new(blockers=[NewBlocker(index=0), NewBlocker(index=0)]),
        BlockerError,
    ),
    "key taken": (new(key="k", on_conflict="raise"), DuplicateKey),
}


def test_E4_one_impossible_job_and_none_is_stored(play: Play, app: Towline, store: Store) -> None:
    for wrong, (last, error) in IMPOSSIBLE.items():
        batch = [new(key="k"), new(), last]
        with pytest.raises(error):
            play(lambda batch=batch: iter(store.enqueue(batch)))  # type: ignore[misc]
        assert len(app.jobs()) == len(app.chains()) == 0, wrong
    ((record, created),) = play(lambda: iter(store.enqueue([new(key="k")])))
    assert created
    assert [job.id for job in app.jobs()] == [record.id]


HUNDRED_THOUSAND = """
import json, resource, sys
from towline import Towline
from tests.conformance.test_enqueue import watched

app = Towline(sys.argv[1])
widest = []

@app.task
def add(a: int, b: int) -> int:
    return a + b

def memory():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

run = app.runner.run
app.runner.run = lambda op, on=None, **how: run(watched(op, widest), on, **how)
add.enqueue(0, 0)
memory_before = memory()
jobs = app.enqueue_many([add.call(n, n) for n in range(100_000)])
grown = memory() - memory_before
print(json.dumps({
    "memory": grown / 100_000,
    "widest": max(widest),
    "in order": all(job.id == n for n, job in enumerate(jobs, 2)),
    "last": jobs[-1].arguments,
    "pending": app.counts()["default"]["pending"],
}))
app.close()
"""


def rows_of(listed: Sequence[Any]) -> int:
    """How many rows a list makes; one that is made of runs has them in its runs."""
    runs = [item["arguments"] for item in listed if isinstance(item, dict)]
    return sum(map(len, runs)) if runs and isinstance(runs[0], list) else len(listed)


def watched(op: Op[Any], widest: list[int]) -> Op[Any]:
    """The same operation, noting how many rows each of its statements is given."""

    def steps() -> Steps[Any]:
        inner = iter(op)
        statement = next(inner)
        while True:
            if not isinstance(statement, Mark):
                lists = [json.loads(str(p)) for p in statement.params if str(p).startswith("[")]
                widest.append(max(map(rows_of, [*lists, statement.rows or ()])))
            answer = yield statement
            try:
                statement = inner.send(answer)
            except StopIteration as stop:
                return stop.value

    return Op(op.name, steps, reads=op.reads, loss=op.loss)


@pytest.mark.heavy
def test_E4_a_hundred_thousand_jobs_in_one_call(database: Database) -> None:
    """At most 2 KB of growth per job, in memory and on disk, and no wide statement."""
    size_before = database.size()
    child = subprocess.run(
        [sys.executable, "-W", "error", "-c", HUNDRED_THOUSAND, database.url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert child.stderr == ""
    found = json.loads(child.stdout)
    assert found["memory"] < 2048
    assert database.size() - size_before < 2048 * 100_000
    assert found["widest"] == 1000
    assert found["in order"]
    assert found["last"] == '{"a":99999,"b":99999}'
    assert str(found["pending"]).rstrip("+") in ("100000", "100001")


def test_E4_a_mixed_batch_keeps_its_order_and_each_job_what_it_was_given(
    play: Play, store: Store
) -> None:
    """Runs of alike jobs, single ones between them, more than one statement takes."""
    given = [
        new(
            "a" if n % 7 else "b",
            queue=f"q{n // 400 % 3}",
            label=f"l{n}" if n % 50 == 0 else None,
            priority=n // 300 % 2,
            delay=1_000_000 if n % 90 == 0 else None,
            arguments=f'{{"n":{n}}}',
        )
        for n in range(2300)
    ]

    def steps() -> Steps[list[JobRecord]]:
        answers = yield from store.enqueue(given)
        return (yield from read.records(store, [record.id for record, _ in answers]))

    stored = play(steps)
    assert [record.id for record in stored] == sorted(record.id for record in stored)
    for job, record in zip(given, stored, strict=True):
        assert (record.task, record.queue, record.label, record.priority, record.arguments) == (
            job.task, job.queue, job.label, job.priority, job.arguments,
        )  # fmt: skip
        assert record.state == ("scheduled" if job.delay else "pending")
        assert record.run_at == record.created_at + (job.delay or 0)


@pytest.mark.heavy
def test_E4_large_arguments_travel_in_several_statements(app: Towline, store: Store) -> None:
    large = [new(arguments=f'{{"text":"{"é" * 900_000}{n}"}}') for n in range(6)]
    answers = app.runner.run(store.enqueue(large))
    ids = [record.id for record, _ in answers]
    stored = app.runner.run(Op("records", lambda: read.records(store, ids), reads=True))
    assert [record.arguments for record in stored] == [job.arguments for job in large]


@pytest.mark.heavy
def test_E4_no_statement_is_wide_whatever_the_jobs_are(app: Towline, store: Store) -> None:
    """Keyed, blocked, behind chains that have failed: 2,500 of each."""
    many = 2500
    widest: list[int] = []

    def run(*jobs: NewJob) -> list[Enqueued]:
        answers: list[Enqueued] = app.runner.run(watched(store.enqueue(jobs), widest))
        return answers

    blockers = [record.id for record, _ in run(*(new() for _ in range(many)))]
    run(*(new("b", after=[id]) for id in blockers))

    def fail_all() -> Steps[None]:
        yield from register(store)
        yield from store.finish([failed(held) for held in (yield from claim(store, many))])

    app.runner.run(Op("fail_all", fail_all))
    answers = run(*(new("c", after=[id], key=str(id)) for id in blockers))
    assert [record.state for record, _ in answers] == ["failed"] * many
    assert [record.id for record, _ in answers] == sorted(record.id for record, _ in answers)
    assert max(widest) == 1000


# ---- E9, E10: keys


def keyed(store: Store, **fields: Any) -> Callable[[], Steps[Enqueued]]:
    def steps() -> Steps[Enqueued]:
        (answer,) = yield from store.enqueue([new(key="k", **fields)])
        return answer

    return steps


def work(store: Store, ending: Callable[[Any], Any]) -> Callable[[], Steps[None]]:
    """A worker comes by, takes one job and ends it so."""

    def steps() -> Steps[None]:
        worker = yield from register(store)
        (held,) = yield from claim(store, worker=worker)
        yield from store.finish([ending(held)])

    return steps


def test_E10_a_deduplicated_answer_is_the_chain_as_it_stands(play: Play, store: Store) -> None:
    again = keyed(store, scope="any")
    first, created = play(again)
    assert created

    same, created = play(again)
    assert (same, created) == (first, False)

    play(work(store, lambda held: continued(held, new("next"))))
    tail, created = play(again)
    assert (tail.chain_id, tail.position, created) == (first.id, 1, False)
    assert tail.id > first.id
    assert (tail.task, tail.state) == ("next", State.PENDING)

    play(work(store, lambda held: completed(held, '"done"')))
    ended, created = play(again)
    assert (ended.id, ended.state, ended.last_output, created) == (
        tail.id, State.COMPLETED, '"done"', False,
    )  # fmt: skip

    other, created = play(keyed(store))
    assert (other.chain_id > tail.id, created) == (True, True), "scope open: the chain has ended"


def test_E10_a_duplicate_in_one_batch_shows_the_job_stored_with_it(
    play: Play, store: Store
) -> None:
    def twice() -> Steps[Sequence[Enqueued]]:
        return (yield from store.enqueue([new(key="k", delay=5), new(key="k")]))

    first, second = play(twice)
    assert (first.created, second.created) == (True, False)
    assert first.record == second.record
    assert second.record.state is State.SCHEDULED


@pytest.mark.parametrize("moment", ["before", "after"])
def test_E9_after_an_unknown_outcome_the_same_key_gives_the_one_chain(
    app: Towline, store: Store, database: Database, moment: str
) -> None:
    """The process dies right before or right after the commit; nobody knows which."""
    script = (
        "import os, sys\n"
        "from tests.database import connect\n"
        "from towline import Towline\n"
        "app = Towline(sys.argv[1])\n"
        "@app.task\n"
        "def a() -> None: ...\n"
        "connection = connect(sys.argv[1])\n"
        "a.using(key='k', scope='any', on=connection).enqueue()\n"
        "if sys.argv[2] == 'after':\n"
        "    connection.commit()\n"
        "os._exit(9)\n"
    )
    child = subprocess.run([sys.executable, "-c", script, database.url, moment], check=False)
    assert child.returncode == 9
    (record, created), (twin, created_again) = (
        app.runner.run(Op("again", keyed(store, scope="any"))) for _ in range(2)
    )
    assert created is (moment == "before")
    assert (twin.id, created_again) == (record.id, False)
    assert [chain.id for chain in app.chains()] == [record.id]


# ---- E12: ids


def test_E12_the_id_of_a_deleted_job_is_not_given_out_again(play: Play, store: Store) -> None:
    def once(*deleted: int) -> Steps[JobRecord]:
        if deleted:
            yield from store.delete(deleted)
        (stored,) = yield from store.enqueue([new()])
        return stored.record

    assert play(once).id == 1
    assert play(once).id == 2
    assert play(lambda: once(2)).id == 3
    assert play(lambda: once(1, 3)).id == 4


# ---- T1: traces


def test_T1_a_trace_is_kept_on_chain_job_and_edge_and_goes_on(play: Play, store: Store) -> None:
    def through() -> Steps[None]:
        worker = yield from register(store)
        ((first, _),) = yield from store.enqueue([new(trace=TRACE)])
        edge = NewBlocker(first.id, trace=TRACE)
        ((second, _),) = yield from store.enqueue([new("b", blockers=[edge], trace=OTHER)])
        chain, _ = yield from store.chain(first.id)
        assert (chain.trace, first.trace) == (TRACE, TRACE)
        ((blocker,),) = (yield from store.blockers([second.id])).values()
        assert (blocker.trace, second.trace) == (TRACE, OTHER)

        (held,) = yield from claim(store, worker=worker)
        assert held.trace == TRACE
        yield from store.finish([continued(held, new("inherits"))])
        (held,) = yield from claim(store, worker=worker)
        assert (held.task, held.trace) == ("inherits", TRACE)
        yield from store.finish([continued(held, new("own", trace=OTHER))])
        (held,) = yield from claim(store, worker=worker)
        assert (held.task, held.trace) == ("own", OTHER)
        yield from store.finish([completed(held)])
        chain, tail = yield from store.chain(first.id)
        assert (chain.trace, tail.trace) == (TRACE, OTHER)

        outside = yield from store.complete(second.id, None, new("from outside"))
        successor = yield from store.job(outside.continued_by or 0)
        assert (successor.task, successor.trace) == ("from outside", OTHER)

    play(through)
