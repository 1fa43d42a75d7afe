"""Statements any PostgreSQL from 13 on can prepare, each with a name and a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import towline
from tests import database as databases
from tests import servers
from towline import Towline
from towline.migrate import Migrations
from towline.operation import Query
from towline.sql import (
    SEQUENCES,
    SERVER_TABLES,
    TABLES,
    VIEWS,
    Queries,
    read_columns,
    read_text,
    split_statements,
    strip_comments,
)

PACKAGE = "towline.postgres"
PREFIX = "towline_"
SCHEMA = "public"

# What came after 13, and the release it came with.
NEWER = {
    r"\bCYCLE\b|\bSEARCH\s+(DEPTH|BREADTH)\b": "14: SEARCH and CYCLE",
    r"\bGROUP\s+BY\s+DISTINCT\b": "14: GROUP BY DISTINCT",
    r"\b(date_bin|bit_count|string_to_table|unistr|trim_array|split_part\s*\([^)]*-\d)": "14",
    r"multirange": "14: multiranges",
    r"\bCOMPRESSION\b": "14: COMPRESSION",
    r"\bMERGE\b": "15: MERGE",
    r"NULLS\s+(NOT\s+)?DISTINCT": "15: NULLS NOT DISTINCT",
    r"\bregexp_(count|instr|like|substr)\b": "15: regexp_count() and others",
    r"security_invoker": "15: security_invoker",
    r"\b(any_value|array_sample|array_shuffle|random_normal)\b": "16",
    r"\bIS\s+(NOT\s+)?JSON\b": "16: IS JSON",
    r"\bjson_(array|object)(agg)?\s*\(": "16: constructors of JSON",
    r"\d_\d|\b0x": "16: other ways to write a number",
    r"\bjson_(table|exists|query|value|scalar|serialize)\b": "17: JSON_TABLE and others",
    r"\bto_(bin|oct)\b": "17: to_bin()",
    r"transaction_timeout": "17: transaction_timeout",
    r"\bAT\s+LOCAL\b": "17: AT LOCAL",
    r"\buuidv[47]\b": "18: uuidv7()",
    r"\bRETURNING\b[^;]*\b(old|new)\.": "18: RETURNING old and new",
    r"\bWITHOUT\s+OVERLAPS\b|\bPERIOD\b": "18: temporal keys",
    r"\bVIRTUAL\b": "18: virtual columns",
    r"\b(array_sort|array_reverse|casefold|crc32)\b": "18",
    r"\bNOT\s+ENFORCED\b|\bDO\s+SELECT\b": "18 and later",
}

# Statements made of strings: what somebody stored could become part of one.
BUILT = r"\|\||\bformat\s*\(|\bconcat|\bquote_(ident|literal|nullable)\b|\bEXECUTE\b|\bDO\s+\$"

# No statement that the server takes apart before it knows its parameters.
COMMANDS = {"create_schema"}


def sources() -> dict[str, str]:
    names: list[tuple[str, ...]] = [("schema.sql",), ("queries.sql",)]
    names += [("migrations", f"{name}.sql") for name in Migrations(PACKAGE, PREFIX).names[1:]]
    return {"/".join(name): strip_comments(read_text(PACKAGE, *name)) for name in names}


def bodies() -> dict[str, str]:
    _, *parts = re.split(r"^-- name: (\w+)$", read_text(PACKAGE, "queries.sql"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def texts() -> list[tuple[str, Query]]:
    """Every text that is sent: a walk is two, and there is one for each state."""
    found = []
    for query in Queries(PACKAGE, PREFIX, SCHEMA):
        found += [(f"{query.name} {n}", each) for n, each in enumerate(query.states)]
        if not query.states:
            found.append((query.name, query))
    return found


@pytest.fixture(scope="session", params=servers.servers())
def connection(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[psycopg.Connection]:
    """To a database with our tables, on each server."""
    folder = tmp_path_factory.mktemp("sql")
    with databases.opened(request.param, folder) as database:
        with psycopg.connect(database.url, autocommit=True) as connection:
            yield connection


@pytest.mark.parametrize("pattern", NEWER)
def test_no_syntax_is_newer_than_13(pattern: str) -> None:
    for name, text in sources().items():
        found = re.search(pattern, text, re.IGNORECASE)
        assert not found, f"{name}: {NEWER[pattern]}: {found[0]!r}"


@pytest.mark.parametrize(
    "text",
    [
        "MERGE INTO t", "UNIQUE NULLS NOT DISTINCT (a)", "JSON_TABLE(a, '$')", "a IS JSON",
        "json_array(a)", "1_000", "uuidv7()", "date_bin(a, b, c)", "any_value(a)",
        "DELETE FROM t RETURNING old.id", "SEARCH DEPTH FIRST BY a SET b", "json_value(a, '$.b')",
        "CREATE VIEW v WITH (security_invoker)", "SET LOCAL transaction_timeout = 1",
    ],
)  # fmt: skip
def test_the_scan_finds_what_it_looks_for(text: str) -> None:
    assert any(re.search(pattern, text, re.IGNORECASE) for pattern in NEWER)


def test_X4_no_statement_is_built_from_strings() -> None:
    queries = sources()["queries.sql"]
    assert not re.search(BUILT, queries, re.IGNORECASE)
    for text in ("'a' || b", "format('%I', a)", "EXECUTE a", "DO $$ BEGIN", "quote_ident(a)"):
        assert re.search(BUILT, text, re.IGNORECASE)


@pytest.mark.parametrize(("name", "query"), texts(), ids=[name for name, _ in texts()])
def test_every_statement_prepares(connection: psycopg.Connection, name: str, query: Query) -> None:
    """And the server can tell the type of every parameter; none is left to a guess ("unknown")."""
    assert "{" not in query.text
    numbered = list(dict.fromkeys(query.order))
    text = re.sub(r"(?<![:\w]):([a-z_]\w*)", lambda m: f"${numbered.index(m[1]) + 1}", query.text)
    if query.name in COMMANDS:
        connection.execute(text.encode())
        return
    connection.execute(f"PREPARE x AS {text}".encode())
    try:
        types = connection.execute(
            "SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'x'"
        ).fetchone()
        assert types is not None
        assert len(types[0]) == len(numbered)
    finally:
        connection.execute("DEALLOCATE x")


def test_every_parameter_has_one_place_each() -> None:
    for name, query in texts():
        assert query.format.replace("%%", "").count("%s") == len(query.order), name
        assert not re.search(r"(?<![:\w]):[a-z]", query.format), name


def test_names_are_unique_and_each_is_one_statement() -> None:
    names = re.findall(r"^-- name: (.*)$", read_text(PACKAGE, "queries.sql"), re.MULTILINE)
    assert len(names) == len(set(names)) > 90
    assert all(re.fullmatch(r"[a-z][a-z_]*", name) for name in names)
    for name, body in bodies().items():
        assert len(split_statements(body)) == 1, name


def test_every_statement_of_more_than_a_few_lines_says_what_it_is_for() -> None:
    silent = [
        name
        for name, body in bodies().items()
        if not body.lstrip().startswith("--")
        and len(strip_comments(body).split()) > 40
        and not name.startswith(("insert_", "walk_"))
    ]
    assert silent == []


def test_columns_of_tables_are_always_listed() -> None:
    """A migration that adds one must change no answer. Records list theirs; of the last attempt the
    statement around it chooses."""
    last_attempt = r"\(SELECT \* FROM \{attempt\} AS m\s+WHERE[^()]*LIMIT 1\)"
    for name, body in bodies().items():
        text = re.sub(last_attempt, "", strip_comments(body))
        assert not re.search(r"SELECT\s+\*\s+FROM\s+\{", text), name
        tables = set(re.findall(r"\{\w+\} AS (\w+)", text))
        assert not tables & set(re.findall(r"\b(\w+)\.\*", text)), name
    for name, text in sources().items():
        for insert in re.findall(r"INSERT INTO \{\w+\}\s+(?:AS \w+\s+)?(.)", text):
            assert insert == "(", name


def test_no_table_is_named_without_its_schema_and_prefix() -> None:
    """Every name stands in braces, or two apps in one database would meet."""
    for name, text in sources().items():
        for table in re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|VIEW|ON)\s+(\w+)\s*[(\n]", text):
            assert table not in TABLES + SERVER_TABLES + VIEWS, f"{name}: {table}"
        named = set(re.findall(r"\{(\w+)\}", text))
        lists = read_columns(read_text(PACKAGE, "queries.sql"))
        known = {*TABLES, *SERVER_TABLES, *VIEWS, *SEQUENCES, *lists, "prefix", "schema"}
        assert named <= known | {"past", "direction", "wait", "state"}, name


def test_the_state_of_a_live_row_is_a_literal_where_it_is_searched_by() -> None:
    """DESIGN §7: a parameter there could use no partial index under a generic plan.

    With the job's id beside it, the primary key finds the row and the state is only looked at.
    """
    for name, query in texts():
        for condition in re.findall(r"\bstate\s*(?:=|<>|IN)\s*\(?:\w+", query.text):
            where = query.text[query.text.index("WHERE") :] if "WHERE" in query.text else ""
            assert "job_id = :job_id" in where, f"{name}: {condition}"


def test_there_are_no_triggers_functions_or_foreign_keys() -> None:
    words = r"\b(TRIGGER|REFERENCES|FOREIGN|FUNCTION|PROCEDURE|RULE|EXTENSION)\b"
    for name, text in sources().items():
        assert not re.search(words, text, re.IGNORECASE), name


def test_every_statement_is_used() -> None:
    package = Path(towline.__file__).parent
    files = [path for path in package.rglob("*.py") if "sqlite" not in path.parts]
    words = {word for path in files for word in re.findall(r"\w+", path.read_text("utf-8"))}
    ways = ("", "_newest", "_oldest", "_now")
    unused = [name for name in bodies() if not {name + way for way in ways} & words]
    assert unused == []


def test_what_runs_on_callers_connections_names_no_setting() -> None:
    """We change nothing there: SET and set_config are for transactions of our own."""
    own = {"notify_alone", "notify_one"}
    for name, body in bodies().items():
        if name not in own:
            assert not re.search(r"\bset_config\b|\A\s*SET\s", strip_comments(body)), name


def test_M5_a_second_app_beside_the_first_names_nothing_of_it() -> None:
    two = Towline("postgresql:///x", schema="other", prefix="p_")
    for query in two.runner.store.sql:
        assert not re.search(r"\bpublic\.|towline_", query.text), query.name
    assert '"other".p_live' in two.runner.store.sql.claim_pending.text
