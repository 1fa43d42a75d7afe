"""Schema and migrations: which were applied, what is missing, and the text for other tools.

A fresh database gets the whole schema at once; an older one the steps after those it has. Each is
recorded with its time, and all of it is one transaction: a failed one leaves nothing half done.
A migration whose name ends in "-breaking" shuts out releases that do not know it; any other can be
applied while older workers still run.
"""

from __future__ import annotations

from functools import cached_property
from importlib.resources import files

from .errors import SchemaMismatch, SchemaMissing
from .operation import Op, Steps, compose
from .sql import Queries, Query, Row, fill, read_text, split_statements
from .store.base import Clock

BREAKING = "-breaking"
COMMAND = "run `windlass migrate` or call app.migrate()"


class Migrations:
    """The steps of one engine, in order of their names."""

    def __init__(self, package: str, prefix: str) -> None:
        self._package = package
        self._prefix = prefix

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every migration this release knows, oldest first."""
        found = files(self._package).joinpath("migrations").iterdir()
        return tuple(sorted(p.name.removesuffix(".sql") for p in found if p.name.endswith(".sql")))

    def text(self, after: str | None = None) -> str:
        """The SQL that takes a database to this release's schema, for Alembic, Django or people.

        `after` names the newest migration the database has; without it, it is empty.
        """
        if after is None:
            names = self.names
            body = read_text(self._package, "schema.sql")
        else:
            names = tuple(name for name in self.names if name > after)
            body = "\n".join(self._step(name) for name in names)
        records = "\n".join(
            f"INSERT INTO {{migration}} (name, applied_at) VALUES ('{name}', "
            "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER));"
            for name in names
        )
        return fill(f"{body}\n{records}\n", self._prefix)

    def migrate(self, sql: Queries, clock: Clock) -> Op[list[str]]:
        """Bring the schema up to date and return the names of what was applied."""

        def steps() -> Steps[list[str]]:
            applied = yield from self._applied(sql)
            if applied is None:
                missing = list(self.names)
                texts = [read_text(self._package, "schema.sql")]
            else:
                self._refuse_newer(applied)
                missing = [name for name in self.names if name not in applied]
                texts = [self._step(name) for name in missing]
            for text in texts:
                for number, statement in enumerate(split_statements(fill(text, self._prefix))):
                    yield Query(f"schema_{number}", statement)()
            rows: list[Row] = [(name, clock()) for name in missing]
            if rows:
                yield sql.record_migration.many(("name", "now"), rows)
            return missing

        return compose("migrate", steps)

    def check(self, sql: Queries) -> Op[None]:
        """Raise unless the schema is one this release can work with."""

        def steps() -> Steps[None]:
            self.judge((yield from self._applied(sql)))

        return compose("check_schema", steps, reads=True)

    def judge(self, applied: set[str] | None) -> None:
        """Raise unless these migrations, None for no tables, are what this release needs."""
        if applied is None:
            raise SchemaMissing(f"the database has no Windlass tables: {COMMAND}")
        missing = [name for name in self.names if name not in applied]
        if missing:
            raise SchemaMismatch(
                f"the schema is older than this release of Windlass: {', '.join(missing)} "
                f"missing; {COMMAND}"
            )
        self._refuse_newer(applied)

    def _refuse_newer(self, applied: set[str]) -> None:
        unknown = sorted(applied - set(self.names))
        if any(name.endswith(BREAKING) for name in unknown):
            raise SchemaMismatch(
                f"the schema is newer than this release of Windlass knows ({', '.join(unknown)}); "
                "upgrade with `pip install --upgrade windlass`"
            )

    def _applied(self, sql: Queries) -> Steps[set[str] | None]:
        ((tables,),) = yield sql.has_tables()
        if not tables:
            return None
        return {str(name) for name, _ in (yield sql.list_migrations())}

    def _step(self, name: str) -> str:
        return read_text(self._package, "migrations", f"{name}.sql")
