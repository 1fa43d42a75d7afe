"""Query plans: every statement rides the index it names, whatever the statistics say.

Statistics are what SQLite's planner chooses by. The application may run ANALYZE at any time: never,
with everything there, or on a database that was all but empty and has grown since. The last is the
worst, because then each index looks as good as any other.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.seed import (
    BLOCKED,
    FINISHED,
    PENDING,
    PREFIX,
    SCHEDULED,
    STRANGER,
    TASK,
    Numbers,
    new_job,
    queue_names,
    seed,
)
from tests.kit import completed, register
from towline.model import ChainState, Outcome, State
from towline.operation import Op, Query, Steps, drive, execute
from towline.sql import Queries
from towline.sqlite.engine import PACKAGE
from towline.sqlite.store import SqliteStore
from towline.store.listing import ChainFilter, JobFilter
from towline.store.retention import KeepFor
from towline.store.turn import promote, unpark

SQL = Queries(PACKAGE, PREFIX)
STORE = SqliteStore(SQL)
QUEUES = queue_names(5)
SMALL = Numbers.each(1_000, len(QUEUES))
LARGE = Numbers.each(100_000, len(QUEUES))
BIG_TABLES = ("job", "live", "attempt", "chain", "key", "blocker", "schedule", "lane")
STATISTICS = ("none", "of everything", "of 5 jobs", "of 100 jobs")

# By design: the first adds up page headers, the second is asked only when they are few, the third
# asks whether there is any.
READ_ALL = {
    "count_live": ["live"],
    "open_chain_ids": ["live"],
    "peek_pending": ["schedule by INDEX schedule_task"],
}

KEY = "live by PRIMARY KEY (state=? AND queue=? AND priority=? AND job_id=?)"
JOB = "job by INTEGER PRIMARY KEY (rowid=?)"
CHAIN = "chain by INTEGER PRIMARY KEY (rowid=?)"
LANE = "lane by PRIMARY KEY (queue=? AND lane=?)"
LAST_ATTEMPT = [
    "attempt by PRIMARY KEY (job_id=? AND number=?)",
    "attempt by PRIMARY KEY (job_id=?)",
]
PLANS: dict[str, list[str]] = {
    # enqueue
    "next_job_id": ["job"],
    "chain_states": [CHAIN],
    # claim
    "find_pending": ["live by PRIMARY KEY (state=? AND queue=?)", JOB],
    "claim_jobs": [KEY.replace("job_id=?", "job_id<?")],
    # finish
    "record_attempts": [KEY],
    "delete_live": [KEY],
    "long_arguments": [JOB],
    "find_settled": [KEY],
    "settle_attempts": [KEY],
    "settle_live": [KEY],
    "settle_chains": [CHAIN],
    "find_awaited": ["blocker by PRIMARY KEY (chain_id=?)"],
    "put_back": [KEY],
    "end_chains": [CHAIN],
    "end_keys": ["key by PRIMARY KEY (task=? AND key=?)", CHAIN],
    # unblock
    "find_dependents": ["blocker by PRIMARY KEY (chain_id=?)", JOB],
    "unblock_jobs": [KEY],
    "record_waiting_end": [KEY],
    # sweep
    "find_running_of": ["live by PRIMARY KEY (state=?)"],
    "find_lost": ["live by PRIMARY KEY (state=?)", JOB],
    # promote
    "find_due": ["live by INDEX live_due (run_at<?)"],
    "promote_jobs": [KEY],
    "next_due": ["live by INDEX live_due", "lane by PRIMARY KEY (queue=?)"],
    # limits and lanes
    "find_gates": ["lane by PRIMARY KEY (queue=?)"],
    "next_open": ["lane by INDEX lane_opens (queue=? AND opens_at>?)"],
    "next_priorities": ["live by PRIMARY KEY (state=? AND queue=?)"],
    "read_gates": [
        "live by PRIMARY KEY (state=? AND queue=?)",
        "lane by INDEX lane_open (queue=?)",
        "live by INDEX live_lane (queue=? AND lane=?)",
        "live by PRIMARY KEY (state=? AND queue=?)",
    ],
    "save_lanes": [LANE],
    "drop_lanes": [LANE],
    "free_lanes": [LANE],
    "open_lanes": [LANE, "lane by INDEX lane_opens (queue=? AND opens_at<?)"],
    "count_open": ["lane by INDEX lane_open (queue=?)"],
    "find_chosen": [KEY, JOB],
    "claim_chosen": [KEY],
    "list_lanes": [
        "lane by PRIMARY KEY (queue=? AND lane>?)",
        "live by INDEX live_lane (queue=? AND lane=?)",
    ],
    "running_lanes": ["live by PRIMARY KEY (state=? AND queue=?)"],
    "running_in": ["live by PRIMARY KEY (state=? AND queue=?)"],
    "read_lane": [LANE],
    "count_parked": ["live by INDEX live_parked (parked_for>?)"],
    "count_before_in_lane": [
        "live by INDEX live_lane (queue=? AND lane=? AND priority>?)",
        "live by INDEX live_lane (queue=? AND lane=? AND priority=? AND job_id<?)",
    ],
    # park
    "park_jobs": [KEY],
    "find_parked": ["live by INDEX live_parked (parked_for=? AND queue=?)"],
    "unpark_jobs": [KEY],
    # records
    "job_records": [JOB, KEY, *LAST_ATTEMPT],
    "chain_records": [CHAIN, JOB],
    "chain_tail": ["job by INDEX job_chain (chain_id=? AND position>?)", JOB],
    "list_attempts": ["attempt by PRIMARY KEY (job_id=?)", JOB, KEY],
    "list_blockers": [
        "blocker by INDEX blocker_job (job_id=?)",
        CHAIN,
        JOB,
        "job by INDEX job_chain (chain_id=? AND position>?)",
        *LAST_ATTEMPT,
    ],
    "list_members": [
        "blocker by INDEX blocker_job (job_id=? AND position>?)",
        CHAIN,
        JOB,
        "job by INDEX job_chain (chain_id=? AND position>?)",
        *LAST_ATTEMPT,
    ],
    "count_members": ["blocker by INDEX blocker_job (job_id=?)", CHAIN],
    "list_bad_members": ["blocker by INDEX blocker_job (job_id=?)", CHAIN],
    "chain_ends": [
        CHAIN,
        JOB,
        "job by INDEX job_chain (chain_id=? AND position>?)",
        *LAST_ATTEMPT,
    ],
    # walks
    "walk_jobs": ["job by INTEGER PRIMARY KEY (rowid{past}?)"],
    "walk_strip": ["job by INDEX job_strip (queue=? AND task=? AND id{past}?)"],
    "walk_live": ["live by PRIMARY KEY (state=? AND queue=? AND priority=? AND job_id{past}?)"],
    "walk_bad": ["attempt by INDEX attempt_bad (job_id{past}?)"],
    "group_failures": ["attempt by INDEX attempt_bad (job_id<?)", JOB],
    "walk_tried": ["attempt by PRIMARY KEY (job_id{past}?)"],
    "ended_jobs": ["attempt by PRIMARY KEY (job_id=?)"],
    "walk_label": ["job by INDEX job_label (label=? AND id{past}?)"],
    "walk_key": ["job by INDEX job_key (key=? AND id{past}?)"],
    "walk_schedule": ["job by INDEX job_schedule (schedule=? AND id{past}?)"],
    "walk_chain_jobs": [JOB, "job by INDEX job_chain (chain_id=? AND position>?)"],
    "chain_tasks": [CHAIN],
    "later_jobs": ["job by INDEX job_chain (chain_id=? AND position>?)"],
    "walk_chains": ["chain by INTEGER PRIMARY KEY (rowid{past}?)"],
    "walk_bad_chains": ["chain by INDEX chain_bad (id{past}?)"],
    "created_near": ["job by INTEGER PRIMARY KEY (rowid>?)"],
    # schedules
    "glance": [
        "schedule by INDEX schedule_next (task=? AND next_at>?)",
        "schedule by INDEX schedule_declared (task=?)",
        "lane by PRIMARY KEY (queue=?)",
    ],
    "find_due_schedules": [
        "schedule by INDEX schedule_next (task=? AND next_at>? AND next_at<?)",
    ],
    "read_schedules": ["schedule by PRIMARY KEY (name=?)"],
    "list_schedules": ["schedule by PRIMARY KEY (name>?)"],
    "list_schedules_of_task": ["schedule by INDEX schedule_task (task=? AND name>?)"],
    "list_declared": ["schedule by INDEX schedule_declared (task=?)"],
    "advance_schedules": ["schedule by PRIMARY KEY (name=?)"],
    # counts
    "count_strip": ["live by PRIMARY KEY (state=? AND queue=?)"],
    "count_tasks": ["live by PRIMARY KEY (state=?)", JOB],
    "live_strips": [
        "live by PRIMARY KEY (state=?)",
        "live by PRIMARY KEY (state=? AND queue>?)",
        "live by PRIMARY KEY (state=? AND queue=?)",
        "live by PRIMARY KEY (state=? AND queue=? AND priority<?)",
    ],
    "live_priorities": [
        "live by PRIMARY KEY (state=? AND queue=?)",
        "live by PRIMARY KEY (state=? AND queue=? AND priority<?)",
    ],
    # retention and deletion
    "walk_old_chains": ["chain by INTEGER PRIMARY KEY (rowid>?)"],
    "open_keys": [JOB, KEY],
    "delete_edges_of_jobs": ["blocker by INDEX blocker_job (job_id=?)"],
    "find_waiting_outside": ["blocker by PRIMARY KEY (chain_id=?)", JOB, KEY],
}


# ---- databases


def statistics(path: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ANALYZE")
        return connection.execute("SELECT tbl, idx, stat FROM sqlite_stat1").fetchall()


def outdate(path: Path, rows: list[tuple[Any, ...]]) -> None:
    """Give a database the statistics that another one has."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("ANALYZE sqlite_schema")  # makes the table of statistics
        connection.execute("DELETE FROM sqlite_stat1")
        connection.executemany("INSERT INTO sqlite_stat1 VALUES (?, ?, ?)", rows)


def make_databases(place: Path) -> None:
    seed(place / "small.db", SMALL, arguments="{}")
    seed(place / "none.db", LARGE, arguments="{}")
    for name in STATISTICS[1:]:
        shutil.copyfile(place / "none.db", place / f"{name}.db")
    statistics(place / "of everything.db")
    for each, name in ((1, "of 5 jobs"), (20, "of 100 jobs")):
        seed(place / f"{each}.db", Numbers.each(each), arguments="{}")
        outdate(place / f"{name}.db", statistics(place / f"{each}.db"))


@pytest.fixture(scope="session")
def databases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the filled databases; made once, also for several processes of one run."""
    base = tmp_path_factory.getbasetemp()
    place = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "plans"
    place.mkdir(exist_ok=True)
    with (place / "made").open("a+") as mark:
        fcntl.flock(mark, fcntl.LOCK_EX)
        if not mark.seek(0, os.SEEK_END):  # after the lock: another process may have written
            make_databases(place)
            mark.write("yes")
    return place


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection in a write transaction that is rolled back."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        # Reads schema and statistics, which costs steps of its own.
        connection.execute("SELECT max(id) FROM towline_job").fetchall()
        yield connection
        connection.execute("ROLLBACK")


# ---- plans


def plan(connection: sqlite3.Connection, query: Query) -> list[str]:
    rows = connection.execute(f"EXPLAIN QUERY PLAN {query.qmark}", [None] * len(query.order))
    return [str(row[3]).replace(" TABLE ", " ", 1) for row in rows]


def accesses(query: Query, lines: list[str]) -> list[tuple[str, str]]:
    """How the big tables are read: (SEARCH or SCAN, "job by INDEX job_strip (queue=?)")."""
    aliases = re.findall(rf"{PREFIX}(\w+) AS (\w+)", query.text)
    tables = {alias: table for table, alias in aliases if table in BIG_TABLES}
    tables |= {PREFIX + table: table for table in BIG_TABLES}
    found = []
    for line in lines:
        match = re.match(
            r"(SEARCH|SCAN) (\w+)(?: USING (?:COVERING )?(.*?))?(?: LEFT-JOIN)?$", line
        )
        if match and match[2] in tables:
            way = f" by {match[3].replace(PREFIX, '')}" if match[3] else ""
            found.append((match[1], tables[match[2]] + way))
    return found


def walks(name: str) -> list[tuple[str, str]]:
    """The queries behind a name of the table: a walk is two, one for each direction."""
    if f"{name}_newest" in {query.name for query in SQL}:
        return [(f"{name}_newest", "<"), (f"{name}_oldest", ">")]
    return [(name, "")]


@pytest.mark.parametrize("known", STATISTICS)
def test_Q8_a_statement_rides_the_index_it_names(databases: Path, known: str) -> None:
    with opened(databases / f"{known}.db") as connection:
        for name, expected in PLANS.items():
            for query_name, past in walks(name):
                query = getattr(SQL, query_name)
                found = [way for _, way in accesses(query, plan(connection, query))]
                assert found == [way.replace("{past}", past) for way in expected], query_name


@pytest.mark.parametrize("known", STATISTICS)
def test_Q8_no_statement_reads_a_whole_table(databases: Path, known: str) -> None:
    """Nor does it build an index, or a filter, or skip about in one that does not fit.

    "CREATE BLOOM FILTER", in newer releases of SQLite, is over the list of an IN: that is short.
    """
    with opened(databases / f"{known}.db") as connection:
        for query in SQL:
            lines = plan(connection, query)
            for trick in ("AUTOMATIC", "BLOOM FILTER ON", "ANY("):
                assert not [line for line in lines if trick in line], query.name
            scanned = [way for how, way in accesses(query, lines) if how == "SCAN"]
            assert scanned == READ_ALL.get(query.name, []), query.name


def test_no_statement_is_prepared_again_for_other_values(databases: Path) -> None:
    """A bare parameter that a partial index asks about would be: 12 µs for every row.

    A SQLite built with STAT4 does it for any parameter, by design; nothing can be said of it.
    """
    prepared: list[int] = []

    def note(action: int, *_: object) -> int:
        prepared.append(action)
        return sqlite3.SQLITE_OK

    def run(query: Query, value: int) -> None:
        lists = {"chains", "jobs", "ids", "reasons", "queues", "dead", "workers", "tasks", "names"}
        params = [f"[{value}]" if name in lists else value for name in query.order]
        try:
            connection.execute(query.qmark, params).fetchall()
        except sqlite3.IntegrityError:
            pass  # what is stored does not matter here

    with opened(databases / "small.db") as connection:
        options = connection.execute("PRAGMA compile_options").fetchall()
        by_design = ("ENABLE_STAT4",) in options
        connection.set_authorizer(note)
        for query in SQL:
            run(query, 1)
            assert prepared or query.name == "take_writer", query.name
            prepared.clear()
            run(query, 4)
            # A pragma is prepared whenever its function is called.
            assert not prepared or by_design or query.name == "has_tables", query.name


# ---- steps


def count_steps(connection: sqlite3.Connection, op: Op[Any]) -> int:
    """Steps of SQLite's virtual machine that an operation takes: the same on every run."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    cursor = connection.cursor()
    connection.set_progress_handler(count, 1)
    drive(op, lambda statement: execute(cursor, statement))
    connection.set_progress_handler(None, 0)
    return steps


def turn() -> Op[Any]:
    def steps() -> Steps[None]:
        held = yield from STORE.claim(1, QUEUES, 10)
        assert len(held) == 10
        worker = yield from register(STORE, "w")
        after = yield from STORE.turn(worker, "w", QUEUES, 10, [completed(job) for job in held])
        assert len(after.finished.accepted) == len(after.claimed) == 10

    return Op("turn", steps)


def park_and_unpark() -> Op[Any]:
    def steps() -> Steps[None]:
        held = yield from STORE.claim(1, QUEUES, 10)
        assert (yield from STORE.park(held)) == 10
        assert (yield from unpark(STORE, [STRANGER], QUEUES, 10)) == 10

    return Op("park", steps)


def sweep() -> Op[Any]:
    def steps() -> Steps[None]:
        held = yield from STORE.claim(1, QUEUES, 10)
        assert (yield from STORE.sweep()) == len(held) == 10

    return Op("sweep", steps)


def unblock(numbers: Numbers) -> Op[Any]:
    def steps() -> Steps[None]:
        yield from STORE.complete(numbers.ids(SCHEDULED)[0], "null")
        record = yield from STORE.job(numbers.ids(BLOCKED)[0])
        assert record.state is State.PENDING

    return Op("unblock", steps)


SCHEDULE = """
WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM n WHERE id < ?)
INSERT INTO towline_schedule (name, task, template, every, tz, jitter, catch_up, overlap, next_at)
SELECT 's' || id, 't' || id % 5, '{"arguments":"{}"}', 60000000, 'UTC', 0, 1, 'allow', 1 << 60
  FROM n
"""
TICK = "UPDATE towline_schedule SET next_at = 60000000 WHERE name IN ('s1', 's7')"
OF_SCHEDULES: dict[str, Callable[[], Op[Any]]] = {
    "glance": lambda: STORE.glance(["t1", "t2"]),
    "peek": lambda: STORE.peek(QUEUES, 1, ["t1", "t2"]),
    "fire": lambda: STORE.fire(["t1", "t2"]),
    "list": lambda: STORE.schedules(None, 50, "s5"),
    "list of a task": lambda: STORE.schedules("t1", 10, "s5"),
    "one": lambda: STORE.schedule("s7"),
    "declare": lambda: STORE.declare([], ["t1"], "d"),
}


@pytest.mark.parametrize("name", OF_SCHEDULES)
def test_N4_N11_many_schedules_cost_what_is_due(databases: Path, name: str) -> None:
    steps: list[int] = []
    for number in (200, 20_000):
        with opened(databases / "small.db") as connection:
            connection.execute(SCHEDULE, (number,))
            connection.execute(TICK)
            steps.append(count_steps(connection, OF_SCHEDULES[name]()))
    assert steps[1] <= 2 * steps[0]


def jobs(**where: Any) -> Callable[[Numbers], Op[Any]]:
    return lambda numbers: STORE.jobs(JobFilter(**where), 50)


def chains(**where: Any) -> Callable[[Numbers], Op[Any]]:
    return lambda numbers: STORE.chains(ChainFilter(**where), 50)


HOUR = 3_600_000_000
OPERATIONS: dict[str, Callable[[Numbers], Op[Any]]] = {
    "claim 10 of 5 queues": lambda numbers: STORE.claim(1, QUEUES, 10),
    "claim 10 of one queue": lambda numbers: STORE.claim(1, QUEUES[:1], 10),
    "turn": lambda numbers: turn(),
    "promote": lambda numbers: Op("promote", lambda: promote(STORE)),
    "peek": lambda numbers: STORE.peek(QUEUES),
    "park and unpark": lambda numbers: park_and_unpark(),
    "sweep": lambda numbers: sweep(),
    "unblock": unblock,
    "enqueue": lambda numbers: STORE.enqueue([new_job(1)]),
    "one job": lambda numbers: STORE.job(numbers.ids(PENDING)[-1]),
    "why": lambda numbers: STORE.why(numbers.ids(PENDING)[0]),
    "one chain": lambda numbers: STORE.chain(numbers.ids(FINISHED)[0]),
    "cancel": lambda numbers: STORE.cancel(numbers.ids(PENDING)[0]),
    "run now": lambda numbers: STORE.run_now(numbers.ids(SCHEDULED)[0]),
    "delete": lambda numbers: STORE.delete([numbers.ids(FINISHED)[0]]),
    "prune": lambda numbers: STORE.prune(KeepFor(0, 0, 0), 10),
    "50 jobs": jobs(),
    "50 jobs by state": jobs(state=State.PENDING),
    "50 blocked jobs": jobs(state=State.BLOCKED),
    "50 completed jobs": jobs(state=State.COMPLETED),
    "50 failed jobs": jobs(state=State.FAILED),
    "50 jobs by outcome": jobs(outcome=Outcome.COMPLETED),
    "50 jobs by task": jobs(task=TASK),
    "50 first jobs of chains": jobs(roots=True),
    "50 jobs by their end": jobs(ended_since=0, ended_until=2**60),
    "50 jobs by the task of their chain": jobs(chain_task=TASK),
    "50 jobs by worker": jobs(worker="seed"),
    "50 jobs by queue": jobs(queue=QUEUES[0]),
    "50 pending jobs of a queue": jobs(queue=QUEUES[0], state=State.PENDING),
    "50 jobs by key": jobs(key="none"),
    "50 jobs by label": jobs(label="none"),
    "50 jobs by schedule": jobs(schedule="none"),
    "50 chains": chains(),
    "50 failed chains": chains(state=ChainState.FAILED),
    "50 chains by task": chains(task=TASK),
}


@pytest.mark.parametrize("known", STATISTICS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_L6_R1_S4_cost_does_not_grow_with_what_is_stored(
    databases: Path, name: str, known: str
) -> None:
    """A hundred times as many jobs of every kind: about the same number of steps."""
    with opened(databases / "small.db") as connection:
        before = count_steps(connection, OPERATIONS[name](SMALL))
    with opened(databases / f"{known}.db") as connection:
        after = count_steps(connection, OPERATIONS[name](LARGE))
    assert after <= 2 * before


def test_R1_finding_a_time_halves_the_ids(databases: Path) -> None:
    """Ten times halved a thousand ids, seventeen times a hundred thousand."""
    op = jobs(since=0, until=HOUR)
    with opened(databases / "small.db") as connection:
        before = count_steps(connection, op(SMALL))
    with opened(databases / "of 5 jobs.db") as connection:
        after = count_steps(connection, op(LARGE))
    assert after <= 3 * before


def test_L6_a_claim_takes_few_steps(databases: Path) -> None:
    with opened(databases / "of everything.db") as connection:
        assert count_steps(connection, STORE.claim(1, QUEUES, 10)) < 3_000
