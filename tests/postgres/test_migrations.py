"""M1 to M3: how the tables come to be, and how a release finds them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import Clock, new
from tests.postgres.catalogue import catalogue, relations
from tests.postgres.conftest import add, on_newest
from tests.postgres.steps import INDEX, KNOWN, MORE, Steps, know_steps, recorded
from tests.races.together import in_processes, in_threads
from towline import Towline
from towline.errors import SchemaMismatch, SchemaMissing, StoreError

Make = Callable[..., Towline]
Connect = Callable[..., psycopg.Connection[Any]]


# ---- M1


def open_and_enqueue(url: str, number: int) -> int:
    app = Towline(url)
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
        app = Towline(empty, schema="jobs", prefix=f"a{number}_")
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
    rows = eye("SELECT name, applied_at FROM towline_migration ORDER BY name")
    assert rows[-2:] == [("0900-more", clock.time), ("0901-again", clock.time)]
    assert [name for name, _ in rows] == [*KNOWN, "0900-more", "0901-again"]


def test_M2_without_a_clock_the_time_is_the_databases(empty: str, make_app: Make) -> None:
    make_app(empty).migrate()
    with psycopg.connect(empty) as connection:
        row = connection.execute(
            "SELECT extract(epoch FROM now()) * 1000000 - applied_at FROM towline_migration"
        ).fetchone()
    assert row is not None
    assert abs(row[0]) < 600 * 1_000_000


def test_M2_a_failed_migration_leaves_nothing_half_done(
    app: Towline, url: str, make_app: Make, later: Callable[[Steps], None], eye: Any
) -> None:
    app.runner.run(app.runner.store.enqueue([new()]))
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
    assert eye("SELECT label FROM towline_job") == [(None,)]


def test_M2_a_failed_first_creation_leaves_an_empty_database(empty: str, make_app: Make) -> None:
    with psycopg.connect(empty) as connection:
        connection.execute("CREATE SCHEMA jobs; CREATE TABLE jobs.towline_mark (taken text)")
    with pytest.raises(StoreError, match=r"towline_mark.* already exists"):
        make_app(empty, schema="jobs").counts()
    assert relations(empty, "jobs") == {"towline_mark"}


def migrate_more(url: str, number: int) -> list[str]:
    know_steps({"0900-more": MORE, "0901-index": INDEX, "0902-last": "-- nothing\n"})
    app = Towline(url)
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
    assert [row[4] for row in catalogue(url)["indexes"] if row[0] == "towline_job_more"] == [True]


# ---- M3


def test_M3_an_older_schema_says_which_steps_and_the_command(
    app: Towline, make_app: Make, later: Callable[[Steps], None]
) -> None:
    later({"0900-more": MORE})
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
    app: Towline, url: str, make_app: Make, later: Callable[[Steps], None]
) -> None:
    job = app.task(add).enqueue(1)
    later({"0900-more": MORE, "0901-index": INDEX})
    assert make_app().job(job.id).state == "pending"
    assert recorded(url)[-2:] == ["0900-more", "0901-index"]


def test_M3_no_tables_and_no_leave_to_make_them_says_the_command(
    empty: str, make_app: Make
) -> None:
    for schema in ("public", "jobs"):
        with pytest.raises(SchemaMissing, match="run `towline migrate` or call"):
            make_app(empty, migrate=False, schema=schema).counts()
        assert relations(empty) == set()


@pytest.mark.parametrize("migrate", [True, False])
def test_M3_a_newer_schema_that_only_adds_keeps_working(
    app: Towline, make_app: Make, eye: Any, connect: Connect, migrate: bool
) -> None:
    eye("ALTER TABLE towline_job ADD COLUMN more text DEFAULT 'x'")
    eye("ALTER TABLE towline_live ADD COLUMN more text")
    eye("ALTER TABLE towline_attempt ADD COLUMN more text")
    eye("INSERT INTO towline_migration VALUES ('9000-more', 1)")
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
    app: Towline, make_app: Make, eye: Any, connect: Connect, migrate: bool
) -> None:
    eye("INSERT INTO towline_migration VALUES ('9000-new-breaking', 1), ('9001-more', 1)")
    old = make_app(migrate=migrate)
    task = old.task(add)
    caller = connect()
    for call in (
        old.counts,
        lambda: task.enqueue(1),
        old.migrate,
        lambda: task.using(on=caller).enqueue(1),
    ):
        with pytest.raises(SchemaMismatch, match=r"newer .*9000-new-breaking.*install the release"):
            call()
    assert eye("SELECT count(*) FROM towline_job") == [(0,)]


def test_M3_an_older_schema_on_a_callers_open_transaction_says_the_command(
    app: Towline, url: str, make_app: Make, connect: Connect, later: Callable[[Steps], None]
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
