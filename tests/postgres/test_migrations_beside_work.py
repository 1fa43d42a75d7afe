"""P8: migrations while others read and write, and indexes that are built beside the traffic."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.kit import new
from tests.postgres.catalogue import catalogue
from tests.postgres.conftest import on_newest
from tests.postgres.steps import INDEX, KNOWN, Steps, know_steps, recorded
from tests.sqlite.processes import Held
from tests.until import until
from towline import Towline
from towline.errors import StoreError, WriterBusy
from towline.migrate import Migrations
from towline.postgres import engine as engines

Make = Callable[..., Towline]
Connect = Callable[..., psycopg.Connection[Any]]


def build_index(url: str) -> None:
    know_steps({"0901-index": INDEX})
    Towline(url).migrate()


# ---- P8: behind somebody's long SELECT


@contextmanager
def reading(connection: psycopg.Connection[Any], table: str = "towline_live") -> Iterator[None]:
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
    app: Towline,
    url: str,
    make_app: Make,
    connect: Connect,
    later: Callable[[Steps], None],
    eye: Any,
) -> None:
    """It waits a moment, in which claims queue up behind it, gives up, and tries again."""
    app.runner.run(app.runner.store.enqueue([new() for _ in range(20)]))
    later({"0900-more": "ALTER TABLE {live} ADD COLUMN more text;"})
    migrating = make_app()
    with reading(connect()):
        held = Held(migrating.migrate)
        until(lambda: waits_for_lock(eye, "ALTER TABLE"))
        for _ in range(20):
            assert len(app.runner.run(app.runner.store.claim(1, ["default"], 1))) == 1
        assert held.thread.is_alive()
        assert eye("SELECT count(*) FROM towline_live WHERE state = 3") == [(20,)]
        until(lambda: waits_for_lock(eye, "ALTER TABLE"))  # and it has not given up
    assert held.result() == ["0900-more"]
    assert recorded(url)[-1] == "0900-more"


def test_P8_a_migration_waits_as_long_as_its_own_lock_timeout_says(
    app: Towline, make_app: Make, later: Callable[[Steps], None], eye: Any
) -> None:
    """Whatever the app's is."""
    text = "CREATE TABLE {prefix}more AS SELECT current_setting('lock_timeout') AS given;"
    later({"0900-more": text})
    make_app(lock_timeout=60).migrate()
    assert eye("SELECT given FROM towline_more") == [("200ms",)]


def test_P8_a_migration_that_never_gets_through_says_who_is_in_the_way(
    app: Towline, url: str, make_app: Make, connect: Connect, later: Callable[[Steps], None],
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
    app: Towline,
    url: str,
    make_app: Make,
    connect: Connect,
    later: Callable[[Steps], None],
    eye: Any,
) -> None:
    """A writer in an open transaction keeps the build waiting, and nobody waits for the build."""
    app.runner.run(app.runner.store.enqueue([new() for _ in range(10)]))
    last = "CREATE TABLE {prefix}last (id int);"
    later({"0900-other": last.replace("last", "other"), "0901-index": INDEX, "0902-last": last})
    writer = connect()
    writer.execute("UPDATE towline_job SET label = 'x' WHERE id = 1")
    held = Held(make_app().migrate)
    until(lambda: waits_for_lock(eye, "CREATE INDEX CONCURRENTLY"))
    assert indexes(url) == {"towline_job_more": False}
    app.runner.run(app.runner.store.enqueue([new()]))
    assert len(app.runner.run(app.runner.store.claim(1, ["default"], 3))) == 3
    writer.commit()
    assert held.result() == ["0900-other", "0901-index", "0902-last"]
    assert indexes(url) == {"towline_job_more": True}
    assert recorded(url) == [*KNOWN, "0900-other", "0901-index", "0902-last"]


class Build:
    """A build in a thread, kept waiting in the middle by a writer."""

    def __init__(self, app: Towline, writer: psycopg.Connection[Any], eye: Any) -> None:
        writer.execute("UPDATE towline_job SET label = 'y' WHERE id = 1")
        self.writer = writer
        self.held = Held(app.migrate)
        until(lambda: waits_for_lock(eye, "CREATE INDEX CONCURRENTLY"))
        ((self.pid,),) = eye(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock' AND query ILIKE 'CREATE INDEX CONCURRENTLY%'"
        )


@pytest.fixture
def build(
    app: Towline,
    url: str,
    make_app: Make,
    connect: Connect,
    later: Callable[[Steps], None],
    eye: Any,
) -> Iterator[Build]:
    app.runner.run(app.runner.store.enqueue([new()]))
    later({"0901-index": INDEX})
    writer = connect()
    name = conninfo_to_dict(url)["dbname"]
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
    assert indexes(url) == {"towline_job_more": True}


def test_P8_an_invalid_index_of_a_build_that_was_killed_is_built_anew(
    build: Build, url: str, make_app: Make, eye: Any
) -> None:
    eye("SELECT pg_terminate_backend(%s)", build.pid)
    with pytest.raises(StoreError, match="cannot be reached"):
        build.held.result()
    assert indexes(url) == {"towline_job_more": False}
    assert recorded(url) == list(KNOWN)
    build.writer.commit()
    assert make_app().migrate() == ["0901-index"]
    assert indexes(url) == {"towline_job_more": True}


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_P8_a_build_waits_not_for_its_own_guard_whatever_the_role_has_set(
    app: Towline, url: str, make_app: Make, later: Callable[[Steps], None], eye: Any,
    isolation: str,
) -> None:  # fmt: skip
    """It would for ever, if the guard's transaction kept a snapshot."""
    app.runner.run(app.runner.store.enqueue([new()]))
    later({"0901-index": INDEX})
    name = conninfo_to_dict(url)["dbname"]
    eye(f"ALTER DATABASE {name} SET default_transaction_isolation = '{isolation}'")
    assert make_app().migrate() == ["0901-index"]
    assert indexes(url) == {"towline_job_more": True}


def test_P8_a_second_one_waits_for_the_first_and_finds_it_done(
    build: Build, url: str, make_app: Make, eye: Any
) -> None:
    """For longer than the role lets a transaction idle, a statement run or a lock be waited for."""
    eye("SELECT pg_sleep(0.5)")
    second = Held(make_app().migrate)
    until(lambda: waits_for_lock(eye, "pg_advisory_xact_lock"))
    build.writer.commit()
    assert (build.held.result(), second.result()) == (["0901-index"], [])
    assert indexes(url) == {"towline_job_more": True}


@on_newest
def test_P8_a_build_whose_process_was_killed_is_done_by_the_next(
    app: Towline, url: str, make_app: Make, connect: Connect, later: Callable[[Steps], None],
    eye: Any,
) -> None:  # fmt: skip
    """The server may go on building for the dead one, and come to its end."""
    app.runner.run(app.runner.store.enqueue([new()]))
    later({"0901-index": INDEX})
    writer = connect()
    writer.execute("UPDATE towline_job SET label = 'y' WHERE id = 1")
    child = multiprocessing.get_context("spawn").Process(target=build_index, args=(url,))
    child.start()
    until(lambda: waits_for_lock(eye, "CREATE INDEX CONCURRENTLY"))
    child.kill()
    child.join(30)
    second = Held(make_app().migrate)
    until(lambda: waits_for_lock(eye, "DROP INDEX CONCURRENTLY"))
    writer.commit()
    assert second.result() == ["0901-index"]
    assert indexes(url) == {"towline_job_more": True}
    assert "0901-index" in recorded(url)


def test_P8_a_build_that_cannot_succeed_leaves_nothing_and_says_why(
    app: Towline, url: str, make_app: Make, later: Callable[[Steps], None]
) -> None:
    app.runner.run(app.runner.store.enqueue([new(), new()]))
    later({"0901-index": INDEX.replace("CREATE INDEX", "CREATE UNIQUE INDEX")})
    for _ in range(2):
        with pytest.raises(StoreError, match="could not create unique index"):
            make_app().migrate()
        assert indexes(url) == {}


def test_P8_an_invalid_index_of_somebody_else_is_left_alone(
    app: Towline, url: str, make_app: Make, later: Callable[[Steps], None], eye: Any
) -> None:
    app.runner.run(app.runner.store.enqueue([new(), new()]))
    with pytest.raises(psycopg.errors.UniqueViolation):
        eye("CREATE UNIQUE INDEX CONCURRENTLY towline_theirs_more ON towline_job (task)")
    later({"0901-index": INDEX})
    assert make_app().migrate() == ["0901-index"]
    assert indexes(url) == {"towline_job_more": True, "towline_theirs_more": False}


def test_P8_the_guard_is_waited_for_no_longer_than_a_migrations_lock(
    app: Towline, make_app: Make, connect: Connect, later: Callable[[Steps], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(engines, "MIGRATION_PATIENCE", 0.5)
    later({"0901-index": INDEX})
    engine = make_app().runner.engine
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
