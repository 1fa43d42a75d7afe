"""Named statements: reads an engine's `queries.sql` and `schema.sql`, fills in table names.

Nothing here talks to a database.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import InvalidSetting
from .operation import Query

TABLES = (
    "job", "live", "attempt", "chain", "key", "blocker",
    "worker", "queue", "schedule", "limit", "lane", "audit", "rollup", "mark", "migration",
)  # fmt: skip
SERVER_TABLES = ("note",)  # of PostgreSQL alone
VIEWS = ("jobs", "attempts", "chains")
SEQUENCES = ("job_ids",)

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_LIST = re.compile(r"^-- columns: (\w+) = (.*(?:\n--  .*)*)", re.MULTILINE)
_COLUMN = re.compile(r"[a-z]\w* ?(?:text|bigint|integer|smallint)?")
_LISTED = re.compile(r"\{([a-z]\.|:)?(\w+)( typed| set| added| summed)?\}")
_COMMENT = re.compile(r"--[^\n]*")
_ABOVE = "-- above:"
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,39}")


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
