"""The tables of an app, made and brought up to date by Django's migrations.

Each release that changes the schema adds a migration with this same operation. What there is to do,
the database says: nothing, where the tables were made by `towline migrate` or by a newer release.
"""

from __future__ import annotations

from typing import Any

from django.db.migrations.operations.base import Operation

from ...errors import SchemaMissing
from ...migrate import applied_to
from ...operation import Op
from ...sql import split_statements
from .project import aliases, app_of


class Tables(Operation):
    """Bring the tables of every app in this database up to this release."""

    reduces_to_sql = True
    reversible = False

    def state_forwards(self, app_label: str, state: Any) -> None:
        """The models of the admin are views of these tables, and not managed."""

    def database_forwards(self, app_label: str, schema_editor: Any, *states: Any) -> None:
        connection = schema_editor.connection
        for alias in aliases():
            app = app_of(alias)
            if app.database != connection.alias:
                continue
            for statement in split_statements(self._missing(app, connection)):
                schema_editor.execute(statement, params=None)

    def _missing(self, app: Any, connection: Any) -> str:
        runner = app.runner
        look = Op("applied", applied_to, runner.store.sql, reads=True)
        try:
            applied = runner.engine.recognise(connection).run(look)
        except SchemaMissing:
            applied = None
        if applied is None:
            return str(app.ddl())
        names = runner.engine.migrations.names
        missing = [name for name in names if name not in applied]
        if not missing:
            return ""
        return str(app.ddl(after=names[names.index(missing[0]) - 1]))

    def describe(self) -> str:
        return "Create Towline's tables or bring them up to date"
