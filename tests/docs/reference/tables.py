"""reference/tables.md: views and tables, from the schema of the SQLite engine."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing

from tests.shape.source import PACKAGE
from towline import Towline

HEAD = """# Tables and views

Read with plain SQL through the **views**: they stay as they are, while tables may change with a
release. Never write to the tables: what belongs together is written together by the library.
`towline_` is the prefix, unless `Towline(prefix=…)` says another; `towline sql` prints the whole
schema. PostgreSQL has the same names, with its own types, and `towline_note`, by which workers
tell each other of lanes.

Times in views are ISO 8601 in UTC (`timestamptz` on PostgreSQL), in tables microseconds since
1970.
"""
_OBJECT = re.compile(
    r"((?:^--[^\n]*\n)+)CREATE (TABLE|VIEW) \{(\w+)\}", re.MULTILINE
)  # with the comment above it


def page() -> str:
    return "\n".join([HEAD, *_entries()])


def _entries() -> Iterator[str]:
    columns = _columns()
    text = (PACKAGE / "sqlite" / "schema.sql").read_text("utf-8")
    found = [(kind, name, comment) for comment, kind, name in _OBJECT.findall(text)]
    for wanted, title in (("VIEW", "Views"), ("TABLE", "Tables")):
        yield f"## {title}\n"
        for kind, name, comment in found:
            if kind == wanted:
                yield f"### towline_{name}\n"
                yield f"{_prose(comment)}\n"
                yield f"{', '.join(f'`{column}`' for column in columns[f'towline_{name}'])}\n"


def _prose(comment: str) -> str:
    """Comments as sentences, one a line; names of tables as they are."""
    lines: list[str] = []
    for line in comment.splitlines():
        text = re.sub(r"\{(\w+)\}", r"towline_\1", line.removeprefix("--").strip())
        new = not lines or lines[-1].endswith((".", ":")) or re.match(r"[\w, ]+: ", text)
        if new:
            lines.append(text)
        else:
            lines[-1] += f" {text}"
    return "\n".join(f"{line}  " for line in lines).rstrip()


def _columns() -> dict[str, list[str]]:
    """As a database has them that was made by it."""
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(Towline("sqlite:///x.db").ddl())
        names = connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
        return {
            name: [
                row[0]
                for row in connection.execute("SELECT name FROM pragma_table_info(?)", [name])
            ]
            for (name,) in names.fetchall()
        }
