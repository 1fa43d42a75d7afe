"""M1 to M3 and P8: how the tables come to be, and how they change while others work."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import Clock, new
from tests.postgres.catalogue import catalogue, relations
from tests.postgres.conftest import add, on_newest
from tests.races.together import in_processes, in_threads
from tests.sqlite.crew import Held, until
from windlass import Windlass
from windlass.errors import SchemaMismatch, SchemaMissing, StoreError, WriterBusy
from windlass.migrate import CONCURRENT, Migrations
from windlass.postgres import engine as engines

PACKAGE = "windlass.postgres"
KNOWN = Migrations(PACKAGE, "windlass_", "public").names  # without those a test adds
MORE = "ALTER TABLE {job} ADD COLUMN more text;"
INDEX = (
    CONCURRENT
    + """
CREATE INDEX CONCURRENTLY IF NOT EXISTS {prefix}job_more ON {job} (task);
"""
)

Make = Callable[..., Windlass]
Steps = dict[str, str]
Connect = Callable[..., psycopg.Connection[Any]]


def know_steps(steps: Steps, patch: Callable[[type, str, Any], None] = setattr) -> None:
    """Let this release know further migrations, by name and text."""
    step = Migrations._step
    patch(Migrations, "names", (*KNOWN, *steps))
    patch(Migrations, "_step", lambda self, name: steps.get(name) or step(self, name))


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[Steps], None]:
    return lambda steps: know_steps(steps, monkeypatch.setattr)


@pytest.fixture
def eye(connect: Connect) -> Callable[..., list[tuple[Any, ...]]]:
    """Plain SQL beside the library, on a connection that holds nothing."""
    connection = connect(autocommit=True)

    def look(text: str, *params: Any) -> list[tuple[Any, ...]]:
        cursor = connection.execute(text.encode(), params or None)
        return cursor.fetchall() if cursor.description else []

    return look


def recorded(url: str, prefix: str = "windlass_") -> list[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        text = f"SELECT name FROM {prefix}migration ORDER BY name"
        return [name for (name,) in connection.execute(text.encode())]


# ---- M1


def open_and_enqueue(url: str, number: int) -> int:
    app = Windlass(url)
    try:
        return app.task(add).enqueue(number).id
    finally:
        app.close()


@on_newest
def test_M1_many_processes_open_an_empty_database_at_once(empty: str, tmp_path: Path) -> None:
    ids = in_processes(6, tmp_path / "gate", open_and_enqueue, empty)
    assert sorted(ids) == list(range(1, 7))
    assert recorded(empty) == list(KNOWN)


def test_M1_many_threads_with_apps_of_their_own_open_an_empty_database_at_once(empty: str) -> None:
    ids = in_threads(30, lambda number: open_and_enqueue(empty, number))
    assert sorted(ids) == list(range(1, 31))
    assert recorded(empty) == list(KNOWN)


def test_M1_apps_with_other_prefixes_create_one_schema_at_once(empty: str) -> None:
    """CREATE SCHEMA IF NOT EXISTS of two at once fails for one of them; a lock keeps it out."""

    def open_own(number: int) -> list[str]:
        app = Windlass(empty, schema="jobs", prefix=f"a{number}_")
        try:
            return app.migrate()
        finally:
            app.close()

    assert in_threads(12, open_own) == [list(KNOWN)] * 12


# ---- M2


def test_M2_migrations_are_recorded_with_their_time(
    url: str, empty: str, make_app: Make, clock: Clock, later: Callable[[Steps], None], eye: Any
) -> None:
    app = make_app(empty, clock=clock)
    assert app.migrate() == list(KNOWN)
    assert app.migrate() == []
    clock.advance(3600)
    later({"0900-more": MORE, "0901-again": "-- nothing\n"})
    assert make_app(clock=clock).migrate() == ["0900-more", "0901-again"]
    rows = eye("SELECT name, applied_at FROM windlass_migration ORDER BY name")
    assert rows[-2:] == [("0900-more", clock.time), ("0901-again", clock.time)]
    assert [name for name, _ in rows] == [*KNOWN, "0900-more", "0901-again"]


def test_M2_without_a_clock_the_time_is_the_databases(empty: str, make_app: Make) -> None:
    make_app(empty).migrate()
    with psycopg.connect(empty) as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM now()) * 1000000 - applied_at FROM windlass_migration"
        ).fetchone()
    assert row is not None
    assert abs(row[0]) < 600 * 1_000_000


def test_M2_a_failed_migration_leaves_nothing_half_done(
    app: Windlass, url: str, make_app: Make, later: Callable[[Steps], None], eye: Any
) -> None:
    app.run(app.store.enqueue([new()]))
    before = catalogue(url)
    text = (
        f"{MORE} UPDATE {{job}} SET label = 'changed';"
        "CREATE INDEX {prefix}job_more ON {job} (more); INSERT INTO no_such_table VALUES (1);"
    )
    later({"0900-fine": "CREATE TABLE {prefix}fine (id bigint);", "0901-broken": text})
    for _ in range(2):
        with pytest.raises(StoreError, match="no_such_table"):
            make_app().migrate()
    assert catalogue(url) == before
    assert recorded(url) == list(KNOWN)
    assert eye("SELECT label FROM windlass_job") == [(None,)]


def test_M2_a_failed_first_creation_leaves_an_empty_database(empty: str, make_app: Make) -> None:
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA jobs; CREATE TABLE jobs.windlass_mark (taken text)")
    with pytest.raises(StoreError, match=r"windlass_mark.* already exists"):
        make_app(empty, schema="jobs").counts()
    assert relations(empty, "jobs") == {"windlass_mark"}


def migrate_more(url: str, number: int) -> list[str]:
    know_steps({"0900-more": MORE, "0901-index": INDEX, "0902-last": "-- nothing\n"})
    app = Windlass(url)
    try:
        return app.migrate()
    finally:
        app.close()


@on_newest
def test_M2_P8_all_apply_the_same_steps_at_once_and_each_is_applied_once(
    url: str, tmp_path: Path
) -> None:
    """One of the steps is outside a transaction."""
    answers = in_processes(4, tmp_path / "gate", migrate_more, url)
    assert sorted(name for names in answers for name in names) == [
        "0900-more",
        "0901-index",
        "0902-last",
    ]
    assert recorded(url) == [*KNOWN, "0900-more", "0901-index", "0902-last"]
    assert [row[4] for row in catalogue(url)["indexes"] if row[0] == "windlass_job_more"] == [True]


def build_index(url: str) -> None:
    know_steps({"0901-index": INDEX})
    Windlass(url).migrate()


# ---- M3


def test_M3_an_older_schema_says_which_steps_and_the_command(
    app: Windlass, make_app: Make, later: Callable[[Steps], None]
) -> None:
    later({"0900-more": MORE})
    strict = make_app(migrate=False)
    for call in (strict.counts, lambda: strict.run(strict.store.enqueue([new()]))):
        with pytest.raises(
            SchemaMismatch, match=r"older than this release.*0900-more missing"
        ) as e:
            call()
        assert "run `windlass migrate` or call app.migrate()" in str(e.value)
    assert strict.migrate() == ["0900-more"]
    assert strict.counts() == {}


def test_M3_an_older_schema_is_brought_up_to_date_on_first_use(
    app: Windlass, url: str, make_app: Make, later: Callable[[Steps], None]
) -> None:
    job = app.task(add).enqueue(1)
    later({"0900-more": MORE, "0901-index": INDEX})
    assert make_app().job(job.id).state == "pending"
    assert recorded(url)[-2:] == ["0900-more", "0901-index"]


def test_M3_no_tables_and_no_leave_to_make_them_says_the_command(
    empty: str, make_app: Make
) -> None:
    for schema in ("public", "jobs"):
        with pytest.raises(SchemaMissing, match="run `windlass migrate` or call"):
            make_app(empty, migrate=False, schema=schema).counts()
        assert relations(empty) == set()


@pytest.mark.parametrize("migrate", [True, False])
def test_M3_a_newer_schema_that_only_adds_keeps_working(
    app: Windlass, make_app: Make, eye: Any, connect: Connect, migrate: bool
) -> None:
    eye("ALTER TABLE windlass_job ADD COLUMN more text DEFAULT 'x'")
    eye("ALTER TABLE windlass_live ADD COLUMN more text")
    eye("ALTER TABLE windlass_attempt ADD COLUMN more text")
    eye("INSERT INTO windlass_migration VALUES ('9000-more', 1)")
    old = make_app(migrate=migrate)
    task = old.task(add)
    caller = connect()
    first = task.using(on=caller).enqueue(1)
    caller.commit()
    assert first.refresh().state == "pending"
    assert old.complete(first.id, 3).state == "completed"
    assert len(old.enqueue_many([task.call(n) for n in range(300)])) == 300  # by COPY
    assert old.migrate() == []


@pytest.mark.parametrize("migrate", [True, False])
def test_M3_a_newer_schema_that_breaks_says_to_upgrade(
    app: Windlass, make_app: Make, eye: Any, connect: Connect, migrate: bool
) -> None:
    eye("INSERT INTO windlass_migration VALUES ('9000-new-breaking', 1), ('9001-more', 1)")
    old = make_app(migrate=migrate)
    task = old.task(add)
    caller = connect()
    for call in (
        old.counts,
        lambda: task.enqueue(1),
        old.migrate,
        lambda: task.using(on=caller).enqueue(1),
    ):
        with pytest.raises(
            SchemaMismatch, match=r"newer .*9000-new-breaking.*pip install --upgrade"
        ):
            call()
    assert eye("SELECT count(*) FROM windlass_job") == [(0,)]


def test_M3_an_older_schema_on_a_callers_open_transaction_says_the_command(
    app: Windlass, url: str, make_app: Make, connect: Connect, later: Callable[[Steps], None]
) -> None:
    later({"0900-more": MORE})
    task = make_app().task(add)
    caller = connect()
    caller.execute("SELECT 1")
    with pytest.raises(SchemaMismatch, match=r"app\.migrate\(\)"):
        task.using(on=caller).enqueue(1)
    assert caller.info.transaction_status == psycopg.pq.TransactionStatus.INTRANS
    caller.rollback()
    assert task.using(on=caller).enqueue(1).id == 1
    caller.commit()
    assert recorded(url)[-1] == "0900-more"


# ---- P8: behind somebody's long SELECT


@contextmanager
def reading(connection: psycopg.Connection[Any], table: str = "windlass_live") -> Iterator[None]:
    """A transaction that has read a table and stays open: nobody can change the table meanwhile."""
    connection.execute(f"SELECT count(*) FROM {table}".encode())
    yield
    connection.rollback()


def waits_for_lock(eye: Callable[..., list[tuple[Any, ...]]], text: str) -> bool:
    found = eye(
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND wait_event_type = 'Lock' AND query ILIKE %s",
        f"%{text}%",
    )
    return bool(found[0][0])


def test_P8_a_migration_behind_a_reader_lets_claims_through_and_comes_to_its_end(
    app: Windlass,
    url: str,
    make_app: Make,
    connect: Connect,
    later: Callable[[Steps], None],
    eye: Any,
) -> None:
    """It waits a moment, in which claims queue up behind it, gives up, and tries again."""
    app.run(app.store.enqueue([new() for _ in range(20)]))
    later({"0900-more": "ALTER TABLE {live} ADD COLUMN more text;"})
    migrating = make_app()
    with reading(connect()):
        held = Held(migrating.migrate)
        until(lambda: waits_for_lock(eye, "ALTER TABLE"))
        for _ in range(20):
            assert len(app.run(app.store.claim(1, ["default"], 1))) == 1
        assert held.thread.is_alive()
        assert eye("SELECT count(*) FROM windlass_live WHERE state = 3") == [(20,)]
        until(lambda: waits_for_lock(eye, "ALTER TABLE"))  # and it has not given up
    assert held.result() == ["0900-more"]
    assert recorded(url)[-1] == "0900-more"


def test_P8_a_migration_waits_as_long_as_its_own_lock_timeout_says(
    app: Windlass, make_app: Make, later: Callable[[Steps], None], eye: Any
) -> None:
    """Whatever the app's is."""
    text = "CREATE TABLE {prefix}more AS SELECT current_setting('lock_timeout') AS given;"
    later({"0900-more": text})
    make_app(lock_timeout=60).migrate()
    assert eye("SELECT given FROM windlass_more") == [("200ms",)]


def test_P8_a_migration_that_never_gets_through_says_who_is_in_the_way(
    app: Windlass, url: str, make_app: Make, connect: Connect, later: Callable[[Steps], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(engines, "MIGRATION_PATIENCE", 0.5)
    later({"0900-more": "ALTER TABLE {live} ADD COLUMN more text;"})
    with reading(connect()):
        with pytest.raises(WriterBusy, match=r"migrate waited .* another transaction holds"):
            make_app().migrate()
    assert recorded(url) == list(KNOWN)
    assert make_app().migrate() == ["0900-more"]


# ---- P8: indexes that are built beside the traffic


def indexes(url: str) -> dict[str, bool]:
    """Which there are of the step's, and whether each is valid."""
    return {row[0]: row[4] for row in catalogue(url)["indexes"] if row[0].endswith("_more")}


def test_P8_an_index_is_built_concurrently_and_recorded(
    app: Windlass,
    url: str,
    make_app: Make,
    connect: Connect,
    later: Callable[[Steps], None],
    eye: Any,
) -> None:
    """A writer in an open transaction keeps the build waiting, and nobody waits for the build."""
    app.run(app.store.enqueue([new() for _ in range(10)]))
    last = "CREATE TABLE {prefix}last (id int);"
    later({"0900-other": last.replace("last", "other"), "0901-index": INDEX, "0902-last": last})
    writer = connect()
    writer.execute("UPDATE windlass_job SET label = 'x' WHERE id = 1")
    held = Held(make_app().migrate)
    until(lambda: waits_for_lock(eye, "CREATE INDEX CONCURRENTLY"))
    assert indexes(url) == {"windlass_job_more": False}
    app.run(app.store.enqueue([new()]))
    assert len(app.run(app.store.claim(1, ["default"], 3))) == 3
    writer.commit()
    assert held.result() == ["0900-other", "0901-index", "0902-last"]
    assert indexes(url) == {"windlass_job_more": True}
    assert recorded(url) == [*KNOWN, "0900-other", "0901-index", "0902-last"]


class Build:
    """A build in a thread, kept waiting in the middle by a writer."""

    def __init__(self, app: Windlass, writer: psycopg.Connection[Any], eye: Any) -> None:
        writer.execute("UPDATE windlass_job SET label = 'y' WHERE id = 1")
        self.writer = writer
        self.held = Held(app.migrate)
        until(lambda: waits_for_lock(eye, "CREATE INDEX CONCURRENTLY"))
        ((self.pid,),) = eye(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query ILIKE 'CREATE INDEX CONCURRENTLY%'"
        )


@pytest.fixture
def build(
    app: Windlass,
    url: str,
    make_app: Make,
    connect: Connect,
    later: Callable[[Steps], None],
    eye: Any,
) -> Iterator[Build]:
    app.run(app.store.enqueue([new()]))
    later({"0901-index": INDEX})
    writer = connect()
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    for limit in ("idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout"):
        eye(f"ALTER DATABASE {name} SET {limit} = '250ms'")
    build = Build(make_app(), writer, eye)
    yield build
    build.held.thread.join(30)


def test_P8_a_cancelled_build_leaves_no_invalid_index(
    build: Build, url: str, make_app: Make, eye: Any
) -> None:
    eye("SELECT pg_cancel_backend(%s)", build.pid)
    until(lambda: waits_for_lock(eye, "DROP INDEX CONCURRENTLY"))
    build.writer.commit()
    with pytest.raises(StoreError, match=r"0901-index .*cancel"):
        build.held.result()
    assert indexes(url) == {}
    assert recorded(url) == list(KNOWN)
    assert make_app().migrate() == ["0901-index"]
    assert indexes(url) == {"windlass_job_more": True}


def test_P8_an_invalid_index_of_a_build_that_was_killed_is_built_anew(
    build: Build, url: str, make_app: Make, eye: Any
) -> None:
    eye("SELECT pg_terminate_backend(%s)", build.pid)
    with pytest.raises(StoreError, match="cannot be reached"):
        build.held.result()
    assert indexes(url) == {"windlass_job_more": False}
    assert recorded(url) == list(KNOWN)
    build.writer.commit()
    assert make_app().migrate() == ["0901-index"]
    assert indexes(url) == {"windlass_job_more": True}


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_P8_a_build_waits_not_for_its_own_guard_whatever_the_role_has_set(
    app: Windlass, url: str, make_app: Make, later: Callable[[Steps], None], eye: Any,
    isolation: str,
) -> None:  # fmt: skip
    """It would for ever, if the guard's transaction kept a snapshot."""
    app.run(app.store.enqueue([new()]))
    later({"0901-index": INDEX})
    name = psycopg.conninfo.conninfo_to_dict(url)["dbname"]
    eye(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    assert make_app().migrate() == ["0901-index"]
    assert indexes(url) == {"windlass_job_more": True}


def test_P8_a_second_one_waits_for_the_first_and_finds_it_done(
    build: Build, url: str, make_app: Make, eye: Any
) -> None:
    """For longer than the role lets a transaction idle, a statement run or a lock be waited for."""
    eye("SELECT pg_sleep(0.5)")
    second = Held(make_app().migrate)
    until(lambda: waits_for_lock(eye, "pg_advisory_xact_lock"))
    build.writer.commit()
    assert (build.held.result(), second.result()) == (["0901-index"], [])
    assert indexes(url) == {"windlass_job_more": True}


@on_newest
def test_P8_a_build_whose_process_was_killed_is_done_by_the_next(
    app: Windlass, url: str, make_app: Make, connect: Connect, later: Callable[[Steps], None],
    eye: Any,
) -> None:  # fmt: skip
    """The server may go on building for the dead one, and come to its end."""
    app.run(app.store.enqueue([new()]))
    later({"0901-index": INDEX})
    writer = connect()
    writer.execute("UPDATE windlass_job SET label = 'y' WHERE id = 1")
    child = multiprocessing.get_context("spawn").Process(target=build_index, args=(url,))
    child.start()
    until(lambda: waits_for_lock(eye, "CREATE INDEX CONCURRENTLY"))
    child.kill()
    child.join(30)
    second = Held(make_app().migrate)
    until(lambda: waits_for_lock(eye, "DROP INDEX CONCURRENTLY"))
    writer.commit()
    assert second.result() == ["0901-index"]
    assert indexes(url) == {"windlass_job_more": True}
    assert "0901-index" in recorded(url)


def test_P8_a_build_that_cannot_succeed_leaves_nothing_and_says_why(
    app: Windlass, url: str, make_app: Make, later: Callable[[Steps], None]
) -> None:
    app.run(app.store.enqueue([new(), new()]))
    later({"0901-index": INDEX.replace("CREATE INDEX", "CREATE UNIQUE INDEX")})
    for _ in range(2):
        with pytest.raises(StoreError, match="could not create unique index"):
            make_app().migrate()
        assert indexes(url) == {}


def test_P8_an_invalid_index_of_somebody_else_is_left_alone(
    app: Windlass, url: str, make_app: Make, later: Callable[[Steps], None], eye: Any
) -> None:
    app.run(app.store.enqueue([new(), new()]))
    with pytest.raises(psycopg.errors.UniqueViolation):
        eye("CREATE UNIQUE INDEX CONCURRENTLY windlass_theirs_more ON windlass_job (task)")
    later({"0901-index": INDEX})
    assert make_app().migrate() == ["0901-index"]
    assert indexes(url) == {"windlass_job_more": True, "windlass_theirs_more": False}


def test_P8_the_guard_is_waited_for_no_longer_than_a_migrations_lock(
    app: Windlass, make_app: Make, connect: Connect, later: Callable[[Steps], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(engines, "MIGRATION_PATIENCE", 0.5)
    later({"0901-index": INDEX})
    engine = make_app().engine
    assert isinstance(engine, engines.PostgresEngine)
    hold = engine.migrations.hold(engine.sql)
    holder = connect()
    holder.execute(hold.query.format.encode(), hold.params)
    with pytest.raises(WriterBusy, match="migrate waited"):
        engine.migrate()
    with pytest.raises(WriterBusy, match="migration 0901-index waited"):
        engine._build("0901-index")
    holder.rollback()
    assert engine.migrate() == ["0901-index"]


def test_P8_two_apps_with_other_names_do_not_wait_for_each_other(
    build: Build, url: str, make_app: Make
) -> None:
    for other in ({"prefix": "other_"}, {"schema": "other"}):
        app = make_app(**other)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Migrations, "names", KNOWN)
            assert app.migrate() == list(KNOWN)
    build.writer.commit()
    assert build.held.result() == ["0901-index"]
