"""M4 to M7: what the tables look like, where they lie, and what they refuse."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import servers
from tests.database import Database
from tests.kit import new
from tests.postgres.catalogue import catalogue, relations
from tests.postgres.conftest import add
from towline import Towline
from towline.errors import InvalidSetting, ReadOnlyDatabase, SchemaMissing
from towline.migrate import Migrations
from towline.sql import SEQUENCES, TABLES, VIEWS, fill

PACKAGE = "towline.postgres"
KNOWN = Migrations(PACKAGE, "towline_", "public").names

Make = Callable[..., Towline]


def run(url: str, text: str) -> list[tuple[Any, ...]]:
    """Plain SQL, as psql would send it."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


# ---- M4


def test_M4_a_fresh_schema_equals_a_migrated_one(empty: str, database: Database) -> None:
    """Step by step from the first migration, compared from the catalogue."""
    for name in KNOWN:
        run(empty, fill(Migrations(PACKAGE, "")._step(name), "towline_", "public"))
    run(database.url, "DROP TABLE mine")
    migrated, fresh = catalogue(empty), catalogue(database.url)
    for what in fresh:
        assert migrated[what] == fresh[what], what
    names = {f"towline_{name}" for name in TABLES + VIEWS + SEQUENCES}
    assert names <= {name for name, *_ in fresh["relations"]}
    assert len(fresh["constraints"]) > 10


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE towline_job ADD COLUMN more text",
        "ALTER TABLE towline_job ALTER COLUMN label SET NOT NULL",
        "ALTER TABLE towline_live ALTER COLUMN used SET DEFAULT 1",
        "ALTER TABLE towline_live SET (fillfactor = 71)",
        "ALTER TABLE towline_live DROP CONSTRAINT towline_live_state_check",
        "ALTER SEQUENCE towline_job_ids CACHE 10",
        "CREATE INDEX other ON towline_job (task)",
        "CREATE OR REPLACE VIEW towline_chains AS SELECT * FROM towline_chains",
        "DROP VIEW towline_attempts",
        'ALTER TABLE towline_key ALTER COLUMN key TYPE text COLLATE "POSIX"',
    ],
)
def test_M4_the_comparison_sees_a_difference(database: Database, change: str) -> None:
    before = catalogue(database.url)
    if "OR REPLACE" in change:
        change = "CREATE OR REPLACE VIEW towline_chains AS " + re.sub(
            "'open'",
            "'opened'",
            run(database.url, "SELECT pg_get_viewdef('towline_chains')")[0][0],
        )
    run(database.url, change)
    assert catalogue(database.url) != before


def test_settings_of_storage_ship_with_the_tables(database: Database) -> None:
    """DESIGN §6.9."""
    options = {name: options for name, _, _, options, _ in catalogue(database.url)["relations"]}
    assert "fillfactor=70" in options["towline_live"]
    assert "autovacuum_vacuum_scale_factor=0.02" in options["towline_live"]
    assert options["towline_chain"] == ["fillfactor=45"]


# ---- M5


@pytest.mark.parametrize("what", ["prefix", "schema"])
@pytest.mark.parametrize(
    "name",
    [
        "", "Towline_", "1st_", "a-b", "a b", "a.b", "a;b", 'a"b', "a'b", "a`b", "[a]", "a\n",
        "towline_\n", "\na", "a\0", "größe_", "x; DROP TABLE job; --", "a" * 41, "pg_", "pg_temp",
        "{job}", "a%s", "a?", "ａ", "$user", None, 1, b"a", ["a"],
    ],
)  # fmt: skip
def test_M5_what_could_be_more_than_a_name_is_refused(what: str, name: object) -> None:
    settings: dict[str, Any] = {what: name}
    with pytest.raises(InvalidSetting, match=what):
        Towline("postgresql:///none", **settings)


@pytest.mark.parametrize(
    ("prefix", "schema"),
    [("a", "public"), ("_", "jobs"), ("x" * 40, "y" * 40), ("job", "a1_"), ("select_", "public")],
)
def test_M5_a_prefix_and_a_schema_that_are_names_work(
    empty: str, make_app: Make, prefix: str, schema: str
) -> None:
    """The schema is created when it is missing; nothing is put anywhere else."""
    app = make_app(empty, prefix=prefix, schema=schema)
    job = app.task(add).using(key="k").enqueue(1)
    app.enqueue_many([app.registry["add"].call(n) for n in range(300)])  # by COPY
    assert app.complete(job.id, 2).state == "completed"
    assert all(name.startswith(prefix) for name in relations(empty, schema))
    if schema != "public":
        assert relations(empty, "public") == set()


def test_M5_an_index_has_its_whole_name_with_the_longest_prefix(empty: str, make_app: Make) -> None:
    """A name over 63 characters would be cut, and two could become one."""
    make_app(empty, prefix="x" * 40).migrate()
    assert all(len(name) < 63 for name in relations(empty))


def both(one: dict[str, str], two: dict[str, str]) -> Any:
    return pytest.param(one, two, id=f"{one} {two}")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        both({"prefix": "app_"}, {"prefix": "app_job"}),
        both({"schema": "one"}, {"schema": "two"}),
        both({"schema": "one", "prefix": "a_"}, {"schema": "one", "prefix": "b_"}),
        both({}, {"schema": "other"}),
    ],
)
def test_M5_two_apps_with_their_own_names_never_meet(
    empty: str, make_app: Make, first: dict[str, str], second: dict[str, str]
) -> None:
    """Also when one prefix is the beginning of the other. None wakes the other (its channel)."""
    one, two = make_app(empty, **first), make_app(empty, **second)
    here, there = one.task(add), two.task(add)
    job, other = here.using(key="k").enqueue(1), there.using(key="k").enqueue(2)
    assert (job.id, other.id) == (1, 1)
    assert (job.created, other.created) == (True, True)
    one.pause("default")
    assert (one.paused(), two.paused()) == (["default"], [])
    one.cancel(1)
    assert (job.refresh().state, other.refresh().state) == ("cancelled", "pending")
    assert one.delete(1) == [1]
    assert [job.record.arguments for job in two.jobs()] == ['{"number":2}']
    assert len(one.jobs()) == 0


def test_M5_no_schema_of_the_search_path_is_looked_into(empty: str, make_app: Make) -> None:
    """A table of the same name in another schema is another app's."""
    make_app(empty, schema="theirs").migrate()
    ours = make_app(f"{empty}&options=-csearch_path%3Dtheirs", migrate=False)
    with pytest.raises(SchemaMissing):
        ours.counts()
    ours.migrate()
    ours.task(add).enqueue(1)
    assert run(empty, "SELECT count(*) FROM public.towline_job") == [(1,)]
    assert run(empty, "SELECT count(*) FROM theirs.towline_job") == [(0,)]


# ---- a second role


@pytest.fixture
def role(server: servers.Server, empty: str) -> Iterator[Callable[[str], str]]:
    """Make a role without any right; gives the URL by which it comes."""
    made: list[str] = []

    def make(name: str) -> str:
        unique = f"{urlsplit(empty).path[1:]}_{name}"
        run(empty, f"CREATE ROLE {unique} LOGIN PASSWORD 'secret'")
        made.append(unique)
        parts = urlsplit(empty)
        place = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{unique}:secret@{place}").geturl()

    yield make
    for name in made:
        run(empty, f"REASSIGN OWNED BY {name} TO CURRENT_USER; DROP OWNED BY {name}")
        run(empty, f"DROP ROLE {name}")


def user(url: str) -> str:
    return str(urlsplit(url).username)


def test_a_role_that_may_not_create_schemas_works_in_one_that_is_there(
    empty: str, make_app: Make, role: Callable[[str], str]
) -> None:
    url = role("plain")
    run(empty, f"CREATE SCHEMA jobs AUTHORIZATION {user(url)}")
    app = make_app(url, schema="jobs")
    assert app.task(add).enqueue(1).refresh().state == "pending"


def test_a_role_that_may_not_create_the_schema_is_told_so(
    empty: str, make_app: Make, role: Callable[[str], str]
) -> None:
    app = make_app(role("plain"), schema="jobs")
    with pytest.raises(ReadOnlyDatabase, match=r"permission denied.*docs/guides/run/postgres\.md"):
        app.counts()
    assert run(empty, "SELECT count(*) FROM pg_namespace WHERE nspname = 'jobs'") == [(0,)]


def test_a_role_that_only_reads_and_writes_rows_is_enough_when_another_migrates(
    empty: str, make_app: Make, role: Callable[[str], str]
) -> None:
    """And the rights it needs are those that docs/guides/run/postgres.md lists."""
    make_app(empty, schema="jobs").migrate()
    url = role("rows")
    run(
        empty,
        f"GRANT USAGE ON SCHEMA jobs TO {user(url)};"
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA jobs TO {user(url)};"
        f"GRANT USAGE ON ALL SEQUENCES IN SCHEMA jobs TO {user(url)}",
    )
    app = make_app(url, schema="jobs")
    task = app.task(add)
    job = task.using(key="k").enqueue(1)
    app.enqueue_many([task.call(n) for n in range(300)])  # by COPY
    assert app.complete(job.id, 2).state == "completed"
    assert app.delete(job.id) == [job.id]
    app.prune()
    assert app.migrate() == []


def test_a_role_without_a_right_on_the_tables_is_told_so(
    empty: str, make_app: Make, role: Callable[[str], str]
) -> None:
    make_app(empty, schema="jobs").migrate()
    url = role("none")
    app = make_app(url, schema="jobs")
    with pytest.raises(ReadOnlyDatabase, match="permission denied for schema jobs"):
        app.counts()
    run(empty, f"GRANT USAGE ON SCHEMA jobs TO {user(url)}")
    with pytest.raises(ReadOnlyDatabase, match="permission denied for table"):
        app.counts()


# ---- M6


@pytest.mark.parametrize("settings", [{}, {"schema": "jobs", "prefix": "j_"}])
def test_M6_the_printed_ddl_gives_the_same_tables(
    server: servers.Server, empty: str, make_app: Make, settings: dict[str, str]
) -> None:
    schema = settings.get("schema", "public")
    app = make_app(empty, migrate=False, **settings)
    run(empty, app.ddl())
    with server.database() as other:
        make_app(other, **settings).migrate()
        assert catalogue(empty, schema) == catalogue(other, schema)
    job = app.task(add).enqueue(1)
    assert app.complete(job.id, 2).state == "completed"
    assert app.migrate() == []
    prefix = settings.get("prefix", "towline_")
    recorded = run(empty, f"SELECT name, applied_at FROM {schema}.{prefix}migration ORDER BY 1")
    assert [name for name, _ in recorded] == list(KNOWN)
    now = run(empty, "SELECT extract(epoch FROM now())::bigint * 1000000")[0][0]
    assert all(abs(now - at) < 3600 * 1_000_000 for _, at in recorded)


def test_M6_the_printed_ddl_is_for_the_names_of_the_app() -> None:
    text = Towline("postgresql:///none", prefix="j_", schema="jobs").ddl()
    assert "{" not in text
    assert not re.search(r"towline_\w|public\.", text)


def test_M6_the_printed_ddl_is_one_that_can_be_sent_at_once_or_by_statement(empty: str) -> None:
    app = Towline("postgresql:///none")
    with psycopg.connect(empty) as connection:
        for statement in app.ddl().split(";\n"):
            if statement.strip():
                connection.execute(statement.encode())
    assert "towline_job" in relations(empty)


# ---- M7


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE towline_live SET state = 5",
        "UPDATE towline_live SET state = -1",
        "UPDATE towline_live SET state = NULL",
        "UPDATE towline_live SET open_blockers = -1",
        "UPDATE towline_chain SET state = 4",
        "UPDATE towline_chain SET state = NULL",
        "UPDATE towline_attempt SET outcome = 0",
        "UPDATE towline_attempt SET outcome = 9",
        "UPDATE towline_attempt SET outcome = NULL",
        "UPDATE towline_attempt SET final = 0",
        "UPDATE towline_job SET policy = 3",
        "UPDATE towline_job SET policy = NULL",
    ],
)
def test_M7_the_database_refuses_an_unknown_state_outcome_or_policy(
    app: Towline, database: Database, text: str
) -> None:
    app.runner.run(app.runner.store.enqueue([new(), new()]))
    app.runner.run(app.runner.store.complete(2, "null"))
    with pytest.raises(psycopg.IntegrityError, match="violates"):
        database.rows(text)


@pytest.mark.parametrize(
    "text",
    [
        "UPDATE towline_live SET state = 'pending'",
        "UPDATE towline_chain SET state = 'open'",
        "UPDATE towline_attempt SET outcome = 'completed'",
        "UPDATE towline_job SET policy = 'fail'",
    ],
)
def test_M7_a_word_is_no_state(app: Towline, database: Database, text: str) -> None:
    with pytest.raises(psycopg.DataError, match="invalid input syntax for type smallint"):
        database.rows(text)


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
    app: Towline, database: Database, table: str, column: str, values: range
) -> None:
    app.runner.run(app.runner.store.enqueue([new(), new()]))
    app.runner.run(app.runner.store.complete(2, "null"))
    for value in values:
        database.rows(f"UPDATE towline_{table} SET {column} = {value}")
        found = database.rows(f"SELECT DISTINCT {column} FROM towline_{table}")
        assert found == [(value,)]
