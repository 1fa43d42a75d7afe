"""M1 to M7: how the tables come to be, and what they refuse."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit import Clock, new, rows
from tests.sqlite.conftest import add
from tests.sqlite.processes import together
from towline import Towline
from towline.errors import InvalidSetting, SchemaMismatch, SchemaMissing
from towline.migrate import Migrations
from towline.sql import TABLES, VIEWS, fill
from towline.sqlite.engine import PACKAGE

FIRST = "0001-initial"
KNOWN = Migrations(PACKAGE, "towline_").names  # without those a test adds
RECORDED = "SELECT name FROM towline_migration ORDER BY name"

Steps = dict[str, str]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[Steps], None]:
    """Let this release know further migrations, by name and text."""
    step = Migrations._step

    def know(steps: Steps) -> None:
        monkeypatch.setattr(Migrations, "names", (*KNOWN, *steps))
        monkeypatch.setattr(
            Migrations, "_step", lambda self, name: steps.get(name) or step(self, name)
        )

    return know


def catalogue(database: Path) -> dict[str, Any]:
    """Everything the database says about its tables, indexes and views."""
    found: dict[str, Any] = {}
    listed = rows(database, "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2")
    for kind, name, table, text in listed:
        found[f"{kind} {name}"] = (table, text and re.sub(r"\s+", " ", text))
        if kind == "table":
            found[f"columns of {name}"] = rows(database, f"PRAGMA table_xinfo({name})")
            indexes = rows(database, f"PRAGMA index_list({name})")
            found[f"indexes of {name}"] = sorted(row[1:] for row in indexes)
        elif kind == "index":
            found[f"columns of {name}"] = rows(database, f"PRAGMA index_xinfo({name})")
    return found


def tables(database: Path) -> set[str]:
    return {name for (name,) in rows(database, "SELECT name FROM sqlite_master")}


# ---- M1

OPEN_AT_ONCE = """
def work(number):
    app = open_app(lock_timeout=30)  # fifty in line, on a machine that may be busy with others
    id = app.add.enqueue(number).id
    app.close()
    return id
"""


def test_M1_fifty_processes_open_an_empty_database_at_once(database: Path) -> None:
    assert sorted(together(50, OPEN_AT_ONCE, database)) == list(range(1, 51))
    arguments = rows(database, "SELECT arguments FROM towline_job")
    assert {text for (text,) in arguments} == {f'{{"number":{n}}}' for n in range(50)}
    assert rows(database, RECORDED) == [(name,) for name in KNOWN]
    assert rows(database, "PRAGMA journal_mode") == [("wal",)]
    assert rows(database, "PRAGMA auto_vacuum") == [(2,)]
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]


def test_M1_an_application_that_opens_the_file_first_keeps_its_settings(
    database: Path, make_app: Callable[..., Towline]
) -> None:
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")
    connection.close()
    app = make_app()
    app.task(add).enqueue(1)
    assert rows(database, "PRAGMA journal_mode") == [("wal",)]
    assert rows(database, "PRAGMA auto_vacuum") == [(0,)]
    assert "mine" in tables(database)
    assert app.vacuum() == 0


# ---- M2


def test_M2_migrations_are_recorded_with_their_time(
    make_app: Callable[..., Towline], clock: Clock, database: Path, later: Callable[[Steps], None]
) -> None:
    app = make_app(clock=clock)
    assert app.migrate() == list(KNOWN)
    assert app.migrate() == []
    first = clock.time
    clock.advance(3600)
    later({"0900-more": "ALTER TABLE {job} ADD COLUMN more TEXT;", "0901-again": "-- nothing\n"})
    assert make_app(clock=clock).migrate() == ["0900-more", "0901-again"]
    recorded = rows(database, "SELECT name, applied_at FROM towline_migration ORDER BY name")
    assert recorded[0] == (FIRST, first)
    assert recorded[-2:] == [("0900-more", clock.time), ("0901-again", clock.time)]


def test_M2_a_failed_migration_leaves_nothing_half_done(
    app: Towline, make_app: Callable[..., Towline], database: Path, later: Callable[[Steps], None]
) -> None:
    app.task(add).enqueue(1)
    before = catalogue(database)
    text = (
        "ALTER TABLE {job} ADD COLUMN more TEXT; UPDATE {job} SET label = 'changed';"
        "CREATE INDEX {prefix}job_more ON {job} (more); INSERT INTO no_such_table VALUES (1);"
    )
    later({"0900-fine": "CREATE TABLE {prefix}fine (id);", "0901-broken": text})
    for _ in range(2):
        with pytest.raises(Exception, match="no_such_table"):
            make_app().migrate()
    assert catalogue(database) == before
    assert rows(database, RECORDED) == [(name,) for name in KNOWN]
    assert rows(database, "SELECT label FROM towline_job") == [(None,)]


def test_M2_a_failed_first_creation_leaves_an_empty_database(
    make_app: Callable[..., Towline], database: Path
) -> None:
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE towline_mark (taken)")
    connection.close()
    with pytest.raises(Exception, match="towline_mark already exists"):
        make_app().counts()
    assert tables(database) == {"towline_mark"}


def test_M2_one_process_migrates_while_others_come(
    app: Towline, database: Path, later: Callable[[Steps], None]
) -> None:
    """All of them apply the same step at once; it is applied once."""
    script = """
from towline.migrate import Migrations
names, step = Migrations(*("towline.sqlite", "towline_")).names, Migrations._step
Migrations.names = (*names, "0900-more")
Migrations._step = lambda self, name: "ALTER TABLE {job} ADD COLUMN more TEXT;"
def work(number):
    app = open_app()
    applied = app.migrate()
    app.close()
    return applied
"""
    answers = together(8, script, database)
    assert sorted(answers) == [[]] * 7 + [["0900-more"]]
    assert len([c for c in rows(database, "PRAGMA table_info(towline_job)") if c[1] == "more"]) == 1


# ---- M3


def test_M3_an_older_schema_says_which_steps_and_the_command(
    app: Towline, make_app: Callable[..., Towline], later: Callable[[Steps], None]
) -> None:
    later({"0900-more": "ALTER TABLE {job} ADD COLUMN more TEXT;"})
    strict = make_app(migrate=False)
    for call in (strict.counts, lambda: strict.runner.run(strict.runner.store.enqueue([new()]))):
        with pytest.raises(
            SchemaMismatch, match=r"older than this release.*0900-more missing"
        ) as e:
            call()
        assert "run `towline migrate` or call app.migrate()" in str(e.value)
    assert strict.migrate() == ["0900-more"]
    assert strict.counts() == {}


def test_M3_an_older_schema_is_brought_up_to_date_on_first_use(
    app: Towline, make_app: Callable[..., Towline], database: Path, later: Callable[[Steps], None]
) -> None:
    job = app.task(add).enqueue(1)
    later({"0900-more": "ALTER TABLE {job} ADD COLUMN more TEXT;"})
    assert make_app().job(job.id).state == "pending"
    assert rows(database, RECORDED)[-1] == ("0900-more",)
    assert rows(database, "SELECT more FROM towline_job") == [(None,)]


def test_M3_no_tables_and_no_leave_to_make_them_says_the_command(
    make_app: Callable[..., Towline], database: Path
) -> None:
    app = make_app(migrate=False)
    with pytest.raises(SchemaMissing, match="run `towline migrate` or call"):
        app.counts()
    assert tables(database) == set()


def come_from_later(database: Path, name: str, prefix: str = "towline_") -> None:
    """As if a newer release had been here."""
    connection = sqlite3.connect(database)
    connection.execute(f"INSERT INTO {prefix}migration VALUES (?, 1)", (name,))
    connection.commit()
    connection.close()


@pytest.mark.parametrize("migrate", [True, False])
def test_M3_a_newer_schema_that_only_adds_keeps_working(
    app: Towline, make_app: Callable[..., Towline], database: Path, migrate: bool
) -> None:
    connection = sqlite3.connect(database)
    connection.execute("ALTER TABLE towline_job ADD COLUMN more TEXT DEFAULT 'x'")
    connection.execute("ALTER TABLE towline_live ADD COLUMN more TEXT")
    connection.execute("CREATE TABLE towline_extra (id)")
    connection.close()
    come_from_later(database, "9000-more")
    old = make_app(migrate=migrate)
    job = old.task(add).enqueue(1)
    assert job.refresh().state == "pending"
    assert old.complete(job.id, 3).state == "completed"
    assert old.migrate() == []


@pytest.mark.parametrize("migrate", [True, False])
def test_M3_a_newer_schema_that_adds_works_first_on_a_callers_open_transaction(
    app: Towline, make_app: Callable[..., Towline], database: Path, migrate: bool
) -> None:
    come_from_later(database, "9000-more")
    task = make_app(migrate=migrate).task(add)
    caller = sqlite3.connect(database, isolation_level=None)
    caller.execute("BEGIN IMMEDIATE")
    assert task.using(on=caller).enqueue(1).id == 1
    caller.execute("COMMIT")
    caller.close()


@pytest.mark.parametrize("migrate", [True, False])
@pytest.mark.parametrize("names", [["9000-new-breaking"], ["9000-new-breaking", "9001-more"]])
def test_M3_a_newer_schema_that_breaks_says_to_upgrade(
    app: Towline,
    make_app: Callable[..., Towline],
    database: Path,
    names: list[str],
    migrate: bool,
) -> None:
    for name in names:
        come_from_later(database, name)
    old = make_app(migrate=migrate)
    task = old.task(add)
    for call in (old.counts, lambda: task.enqueue(1), old.migrate):
        with pytest.raises(SchemaMismatch, match=r"newer .*9000-new-breaking.*install the release"):
            call()
    caller = sqlite3.connect(database, isolation_level=None)
    with pytest.raises(SchemaMismatch, match="install the release"):
        task.using(on=caller).enqueue(1)
    caller.execute("BEGIN IMMEDIATE")
    with pytest.raises(SchemaMismatch, match="install the release"):
        task.using(on=caller).enqueue(1)
    caller.close()
    assert rows(database, "SELECT count(*) FROM towline_job") == [(0,)]


def test_M3_an_older_schema_on_a_callers_open_transaction_says_the_command(
    app: Towline, make_app: Callable[..., Towline], database: Path, later: Callable[[Steps], None]
) -> None:
    later({"0900-more": "ALTER TABLE {job} ADD COLUMN more TEXT;"})
    task = make_app().task(add)
    caller = sqlite3.connect(database, isolation_level=None)
    caller.execute("BEGIN IMMEDIATE")
    with pytest.raises((SchemaMismatch, SchemaMissing), match=r"app\.migrate\(\)"):
        task.using(on=caller).enqueue(1)
    assert caller.in_transaction
    caller.execute("ROLLBACK")
    assert task.using(on=caller).enqueue(1).id == 1
    caller.close()
    assert rows(database, RECORDED)[-1] == ("0900-more",)


# ---- M4


def test_M4_a_fresh_schema_equals_a_migrated_one(app: Towline, database: Path) -> None:
    """Step by step from the first migration, compared from the catalogue."""
    migrated = database.parent / "migrated.db"
    connection = sqlite3.connect(migrated)
    for name in KNOWN:
        connection.executescript(fill(Migrations(PACKAGE, "")._step(name), "towline_"))
    connection.close()
    assert catalogue(migrated) == catalogue(database)
    assert {f"towline_{name}" for name in TABLES + VIEWS} <= tables(migrated)


def test_M4_the_comparison_sees_a_difference(app: Towline, database: Path) -> None:
    before = catalogue(database)
    connection = sqlite3.connect(database)
    connection.execute("CREATE INDEX other ON towline_job (task)")
    connection.close()
    assert catalogue(database) != before


# ---- M5


@pytest.mark.parametrize(
    "prefix",
    [
        "", "Towline_", "1st_", "a-b", "a b", "a.b", "a;b", 'a"b', "a'b", "a`b", "[a]", "a\n",
        "towline_\n", "\na", "a\0", "größe_", "x; DROP TABLE job; --", "a" * 41, "sqlite_", "pg_",
        "sqlite_stat_", "{job}", "a%s", "a?", "ａ",
    ],
)  # fmt: skip
def test_M5_a_prefix_that_could_be_more_than_a_name_is_refused(
    make_app: Callable[..., Towline], database: Path, prefix: str
) -> None:
    with pytest.raises(InvalidSetting, match="prefix"):
        make_app(prefix=prefix)
    assert not database.exists()


@pytest.mark.parametrize("prefix", [None, 1, b"towline_", ["a"]])
def test_M5_a_prefix_is_text(make_app: Callable[..., Towline], prefix: object) -> None:
    with pytest.raises(InvalidSetting, match="prefix"):
        make_app(prefix=prefix)


@pytest.mark.parametrize("prefix", ["a", "_", "jobs_", "a1_", "x" * 40, "job", "select_"])
def test_M5_a_prefix_that_is_a_name_works(
    make_app: Callable[..., Towline], database: Path, prefix: str
) -> None:
    app = make_app(prefix=prefix)
    job = app.task(add).enqueue(1)
    assert app.complete(job.id, 2).state == "completed"
    named = rows(database, "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'")
    assert all(name.startswith(prefix) for (name,) in named)


def test_M5_two_apps_with_their_own_prefixes_never_meet(
    make_app: Callable[..., Towline], database: Path
) -> None:
    """Also when one prefix is the beginning of the other."""
    one, two = make_app(prefix="app_"), make_app(prefix="app_job")
    here, there = one.task(add), two.task(add)
    first = here.using(key="k").enqueue(1)
    second = there.using(key="k").enqueue(2)
    assert (first.id, second.id) == (1, 1)
    assert (first.created, second.created) == (True, True)
    one.pause("default")
    assert (one.paused(), two.paused()) == (["default"], [])
    one.cancel(1)
    assert (first.refresh().state, second.refresh().state) == ("cancelled", "pending")
    assert one.delete(1) == [1]
    assert [job.record.arguments for job in two.jobs()] == ['{"number":2}']
    assert len(one.jobs()) == 0
    assert len(tables(database)) == 2 * len(catalogue_of("app_", make_app, database))


def catalogue_of(prefix: str, make_app: Callable[..., Towline], database: Path) -> set[str]:
    """What one app alone makes of an empty file."""
    alone = database.parent / "alone.db"
    make_app(f"sqlite:///{alone}", prefix=prefix).migrate()
    return tables(alone)


def test_M5_migrations_of_two_prefixes_are_kept_apart(
    make_app: Callable[..., Towline], database: Path
) -> None:
    make_app(prefix="a_").migrate()
    come_from_later(database, "9000-new-breaking", "a_")
    assert make_app(prefix="b_").counts() == {}
    with pytest.raises(SchemaMismatch):
        make_app(prefix="a_").counts()


# ---- M6


def test_M6_the_printed_ddl_gives_the_same_tables(
    app: Towline, make_app: Callable[..., Towline], database: Path
) -> None:
    by_hand = database.parent / "by_hand.db"
    connection = sqlite3.connect(by_hand)
    connection.executescript(app.ddl())
    connection.close()
    assert catalogue(by_hand) == catalogue(database)
    other = make_app(f"sqlite:///{by_hand}", migrate=False)
    job = other.task(add).enqueue(1)
    assert other.complete(job.id, 2).state == "completed"
    assert other.migrate() == []
    ((name, at),) = rows(by_hand, "SELECT name, applied_at FROM towline_migration")
    assert name == FIRST
    (now,) = rows(by_hand, "SELECT CAST(strftime('%s', 'now') AS INTEGER) * 1000000")[0]
    assert abs(now - at) < 3600 * 1_000_000


def test_M6_the_printed_ddl_is_for_the_prefix_of_the_app(
    make_app: Callable[..., Towline], database: Path
) -> None:
    app = make_app(prefix="other_", migrate=False)
    text = app.ddl()
    assert "{" not in text
    assert not re.search(r"towline_\w", text)
    connection = sqlite3.connect(database)
    connection.executescript(text)
    connection.close()
    assert app.task(add).enqueue(1).id == 1


def test_M6_the_steps_after_a_migration_can_be_printed(
    app: Towline, make_app: Callable[..., Towline], database: Path, later: Callable[[Steps], None]
) -> None:
    later({"0900-more": "ALTER TABLE {job} ADD COLUMN more TEXT;"})
    newer = make_app(migrate=False)
    text = newer.ddl(after=KNOWN[-1])
    assert "CREATE TABLE" not in text
    connection = sqlite3.connect(database)
    connection.executescript(text)
    connection.close()
    assert newer.task(add).enqueue(1).id == 1
    assert rows(database, RECORDED)[-1] == ("0900-more",)
    assert newer.ddl(after="0900-more").strip() == ""


def test_M6_printing_opens_nothing(make_app: Callable[..., Towline], database: Path) -> None:
    make_app().ddl()
    assert not database.exists()


# ---- M7


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE towline_live SET state = 5",
        "UPDATE towline_live SET state = -1",
        "UPDATE towline_live SET state = NULL",
        "UPDATE towline_live SET state = 'pending'",
        "UPDATE towline_live SET open_blockers = -1",
        "UPDATE towline_chain SET state = 4",
        "UPDATE towline_chain SET state = 'open'",
        "UPDATE towline_chain SET state = NULL",
        "UPDATE towline_attempt SET outcome = 0",
        "UPDATE towline_attempt SET outcome = 9",
        "UPDATE towline_attempt SET outcome = 'completed'",
        "UPDATE towline_attempt SET outcome = NULL",
        "UPDATE towline_attempt SET final = 0",
        "UPDATE towline_job SET policy = 3",
        "UPDATE towline_job SET policy = NULL",
        "UPDATE towline_job SET policy = 'fail'",
    ],
)
def test_M7_the_database_refuses_an_unknown_state_outcome_or_policy(
    app: Towline, database: Path, text: str
) -> None:
    task = app.task(add)
    task.enqueue(1)
    app.complete(task.enqueue(2).id, 2)
    app.close()
    with pytest.raises(sqlite3.IntegrityError, match="constraint failed"):
        rows(database, text)


@pytest.mark.parametrize(
    ("table", "column", "values"),
    [
        ("live", "state", range(5)),
        ("chain", "state", range(4)),
        ("attempt", "outcome", range(1, 9)),
        ("job", "policy", range(3)),
    ],
)
def test_M7_the_database_accepts_each_known_one(
    app: Towline, database: Path, table: str, column: str, values: range
) -> None:
    task = app.task(add)
    task.enqueue(1)
    app.complete(task.enqueue(2).id, 2)
    app.close()
    for value in values:
        rows(database, f"UPDATE towline_{table} SET {column} = {value}")
        assert rows(database, f"SELECT DISTINCT {column} FROM towline_{table}") == [(value,)]
