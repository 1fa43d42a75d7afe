"""Named statements: reads an engine's `queries.sql` and `schema.sql`, fills in table names.

A query is looked up by name and called with exactly its parameters; the result is a Statement,
which a connection executes. Nothing here talks to a database.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from importlib.resources import files

from .errors import InvalidSetting

Scalar = str | int | float | bytes | None
Row = tuple[Scalar, ...]

TABLES = (
    "job", "live", "attempt", "chain", "key", "blocker",
    "worker", "queue", "rollup", "mark", "migration",
)  # fmt: skip
VIEWS = ("jobs", "attempts", "chains")

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")
_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_PREFIX = re.compile(r"[a-z_][a-z0-9_]{0,39}")


class Query:
    """One named statement of an engine, its parameters in order of appearance."""

    __slots__ = ("name", "names", "order", "qmark", "text", "width")

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.order = tuple(_PARAMETER.findall(text))
        self.names = frozenset(self.order)
        self.qmark = _PARAMETER.sub("?", text)
        self.width: int | None = None  # columns of the result, learnt by a connection that asks

    def __call__(self, **params: Scalar) -> Statement:
        if params.keys() != self.names:
            raise TypeError(f"{self.name} takes {sorted(self.names)}, not {sorted(params)}")
        return Statement(self, tuple([params[name] for name in self.order]))

    def many(self, columns: tuple[str, ...], rows: Sequence[Row]) -> Statement:
        """The same statement once for each row; nothing comes back."""
        self._check(columns)
        return Statement(self, (), rows)

    def counted(self, columns: tuple[str, ...], rows: Sequence[Row]) -> Statement:
        """The same statement once for each row; back comes how many rows each one changed."""
        self._check(columns)
        return Statement(self, (), rows, counted=True)

    def _check(self, columns: tuple[str, ...]) -> None:
        if columns != self.order:
            raise TypeError(f"{self.name} takes {self.order}, not {columns}")


class Statement:
    """A query with its parameters: what an operation yields and a connection executes."""

    __slots__ = ("counted", "params", "query", "rows")

    def __init__(
        self,
        query: Query,
        params: Row,
        rows: Sequence[Row] | None = None,
        *,
        counted: bool = False,
    ) -> None:
        self.query = query
        self.params = params
        self.rows = rows
        self.counted = counted

    def __repr__(self) -> str:
        return f"<{self.query.name}>"


class Queries:
    """An engine's statements by name: `queries.claim_jobs(...)` is a Statement."""

    def __init__(self, package: str, prefix: str) -> None:
        self._queries = {query.name: query for query in read_queries(package, prefix)}

    def __getattr__(self, name: str) -> Query:
        try:
            return self._queries[name]
        except KeyError:
            raise AttributeError(f"no query named {name}") from None

    def __iter__(self) -> Iterator[Query]:
        return iter(self._queries.values())


def read_queries(package: str, prefix: str) -> Iterator[Query]:
    """Yield the statements of `queries.sql`, names filled in, comments taken out.

    Comments go because Python's sqlite3 looks at the first word to tell a write.
    """
    _, *parts = _NAME.split(read_text(package, "queries.sql"))
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        plain = "\n".join(line for line in strip_comments(text).splitlines() if line.strip())
        filled = fill(plain.rstrip(";"), prefix)
        if "{direction}" not in filled:
            yield Query(name, filled)
            continue
        for suffix, past, direction in (("newest", "<", "DESC"), ("oldest", ">", "ASC")):
            walk = filled.replace("{past}", past).replace("{direction}", direction)
            yield Query(f"{name}_{suffix}", walk)


def read_text(package: str, *path: str) -> str:
    return files(package).joinpath(*path).read_text("utf-8")


def strip_comments(text: str) -> str:
    return _COMMENT.sub("", text)


def split_statements(text: str) -> list[str]:
    """Split a schema or migration into statements; our SQL has no semicolon inside one."""
    return [part.strip() for part in strip_comments(text).split(";") if part.strip()]


def fill(text: str, prefix: str) -> str:
    """Put the real names of tables and views in place of `{job}` and its brothers."""
    for name in TABLES + VIEWS:
        text = text.replace("{" + name + "}", prefix + name)
    return text.replace("{prefix}", prefix)


def check_prefix(prefix: str) -> str:
    """Return the prefix if it can stand in SQL unquoted; identifiers are never built from less."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise InvalidSetting(
            f"prefix {prefix!r} must be lower-case letters, digits and underscores, "
            "not begin with a digit, and have at most 40 characters"
        )
    if prefix.startswith(("sqlite_", "pg_")):
        raise InvalidSetting(f"prefix {prefix!r} is reserved by the database")
    return prefix
