"""Schema and migrations: which were applied, what is missing, and the text for other tools.

A fresh database gets the whole schema at once; an older one the steps after those it has. Each is
recorded with its time, and all of it is one transaction: a failed one leaves nothing half done.
A migration whose name ends in "-breaking" shuts out releases that do not know it; any other can be
applied while older workers still run.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from .errors import SchemaMismatch, SchemaMissing
from .operation import Query, Row, Statement, Steps
from .sql import SERVER_TABLES, TABLES, Queries, fill, folder_of, read_text, split_statements
from .store import Store

FIRST = "0001-initial"  # the schema itself
BREAKING = "-breaking"
CONCURRENT = "-- concurrently"  # first words of a step that PostgreSQL runs outside a transaction
COMMAND = "run `towline migrate` or call app.migrate()"

_BUILT = re.compile(r"CREATE (?:UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS (\w+)")


def applied_to(sql: Queries) -> Steps[set[str] | None]:
    """The migrations that a database has; None when it has no tables of ours."""
    ((tables,),) = yield sql.has_tables()
    if not tables:
        return None
    return {str(name) for (name,) in (yield sql.list_migrations())}


class Migrations(Struct, dict=True):
    """The steps of one engine, in order of their names."""

    package: str
    prefix: str
    schema: str = ""

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every migration this release knows, oldest first."""
        later = folder_of(self.package).joinpath("migrations").glob("*.sql")
        return (FIRST, *sorted(path.stem for path in later))

    def text(self, sql: Queries, after: str | None = None) -> str:
        """The SQL that takes a database to this release's schema, for Alembic, Django or people.

        `after` names the newest migration the database has; without it, it is empty.
        """
        if after is None:
            names = self.names
            body = read_text(self.package, "schema.sql")
            if self.schema not in ("", "public"):
                body = f'CREATE SCHEMA IF NOT EXISTS "{{schema}}";\n\n{body}'
        else:
            names = tuple(name for name in self.names if name > after)
            body = "\n".join(self._step(name) for name in names)
        records = "\n".join(
            f"INSERT INTO {{migration}} (name, applied_at) VALUES ('{name}', ({sql.clock.text}));"
            for name in names
        )
        return fill(f"{body}\n{records}\n", self.prefix, self.schema)

    def migrate(self, store: Store) -> Steps[tuple[list[str], str | None]]:
        """Bring the schema up to date, up to the first step that cannot be in a transaction.

        Returns the names of what was applied, and of that step. One at a time does it.
        """
        sql = store.sql
        if self.schema:
            yield self.hold(sql)
        applied = yield from applied_to(sql)
        concurrent = None
        if applied is None:
            missing = list(self.names)
            texts = [read_text(self.package, "schema.sql")]
            yield from self._create_schema(sql)
        else:
            self._refuse_newer(applied)
            missing = [name for name in self.names if name not in applied]
            apart = [name for name in missing if self._step(name).startswith(CONCURRENT)]
            if apart:
                concurrent = apart[0]
                missing = missing[: missing.index(concurrent)]
            texts = [self._step(name) for name in missing]
        for text in texts:
            yield from self._statements(text)
        yield from self._record(store, missing)
        return missing, concurrent

    def hold(self, sql: Queries) -> Statement:
        """Lock the tables' schema against other migrations until the end of the transaction."""
        return sql.hold_schema(lock=_lock(f"{self.schema}.{self.prefix}"))

    def build(self, store: Store, name: str) -> Steps[list[str]]:
        """Apply a step that cannot be in a transaction; harmless to repeat after a failure.

        An index that a failed build has left invalid is dropped first, and none is left behind.
        """
        if name in ((yield from applied_to(store.sql)) or ()):
            return []
        yield from self._drop_invalid(store.sql, name)
        try:
            yield from self._statements(self._step(name))
        except BaseException:
            try:
                yield from self._drop_invalid(store.sql, name)
            except Exception:  # the next one drops it; the first error says why
                pass
            raise
        yield from self._record(store, [name])
        return [name]

    def vacuum(self) -> list[str]:
        """One statement for each table, where vacuum is done by table."""
        return [
            fill(f"VACUUM {{{table}}}", self.prefix, self.schema)
            for table in TABLES + SERVER_TABLES
        ]

    def check(self, sql: Queries) -> Steps[None]:
        """Raise unless the schema is one this release can work with."""
        self.judge((yield from applied_to(sql)))

    def prefixes(self, sql: Queries) -> Steps[list[tuple[str, str]]]:
        """Prefix and schema of each set of tables like ours."""
        return [(str(prefix), str(schema)) for prefix, schema in (yield sql.find_prefixes())]

    def judge(self, applied: set[str] | None) -> None:
        """Raise unless these migrations, None for no tables, are what this release needs."""
        if applied is None:
            raise SchemaMissing(f"the database has no Towline tables: {COMMAND}")
        missing = [name for name in self.names if name not in applied]
        if missing:
            raise SchemaMismatch(
                f"the schema is older than this release of Towline: {', '.join(missing)} "
                f"missing; {COMMAND}"
            )
        self._refuse_newer(applied)

    def _refuse_newer(self, applied: set[str]) -> None:
        unknown = sorted(applied - set(self.names))
        if any(name.endswith(BREAKING) for name in unknown):
            raise SchemaMismatch(
                f"the schema is newer than this release of Towline knows ({', '.join(unknown)}); "
                "install the release that wrote it, or a newer one"
            )

    def _step(self, name: str) -> str:
        if name == FIRST:  # until there is a release, which freezes it as a file of its own
            return read_text(self.package, "schema.sql")
        return read_text(self.package, "migrations", f"{name}.sql")

    def _statements(self, text: str) -> Steps[None]:
        filled = fill(text, self.prefix, self.schema)
        for number, statement in enumerate(split_statements(filled)):
            yield Query(f"schema_{number}", statement)()

    def _record(self, store: Store, names: Sequence[str]) -> Steps[None]:
        if names:
            now = yield from store.now()
            rows: list[Row] = [(name, now) for name in names]
            yield store.sql.record_migration.many(("name", "now"), rows)

    def _create_schema(self, sql: Queries) -> Steps[None]:
        """Unless it is there: that would need a right which the role may not have."""
        if not self.schema or (yield sql.has_schema()):
            return
        yield sql.hold_schema(lock=_lock(self.schema))  # another prefix may want it too
        if not (yield sql.has_schema()):
            yield sql.create_schema()

    def _drop_invalid(self, sql: Queries, name: str) -> Steps[None]:
        """Of the indexes of this step, no other: the application may be building one of its own."""
        named = _BUILT.findall(fill(self._step(name), self.prefix, self.schema))
        found = {index for (index,) in (yield sql.invalid_indexes(names=json.dumps(named)))}
        for index in named:
            if index in found:
                text = f'DROP INDEX CONCURRENTLY IF EXISTS "{self.schema}".{index}'
                yield Query("drop_index", text)()


def _lock(name: str) -> int:
    return zlib.crc32(f"towline {name}".encode())
