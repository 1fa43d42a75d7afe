"""Alembic: our tables in its migrations, and out of what it proposes by itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

from sqlalchemy import text

from ..app import Towline
from ..errors import InvalidSetting
from ..sql import SERVER_TABLES, TABLES, VIEWS, split_statements

Parents = Mapping[str, str | None]
IncludeName = Callable[[str | None, str, Any], bool]

APART = " CONCURRENTLY "  # in a statement that PostgreSQL runs outside a transaction only


def upgrade(op: Any, app: Towline, after: str | None = None) -> None:
    """Execute what `app.ddl(after)` says, one statement after another; also with `--sql`.

    `after` names the newest migration of ours that the database has: the first time there is none.
    """
    known = app.runner.engine.migrations.names
    if after is not None and after not in known:
        raise InvalidSetting(f"there is no migration {after!r}; there are {', '.join(known)}")
    for statement in split_statements(app.ddl(after)):
        apart = APART in statement
        with op.get_context().autocommit_block() if apart else nullcontext():
            op.execute(text(statement.replace(":", r"\:")))  # a colon is no parameter


def not_ours(app: Towline, mine: IncludeName | None = None) -> IncludeName:
    """For `context.configure(include_name=…)`: all but our tables, which are no model of yours;
    `mine` is asked about the rest."""
    engine = app.settings.engine
    names = {engine.prefix + name for name in TABLES + SERVER_TABLES + VIEWS}
    # What Alembic calls None is the schema that the connection looks at first.
    schemas = {None, engine.server.schema}

    def include_name(name: str | None, kind: str, parents: Parents) -> bool:
        if kind == "table" and name in names and parents.get("schema_name") in schemas:
            return False
        return mine is None or mine(name, kind, parents)

    return include_name
