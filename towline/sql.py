"""Named statements: reads an engine's `queries.sql` and `schema.sql`, fills in table names.

A query is looked up by name and called with exactly its parameters; the result is a Statement,
which a connection executes. Nothing here talks to a database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from .errors import InvalidSetting

Scalar = str | int | float | bytes | None
Row = tuple[Scalar, ...]
Copy = tuple[str, tuple[str, ...], tuple[str, ...]]

TABLES = (
    "job", "live", "attempt", "chain", "key", "blocker",
    "worker", "queue", "schedule", "limit", "lane", "audit", "rollup", "mark", "migration",
)  # fmt: skip
SERVER_TABLES = ("note",)  # of PostgreSQL alone
VIEWS = ("jobs", "attempts", "chains")
SEQUENCES = ("job_ids",)
STATES = range(5)  # of a row in `live`

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_LIST = re.compile(r"^-- columns: (\w+) = (.*(?:\n--  .*)*)", re.MULTILINE)
_COLUMN = re.compile(r"[a-z]\w* ?(?:text|bigint|integer|smallint)?")
_LISTED = re.compile(r"\{([a-z]\.|:)?(\w+)( typed| set| added| summed)?\}")
_COMMENT = re.compile(r"--[^\n]*")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_ABOVE = "-- above:"
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,39}")
_RECORDS = re.compile(r"json_to_recordset\(:rows::text::json\)\s+AS r\(([^()]*)\)")
_COPYABLE = re.compile(
    r"INSERT INTO (\S+) \(([^()]*)\)\s+SELECT ([^()]*?)\s+FROM json_to_recordset\("
)


class Query:
    """One named statement of an engine, its parameters in order of appearance.

    `qmark`, `format` and `dollar` are the text for drivers that write ?, %s and $1. A statement
    whose state is a literal has one text for each; calling it with state= chooses.
    """

    __slots__ = (
        "_picks", "_plain", "copy", "dollar", "format", "name", "names", "order", "qmark",
        "records", "states", "text", "width",
    )  # fmt: skip

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.order = tuple(_PARAMETER.findall(text))
        self.names = frozenset(self.order)
        self.qmark = _PARAMETER.sub("?", text)
        self.format = _PARAMETER.sub("%s", text.replace("%", "%%"))
        numbers = count(1)
        self.dollar = _PARAMETER.sub(lambda found: f"${next(numbers)}", text)
        self.width: int | None = None  # columns of the result, learnt by a connection that asks
        types = _record_types(text)
        self.records = frozenset(types)  # columns of the one JSON parameter that holds many rows
        self.copy = _copy(text, types) if types else None
        self._picks: dict[tuple[str, ...], tuple[tuple[str, int], ...]] = {}
        self.states: tuple[Query, ...] = ()
        if "{state}" in text:
            self.states = tuple(Query(name, text.replace("{state}", str(n))) for n in STATES)
            self.names |= {"state"}
        self._plain = None if self.names else Statement(self, ())  # one that never differs

    def __call__(self, **params: Scalar) -> Statement:
        if self._plain is not None and not params:
            return self._plain
        if params.keys() != self.names:
            raise TypeError(f"{self.name} takes {sorted(self.names)}, not {sorted(params)}")
        if self.states:
            state = params.pop("state")
            assert isinstance(state, int)
            return self.states[state](**params)
        return Statement(self, tuple([params[name] for name in self.order]))

    def many(self, columns: tuple[str, ...], rows: Sequence[Row]) -> Statement:
        """The same statement once for each row; nothing comes back."""
        return Statement(self, (), rows, False, self._check(columns))

    def counted(self, columns: tuple[str, ...], rows: Sequence[Row]) -> Statement:
        """The same statement once for each row; back comes how many rows each one changed."""
        return Statement(self, (), rows, True, self._check(columns))

    def _check(self, columns: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        """Refuse columns that are not the statement's; say where it finds those of its records."""
        picks = self._picks.get(columns)
        if picks is None:
            if not (self.records <= {"n", *columns} if self.records else columns == self.order):
                raise TypeError(f"{self.name} takes {self.records or self.order}, not {columns}")
            named = {c: columns.index(c) for c in columns if c in self.records}
            self._picks[columns] = picks = tuple(named.items())
        return picks


class Statement(Struct, eq=False):
    """A query with its parameters: what an operation yields and a connection executes."""

    query: Query
    params: Row
    rows: Sequence[Row] | None = None
    counted: bool = False
    picks: tuple[tuple[str, int], ...] = ()  # column names and places, for rows sent as records

    def __repr__(self) -> str:
        return f"<{self.query.name}>"


class Queries:
    """An engine's statements by name: `queries.claim_jobs(...)` is a Statement."""

    def __init__(self, package: str, prefix: str, schema: str = "") -> None:
        vars(self).update(_read_once(package, prefix, schema))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Query: ...

    def __iter__(self) -> Iterator[Query]:
        return iter(vars(self).values())


@lru_cache(16)
def _read_once(package: str, prefix: str, schema: str) -> dict[str, Query]:
    """Reading them takes longer than anything else that opening an app does."""
    return {query.name: query for query in read_queries(package, prefix, schema)}


def read_queries(package: str, prefix: str, schema: str = "") -> Iterator[Query]:
    """Yield the statements of `queries.sql`, names filled in, comments taken out.

    Comments go because Python's sqlite3 looks at the first word to tell a write, indentation
    because psycopg reads a statement of more than 4096 characters anew each time.
    """
    head, *parts = _NAME.split(read_text(package, "queries.sql"))
    lists = read_columns(head)
    for name, text in _variants(zip(parts[::2], parts[1::2], strict=True)):
        lines = [line.strip() for line in strip_comments(text).splitlines()]
        plain = "\n".join(line for line in lines if line)
        filled = fill(list_columns(plain.rstrip(";"), lists), prefix, schema)
        if "{direction}" in filled:
            for suffix, past, direction in (("newest", "<", "DESC"), ("oldest", ">", "ASC")):
                walk = filled.replace("{past}", past).replace("{direction}", direction)
                yield Query(f"{name}_{suffix}", walk)
        elif "{wait}" in filled:
            yield Query(name, filled.replace("{wait}", ""))
            yield Query(f"{name}_now", filled.replace("{wait}", "SKIP LOCKED"))
        else:
            yield Query(name, filled)


def _variants(parts: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """A statement with lines `-- above: …` is two: in the second one they count."""
    for name, text in parts:
        yield name, text
        if _ABOVE in text:
            yield f"{name}_above", text.replace(_ABOVE, "")


def read_columns(head: str) -> dict[str, list[str]]:
    """The lists of columns that the head of `queries.sql` names, each column perhaps with its type.

    They stand in SQL as they are, so there is nothing but names and types in them.
    """
    lists: dict[str, list[str]] = {}
    for name, text in _LIST.findall(head):
        lists[name] = [column.strip() for column in text.replace("\n--", "").split(",")]
        wrong = [column for column in lists[name] if not _COLUMN.fullmatch(column)]
        if wrong or name in TABLES + SERVER_TABLES + VIEWS + SEQUENCES:
            raise ValueError(f"columns {name}: {wrong or 'a table has this name'}")
    return lists


def list_columns(text: str, lists: dict[str, list[str]]) -> str:
    """Put the columns in place of `{stored}`, `{j.stored}`, `{:stored}`, `{stored typed}` and
    `{stored set}`, which gives each the parameter of its name; parameters of their names and types
    in place of `{:stored typed}`. Of numbers also `{counted summed}`, and `{counted added}`: what
    an upsert of `t` adds to them."""

    def listed(found: re.Match[str]) -> str:
        front, name, form = found.groups()
        if name not in lists:
            return found[0]
        if form == " typed" and front == ":":
            typed = (column.split() for column in lists[name])
            return ", ".join(f":{column}::{type} AS {column}" for column, type in typed)
        if form == " typed":
            return ", ".join(lists[name])
        columns = [column.partition(" ")[0] for column in lists[name]]
        if form == " set":
            return ", ".join(f"{column} = :{column}" for column in columns)
        if form == " added":
            return ", ".join(f"{column} = t.{column} + excluded.{column}" for column in columns)
        if form == " summed":
            return ", ".join(f"cast(sum({column}) AS bigint)" for column in columns)
        return ", ".join(f"{front or ''}{column}" for column in columns)

    return _LISTED.sub(listed, text)


def _record_types(text: str) -> dict[str, str]:
    """The columns that a statement reads from its records, with their types."""
    found = _RECORDS.search(text)
    parts = found[1].split(",") if found else ()
    return dict(part.strip().split(maxsplit=1) for part in parts)


def _copy(text: str, types: dict[str, str]) -> Copy | None:
    """Table, columns and types of a plain INSERT of records, which COPY can do as well."""
    found = _COPYABLE.match(text)
    if not found or "ON CONFLICT" in text:
        return None
    columns, values = (tuple(re.split(r",\s*", part)) for part in (found[2], found[3]))
    return (found[1], columns, tuple(types[c] for c in columns)) if columns == values else None


def folder_of(package: str) -> Path:
    """Where the files of one of our packages lie. Plain paths: `importlib.resources` is slow to
    import, and imports more of itself at its first use."""
    return Path(__file__).parents[1].joinpath(*package.split("."))


def read_text(package: str, *path: str) -> str:
    return folder_of(package).joinpath(*path).read_text("utf-8")


def strip_comments(text: str) -> str:
    return _COMMENT.sub("", text)


def split_statements(text: str) -> list[str]:
    """Split a schema or migration into statements; our SQL has no semicolon inside one."""
    return [part.strip() for part in strip_comments(text).split(";") if part.strip()]


def fill(text: str, prefix: str, schema: str = "") -> str:
    """Put the real names of tables and views in place of `{job}` and the like."""
    place = f'"{schema}".' if schema else ""  # quoted: it may be a word of SQL, such as user
    for name in TABLES + SERVER_TABLES + VIEWS + SEQUENCES:
        text = text.replace("{" + name + "}", place + prefix + name)
    return text.replace("{prefix}", prefix).replace("{schema}", schema)


def check_prefix(prefix: str, what: str = "prefix") -> str:
    """Return the prefix if it can stand in SQL unquoted; identifiers are never built from less."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise InvalidSetting(
            f"{what} {prefix!r} must be lower-case letters, digits and underscores, "
            "not begin with a digit, and have at most 40 characters"
        )
    if prefix.startswith(("sqlite_", "pg_")):
        raise InvalidSetting(f"{what} {prefix!r} is reserved by the database")
    return prefix
