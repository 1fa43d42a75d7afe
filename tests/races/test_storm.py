"""A short race storm, and proof that its auditor finds what it looks for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import database as databases
from tests.database import Database
from tests.kit import SECOND, Clock, claim, completed, continued, failed, new, register
from tests.races.auditor import (
    CHECKS,
    Reader,
    audit_logs,
    audit_tables,
    is_sqlite,
    open_reader,
)
from tests.races.logs import Event, Finding, Logs, read_logs
from tests.races.storm import storm
from tests.races.storm_client import MENU
from tests.speed import by_speed, seed
from towline import Towline
from towline.model import Policy
from towline.operation import Op, Steps
from towline.store import Store

# What an auditor finds does not depend on the engine.
AUDITED = pytest.mark.parametrize(
    "database", [databases.SQLITE, *by_speed([], [databases.newest()])], indirect=True
)


@pytest.mark.parametrize("server", [databases.SQLITE, databases.newest()])
def test_Q1_P5_L1_B2_D1_a_storm_of_killed_processes_loses_nothing(
    tmp_path: Path, server: str
) -> None:
    """On PostgreSQL nobody is told of a deadlock, neither on our connections nor on a caller's."""
    result = storm(tmp_path, seconds=by_speed(4, 20), processes=4, seed=seed(7), server=server)
    assert result.findings == []
    assert {op for op, _ in result.ops} == set(MENU)
    assert result.kills >= 1
    assert result.snapshots >= 5
    assert min(result.rows["acknowledged"], result.rows["claims"], result.healed) > 0


# ---- the auditor can fail: an honest scene, then one lie


def act(store: Store, clock: Clock) -> Steps[None]:
    """Twelve jobs, one for each way to stand. Job 1 has the token t1, its ending e1, and so on."""
    living = yield from register(store, "w-1")
    dying = yield from register(store, "w-2", lease=SECOND)
    yield from store.enqueue([new(label=f"t{n}", queue="first") for n in (1, 2, 3)])
    one, two, three = yield from claim(store, 3, living, ["first"])
    following = continued(two, new(label="t4", delay=60 * SECOND))
    following.error = "e2"
    yield from store.finish([completed(one, '"e1"'), following, failed(three, "e3")])
    yield from store.enqueue([new(label="t5", after=[3], policy=Policy.WAIT)])
    yield from store.enqueue([new(label="t6", key="k")])
    yield from store.enqueue([new(label="t7", after=[6])])
    yield from store.enqueue([new(label="t8", delay=60 * SECOND)])
    yield from store.enqueue([new(label=f"t{n}", queue=f"q{n}") for n in (9, 10, 11)])
    yield from claim(store, 1, living, ["q9"])
    yield from store.park((yield from claim(store, 1, living, ["q10"])))
    yield from claim(store, 1, dying, ["q11"])
    clock.advance(2)
    yield from store.sweep()
    yield from store.enqueue([new(label="own:t12")])


def written(began: int) -> list[Event]:
    """What the processes of this scene would have logged."""
    tokens = [f"t{n}" for n in range(1, 12)] + ["own:t12"]
    stored = [(token, n, n) for n, token in enumerate(tokens, 1) if n != 4]
    return [
        {"e": "maybe", "tokens": tokens},
        {"e": "new", "jobs": stored},
        {"e": "claim", "by": "w-1", "jobs": [(n, 1, began) for n in (1, 2, 3, 9, 10)]},
        {"e": "claim", "by": "w-2", "jobs": [(11, 1, began)]},
        {"e": "lease", "worker": "w-2", "since": began, "until": began + SECOND},
        ending("e1", 1, "completed"),
        ending("e2", 2, "continued", next="t4"),
        ending("e3", 3, "failed"),
        {"e": "ended", "tokens": ["e1", "e2", "e3"]},
        {"e": "op", "op": "turn", "answer": "ok"},
    ]


def ending(token: str, job: int, outcome: str, **fields: Any) -> Event:
    return {"e": "ending", "token": token, "job": job, "attempt": 1, "outcome": outcome, **fields}


@pytest.fixture
def scene(app: Towline, clock: Clock, database: Database) -> Iterator[Reader]:
    """The tables of the scene, to be changed by plain SQL; nothing keeps them from lying."""
    app.runner.run(Op("scene", lambda: act(app.runner.store, clock)))
    app.close()
    reader = open_reader(database.url)
    reader.execute("CREATE TABLE booking (token TEXT PRIMARY KEY, chain_id BIGINT NOT NULL)")
    reader.execute("INSERT INTO booking VALUES ('own:t12', 12)")
    unguard(reader)
    yield reader
    reader.close()


def unguard(reader: Reader) -> None:
    """Let the tables hold what the database itself would refuse. SQLite's live row has its state
    in its key; there PostgreSQL is the stricter one."""
    if is_sqlite(reader):
        reader.execute("PRAGMA ignore_check_constraints = ON")
        return
    reader.execute("ALTER TABLE towline_live DROP CONSTRAINT towline_live_pkey")
    checks = reader.execute(
        "SELECT conrelid::regclass, conname FROM pg_constraint WHERE contype = 'c'"
        " AND conrelid::regclass::text LIKE 'towline%'"
    ).fetchall()
    for table, name in checks:
        reader.execute(f"ALTER TABLE {table} DROP CONSTRAINT {name}")


@pytest.fixture
def events(clock: Clock) -> list[Event]:
    return written(clock())


@pytest.mark.usefixtures("costly")
def test_the_auditor_finds_nothing_in_an_honest_scene(events: list[Event], scene: Reader) -> None:
    assert audit_tables(scene) == []
    assert audit_logs(scene, Logs.of(events)) == []


ATTEMPT = "INSERT INTO towline_attempt (job_id, number, outcome, final, started_at, ended_at)"
LIVE = "INSERT INTO towline_live (state, queue, priority, job_id, attempt, run_at)"

# For each check, by its text: what to change, and the rows it then must find.
LIES: dict[str, list[tuple[str, tuple[Any, ...]]]] = {
    "job {} has {} live rows": [(f"{LIVE} VALUES (4, 'default', 0, 6, 0, 0)", (6, 2))],
    "job {} has {} final attempts": [(f"{ATTEMPT} VALUES (1, 2, 1, 1, 5, 5)", (1, 2))],
    "job {} is live and has ended at once": [(f"{LIVE} VALUES (0, 'first', 0, 1, 1, 0)", (1,))],
    "job {} has neither a live row nor a final attempt": [
        ("DELETE FROM towline_live WHERE job_id = 8", (8,)),
        ("UPDATE towline_attempt SET final = NULL WHERE job_id = 3", (3,)),
    ],
    "the live row of job {} has no job, or another queue or priority": [
        ("UPDATE towline_live SET queue = 'other' WHERE job_id = 8", (8,)),
        ("UPDATE towline_live SET priority = 1 WHERE job_id = 8", (8,)),
        ("DELETE FROM towline_job WHERE id = 8", (8,)),
    ],
    "attempt {1} belongs to job {0}, which does not exist": [
        (f"{ATTEMPT} VALUES (99, 1, 1, 1, 5, 5)", (99, 1))
    ],
    "the final attempt {1} of job {0} is not its last": [
        (f"{ATTEMPT} VALUES (3, 2, 3, NULL, 5, 5)", (3, 1))
    ],
    "job {} is at attempt {}, but attempt {} has ended already": [
        ("UPDATE towline_live SET attempt = 0 WHERE job_id = 11", (11, 0, 1)),
        (f"{ATTEMPT} VALUES (9, 1, 8, NULL, 5, 5)", (9, 1, 1)),
    ],
    "the live row of job {} does not fit its state {}": [
        ("UPDATE towline_live SET worker = NULL WHERE job_id = 9", (9, 3)),
        ("UPDATE towline_live SET worker = 1, claimed_at = 1 WHERE job_id = 6", (6, 0)),
        ("UPDATE towline_live SET parked_for = 'task:b' WHERE job_id = 10", (10, 4)),
        ("UPDATE towline_live SET open_blockers = 0 WHERE job_id = 7", (7, 2)),
        ("UPDATE towline_live SET open_blockers = 1 WHERE job_id = 6", (6, 0)),
    ],
    "job {} is open after {} of {} attempts and {} lost ones": [
        ("UPDATE towline_live SET used = 5 WHERE job_id = 6", (6, 5, 5, 0)),
        ("UPDATE towline_live SET lost = 3 WHERE job_id = 11", (11, 0, 5, 3)),
    ],
    "job {} belongs to chain {}, which does not exist": [
        ("DELETE FROM towline_chain WHERE id = 8", (8, 8))
    ],
    "chain {} has no first job of its id and task": [
        ("UPDATE towline_chain SET task = 'b' WHERE id = 1", (1,)),
        ("DELETE FROM towline_job WHERE id = 2", (2,)),
    ],
    "the positions of chain {} are {} from {} to {}": [
        ("UPDATE towline_job SET position = 2 WHERE id = 4", (2, 2, 0, 2)),
        ("UPDATE towline_job SET position = 0 WHERE id = 4", (2, 2, 0, 0)),
    ],
    "chain {} has state {}, its last job {} says {}": [
        ("UPDATE towline_chain SET state = 2 WHERE id = 1", (1, 2, 1, 1)),
        ("UPDATE towline_chain SET state = 1 WHERE id = 2", (2, 1, 4, 0)),
        ("UPDATE towline_chain SET state = 0 WHERE id = 3", (3, 0, 3, 2)),
        ("UPDATE towline_attempt SET outcome = 6 WHERE job_id = 3", (3, 2, 3, 3)),
    ],
    "chain {} has state {} and ended at {}": [
        ("UPDATE towline_chain SET ended_at = NULL WHERE id = 1", (1, 1, None)),
        ("UPDATE towline_chain SET ended_at = 5 WHERE id = 2", (2, 0, 5)),
    ],
    "job {} says it was continued by {}; its successor is {}": [
        ("UPDATE towline_attempt SET continued_by = 9 WHERE job_id = 2", (2, 9, 4)),
        ("DELETE FROM towline_job WHERE id = 4", (2, 4, None)),
        ("UPDATE towline_attempt SET outcome = 1 WHERE job_id = 2", (2, 4, 4)),
        ("UPDATE towline_job SET chain_id = 1, position = 1 WHERE id = 8", (1, None, 8)),
    ],
    "attempt {1} of job {0} continued, but did not end it": [
        ("UPDATE towline_attempt SET final = NULL WHERE job_id = 2", (2, 1))
    ],
    "job {} is blocked by {} chains, but {} of its blockers are unfinished": [
        ("UPDATE towline_live SET open_blockers = 2 WHERE job_id = 7", (7, 2, 1)),
        ("UPDATE towline_job SET policy = 2 WHERE id = 5", (5, 1, 0)),
    ],
    "job {} is blocked, but all its blockers have ended": [
        ("UPDATE towline_chain SET state = 1, ended_at = 5 WHERE id = 6", (7,))
    ],
    "job {} is blocked behind chain {}, whose end should have failed it": [
        ("UPDATE towline_chain SET state = 3, ended_at = 5 WHERE id = 6", (7, 6))
    ],
    "job {} may run or runs, but chain {} that it waits for is not completed": [
        ("UPDATE towline_live SET state = 0, open_blockers = 0 WHERE job_id = 7", (7, 6)),
        ("UPDATE towline_live SET state = 0, open_blockers = 0 WHERE job_id = 5", (5, 3)),
    ],
    "open job {} was given {} blockers and has {}": [
        ("DELETE FROM towline_blocker WHERE job_id = 7", (7, 1, 0))
    ],
    "an edge from chain {} to job {}: one of them does not exist": [
        ("INSERT INTO towline_blocker (chain_id, job_id, position) VALUES (99, 1, 0)", (99, 1)),
        ("INSERT INTO towline_blocker (chain_id, job_id, position) VALUES (1, 99, 0)", (1, 99)),
    ],
    "{} open chains of task {} have the key {}": [
        ("UPDATE towline_job SET key = 'k' WHERE id = 8", (2, "a", "k"))
    ],
    "{} jobs are behind chain {} in the line of its key": [
        (
            "INSERT INTO towline_blocker (chain_id, job_id, position, in_line) "
            "VALUES (1, 8, -1, 1), (1, 9, -1, 1)",
            (2, 1),
        )
    ],
    "open chain {} does not hold its key {}": [
        ("DELETE FROM towline_key", (6, "k")),
        ("UPDATE towline_key SET chain_id = 8", (6, "k")),
    ],
    "key {} of task {} is held by chain {}, which has another end or does not exist": [
        ("UPDATE towline_key SET ended_at = 5", ("k", "a", 6)),
        ("UPDATE towline_key SET chain_id = 99", ("k", "a", 99)),
        ("UPDATE towline_key SET chain_id = 8", ("k", "a", 8)),
    ],
    "job {} of chain {} has lost the chain's key": [
        ("UPDATE towline_job SET key = 'other' WHERE id = 4", (4, 2))
    ],
    "{} jobs of queue {}, task {} are counted with outcome {}; there are {}": [
        ("UPDATE towline_rollup SET ended = 2 WHERE outcome = 3", (2, "first", "a", 3, 1)),
        ("UPDATE towline_rollup SET removed = 1 WHERE outcome = 2", (0, "first", "a", 2, 1)),
        ("DELETE FROM towline_rollup WHERE outcome = 1", (0, "first", "a", 1, 1)),
    ],
}


def test_every_check_of_the_tables_is_lied_to() -> None:
    assert sorted(LIES) == sorted(check.text for check in CHECKS)


@AUDITED
@pytest.mark.parametrize(
    ("text", "change", "row"), [(text, *lie) for text, lies in LIES.items() for lie in lies]
)
def test_the_auditor_finds_in_the_tables(
    scene: Reader, text: str, change: str, row: tuple[Any, ...]
) -> None:
    (kind,) = (check.kind for check in CHECKS if check.text == text)
    scene.execute(change)
    assert Finding(kind, text.format(*row)) in audit_tables(scene)


@pytest.mark.usefixtures("costly")
def test_the_auditor_finds_what_is_left_over_after_healing(scene: Reader) -> None:
    """All but job 5, which waits by its policy; a job that waits for it is excused with it."""
    left = {6: 0, 7: 2, 8: 1, 4: 1, 9: 3, 10: 4, 11: 1, 12: 0}
    expected = {
        Finding("stuck", f"job {id} is left over in live state {s}") for id, s in left.items()
    }
    assert set(audit_tables(scene, healed=True)) == expected
    scene.execute("UPDATE towline_blocker SET chain_id = 5 WHERE job_id = 7")
    expected.discard(Finding("stuck", "job 7 is left over in live state 2"))
    assert set(audit_tables(scene, healed=True)) == expected


@pytest.mark.usefixtures("costly")
def test_the_auditor_finds_a_damaged_database(scene: Reader) -> None:
    if is_sqlite(scene):
        scene.execute("UPDATE towline_job SET policy = 9 WHERE id = 1")
        scene.execute("PRAGMA ignore_check_constraints = OFF")
        damage = "CHECK constraint failed in towline_job"
    else:
        scene.execute(
            "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'towline_job_pkey'::regclass"
        )
        damage = "index towline_job_pkey is invalid"
    found = [text for kind, text in audit_tables(scene, healed=True) if kind == "integrity"]
    assert found == [damage]


NOTHING = "SELECT 1"
CLAIMED_AGAIN: Event = {"e": "claim", "by": "w-9", "jobs": [(1, 1, 2**60)]}
CLAIMED_BEFORE: Event = {"e": "claim", "by": "w-9", "jobs": [(1, 2, 0)]}
CLAIMED_EARLY: Event = {"e": "claim", "by": "w-9", "jobs": [(11, 2, 5)], "until": 6}
LONG_LEASE: Event = {"e": "lease", "worker": "w-2", "since": 0, "until": 2**60}

# A change of the tables or an event more, and what the comparison then must find.
LIES_OF_LOGS: list[tuple[str, list[Event], Finding]] = [
    (NOTHING, [{"e": "new", "jobs": [("t99", 99, 99)]}],
     Finding("lost", "t99 was acknowledged as job 99 and is gone")),
    ("UPDATE towline_job SET label = 't1' WHERE id = 8", [],
     Finding("twice", "t1 is stored as jobs 1 and 8")),
    (NOTHING, [{"e": "new", "jobs": [("t98", 1, 1)]}],
     Finding("twice", "id 1 was given to t1 and to t98")),
    (NOTHING, [{"e": "new", "jobs": [("t8", 99, 99)]}],
     Finding("row", "t8 is job 8, not 99 as was said")),
    (NOTHING, [{"e": "none", "tokens": ["t8"]}],
     Finding("row", "t8 was rolled back or refused, and is stored")),
    ("UPDATE towline_job SET label = 'ghost' WHERE id = 8", [],
     Finding("row", "ghost is stored, and nobody ever wanted to")),
    (NOTHING, [{"e": "left", "chains": [8]}],
     Finding("row", "chain 8 was deleted and is still there")),
    ("INSERT INTO booking VALUES ('own:x', 77)", [],
     Finding("lost", "own:x committed with the caller's row, and is gone")),
    ("DELETE FROM booking", [],
     Finding("row", "own:t12 is stored without the caller's row")),
    (NOTHING, [CLAIMED_AGAIN],
     Finding("twice", "attempt 1 of job 1: w-1 and w-9")),
    (NOTHING, [CLAIMED_BEFORE],
     Finding("twice", "attempt 2 of job 1 was claimed before 1")),
    (f"{ATTEMPT} VALUES (11, 2, 8, NULL, 5, 5)", [CLAIMED_EARLY],
     Finding("early", "job 11 was started again before attempt 1 had ended")),
    (NOTHING, [LONG_LEASE],
     Finding("fence", "attempt 1 of job 11 was taken from living w-2")),
    ("UPDATE towline_attempt SET output = '\"x\"' WHERE job_id = 1", [],
     Finding("fence", "attempt 1 of job 1 ended with '\"x\"', which nobody asked for")),
    ("UPDATE towline_attempt SET error = 'e1' WHERE job_id = 3", [],
     Finding("twice", "e1 ended an attempt of job 1 and attempt 1 of job 3")),
    (NOTHING, [ending("e3", 3, "timeout")],
     Finding("fence", "attempt 1 of job 3 has outcome 3, but e3 asked for (3, 1, 4)")),
    (NOTHING, [{"e": "refused", "tokens": ["e1"]}],
     Finding("fence", "attempt 1 of job 1 was ended by e1, which was told it was refused")),
    ("UPDATE towline_job SET label = 't99' WHERE id = 4", [],
     Finding("chain", "attempt 1 of job 2 was continued by another job than e2 asked for")),
    (NOTHING, [ending("e9", 8, "completed"), {"e": "ended", "tokens": ["e9"]}],
     Finding("lost", "e9 was told that it ended job 8: no row")),
    (NOTHING, [{"e": "finding", "kind": "error", "text": "seen by a process"}],
     Finding("error", "seen by a process")),
]  # fmt: skip


@AUDITED
@pytest.mark.parametrize(("change", "more", "finding"), LIES_OF_LOGS)
def test_the_auditor_finds_between_logs_and_tables(
    events: list[Event],
    scene: Reader,
    change: str,
    more: list[Event],
    finding: Finding,
) -> None:
    scene.execute(change)
    assert finding in audit_logs(scene, Logs.of([*events, *more]))


EXCUSES: list[list[Event]] = [
    [{"e": "new", "jobs": [("t99", 99, 99)]}, {"e": "left", "chains": [99]}],
    [{"e": "new", "jobs": [("t99", 99, 99)]}, {"e": "leaving", "chains": [99]}],
    [LONG_LEASE, {"e": "killed", "process": "w"}],
    [ending("e9", 99, "completed"), {"e": "ended", "tokens": ["e9"]}],
    [{"e": "maybe", "tokens": ["t99"]}, ending("e9", 8, "completed")],
]


@pytest.mark.usefixtures("costly")
@pytest.mark.parametrize("more", EXCUSES)
def test_the_auditor_excuses_what_was_deleted_killed_or_never_answered(
    events: list[Event], scene: Reader, more: list[Event]
) -> None:
    assert audit_logs(scene, Logs.of([*events, *more])) == []


def test_a_torn_last_line_of_a_killed_process_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "p1.jsonl").write_text('{"e": "left", "chains": [1]}\n{"e": "left", "cha')
    assert list(read_logs(tmp_path)) == [{"e": "left", "chains": [1]}]
