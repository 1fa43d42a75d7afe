"""Q10: statements any SQLite from 3.35 on can prepare, each with a name and a reason."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

import towline
from towline import Towline
from towline.migrate import Migrations
from towline.operation import Query
from towline.sql import (
    TABLES,
    VIEWS,
    Queries,
    read_columns,
    read_text,
    split_statements,
    strip_comments,
)
from towline.sqlite.engine import PACKAGE

PREFIX = "towline_"

# What came after 3.35.0, and the release it came with.
NEWER = {
    r"->": "3.38: -> and ->>",
    r"\bunixepoch\s*\(": "3.38: unixepoch()",
    r"\bformat\s*\(": "3.38: format()",
    r"'auto'": "3.38: the modifier auto",
    r"\bSTRICT\b": "3.37: STRICT tables",
    r"\b(RIGHT|FULL)\s+(OUTER\s+)?JOIN\b": "3.39: RIGHT and FULL JOIN",
    r"\bIS\s+(NOT\s+)?DISTINCT\s+FROM\b": "3.39: IS DISTINCT FROM",
    r"\bunhex\s*\(": "3.41: unhex()",
    r"\bsubsec(ond)?\b": "3.42: the modifier subsec",
    r"\bjson_error_position\b": "3.42: json_error_position()",
    r"\btimediff\s*\(": "3.43: timediff()",
    r"\boctet_length\s*\(": "3.43: octet_length()",
    r"\b(concat|concat_ws|string_agg)\s*\(": "3.44: concat() and string_agg()",
    r"\b\w+\([^()]*\bORDER\s+BY\b[^()]*\)\s*(OVER|FILTER)": "3.44: ORDER BY in an aggregate",
    r"\bjsonb": "3.45: jsonb",
    r"\bmedian\s*\(|\bpercentile": "3.47: median() and percentile()",
    r"\biif\s*\([^,()]*,[^,()]*\)": "3.48: iif() of two arguments",
    r"\bif\s*\(": "3.48: if()",
    r"\bunistr": "3.50: unistr()",
    r"\d_\d": "3.46: digit separators",
    r"0x": "a number people cannot read",
}  # fmt: skip


def sources() -> dict[str, str]:
    names: list[tuple[str, ...]] = [("schema.sql",), ("queries.sql",)]
    names += [("migrations", f"{name}.sql") for name in Migrations(PACKAGE, PREFIX).names[1:]]
    return {"/".join(name): strip_comments(read_text(PACKAGE, *name)) for name in names}


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    app = Towline(f"sqlite:///{tmp_path_factory.mktemp('sql')}/app.db")
    app.migrate()
    app.close()
    connection = sqlite3.connect(app.url.removeprefix("sqlite:///"), isolation_level=None)
    yield connection
    connection.close()


@pytest.mark.parametrize("pattern", NEWER)
def test_Q10_no_syntax_is_newer_than_3_35(pattern: str) -> None:
    for name, text in sources().items():
        found = re.search(pattern, text, re.IGNORECASE)
        assert not found, f"{name}: {NEWER[pattern]}: {found[0]!r}"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a -> 'b'", "SELECT a->>'b'", "SELECT unixepoch()", "CREATE TABLE t (x) STRICT",
        "a RIGHT JOIN b", "a FULL OUTER JOIN b", "a IS NOT DISTINCT FROM b", "datetime('subsec')",
        "concat(a, b)", "string_agg(a, b)", "jsonb(a)", "iif(a, b)", "1_000", "unhex(x)",
    ],
)  # fmt: skip
def test_Q10_the_scan_finds_what_it_looks_for(text: str) -> None:
    assert any(re.search(pattern, text, re.IGNORECASE) for pattern in NEWER)


@pytest.mark.parametrize("query", list(Queries(PACKAGE, PREFIX)), ids=lambda query: query.name)
def test_every_statement_prepares_with_its_parameters(
    tables: sqlite3.Connection, query: Query
) -> None:
    """As connections send it, with question marks, and one value for each of them."""
    assert query.qmark.count("?") == len(query.order)
    assert "{" not in query.text
    assert not re.search(r":\w", query.qmark)
    lists = re.findall(r"json_each\(:(\w+)\)", query.text)
    values = ["[]" if name in lists else 1 for name in query.order]
    tables.execute("BEGIN")
    try:
        tables.execute(f"EXPLAIN {query.qmark}", values).fetchall()
        tables.execute(query.qmark, values).fetchall()
    finally:
        tables.execute("ROLLBACK")
    with pytest.raises(sqlite3.ProgrammingError, match="Incorrect number of bindings"):
        tables.execute(query.qmark, [*values, 1])


def test_names_are_unique_and_each_is_one_statement() -> None:
    text = read_text(PACKAGE, "queries.sql")
    names = re.findall(r"^-- name: (.*)$", text, re.MULTILINE)
    assert len(names) == len(set(names)) > 80
    assert all(re.fullmatch(r"[a-z][a-z_]*", name) for name in names)
    for name, body in bodies().items():
        assert len(split_statements(body)) == 1, name


def bodies() -> dict[str, str]:
    _, *parts = re.split(r"^-- name: (\w+)$", read_text(PACKAGE, "queries.sql"), flags=re.MULTILINE)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_every_statement_of_more_than_a_few_lines_says_what_it_is_for() -> None:
    silent = [
        name
        for name, body in bodies().items()
        if not body.lstrip().startswith("--")
        and len(strip_comments(body).split()) > 40
        and not name.startswith(("insert_", "walk_"))
    ]
    assert silent == []


def test_columns_are_always_listed() -> None:
    for name, text in sources().items():
        assert not re.search(r"SELECT\s+\*|\w\.\*", text), name
        for insert in re.findall(r"INSERT INTO \{\w+\}(?: AS \w)?\s*(.)", text):
            assert insert == "(", name


def test_no_table_is_named_without_its_prefix() -> None:
    """Every name stands in braces, or two apps on one file would meet."""
    for name, text in sources().items():
        for table in re.findall(r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|VIEW|ON)\s+(\w+)\s*[(\n]", text):
            assert table not in TABLES + VIEWS, f"{name}: {table}"
        named = set(re.findall(r"\{(\w+)\}", text))
        lists = read_columns(read_text(PACKAGE, "queries.sql"))
        assert named <= {*TABLES, *VIEWS, *lists, "prefix", "past", "direction"}


def test_there_are_no_triggers_and_no_foreign_keys() -> None:
    for name, text in sources().items():
        assert not re.search(r"\b(TRIGGER|REFERENCES|FOREIGN)\b", text, re.IGNORECASE), name


def test_every_statement_is_used() -> None:
    package = Path(towline.__file__).parent
    files = package.rglob("*.py")
    words = {word for path in files for word in re.findall(r"\w+", path.read_text("utf-8"))}
    unused = [name for name in bodies() if not {name, f"{name}_newest", f"{name}_oldest"} & words]
    assert unused == []
