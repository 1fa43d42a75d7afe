"""What `manage.py check` says: about the settings always, about the tables with --database."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import django
from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder

from ...errors import SchemaMismatch, SchemaMissing, TowlineError
from ...operation import Op
from .address import is_in_memory, url_of

INSTALLED = "towline.integrations.django"


def check_installed(alias: str) -> Iterator[CheckMessage]:
    """What the app itself cannot say: Django asks the backend."""
    if not apps.is_installed(INSTALLED):
        yield Error(
            f'TASKS["{alias}"] is Towline\'s, and its app is not installed.',
            hint=f'Add "{INSTALLED}" to INSTALLED_APPS, for its tables and its command.',
            id="towline.E001",
        )


def check_entries(app_configs: object = None, **_: Any) -> Iterator[CheckMessage]:
    """Every entry of TASKS that is ours."""
    from .project import aliases

    for alias in aliases():
        yield from check_entry(alias, settings.TASKS[alias].get("OPTIONS", {}))


def check_entry(alias: str, options: Mapping[str, Any]) -> Iterator[CheckMessage]:
    """Its database, and how that begins transactions."""
    name = options.get("database", "default")
    if name not in connections.settings:
        yield Error(
            f'TASKS["{alias}"]: there is no database {name!r} in DATABASES.',
            hint='OPTIONS["database"] is an alias of DATABASES.',
            id="towline.E002",
        )
        return
    database = connections.settings[name]
    try:
        url_of(database)
    except ImproperlyConfigured as error:
        yield Error(f'TASKS["{alias}"]: {error}', id="towline.E003")
        return
    if not database["ENGINE"].endswith("sqlite3") or django.VERSION < (5, 1):
        return
    mode = (database.get("OPTIONS") or {}).get("transaction_mode")
    if str(mode).upper() not in ("IMMEDIATE", "EXCLUSIVE") and not is_in_memory(
        str(database["NAME"])
    ):
        yield Warning(
            f"Transactions of database {name!r} begin as readers: one that writes later fails at "
            'once with "database is locked" while a worker writes.',
            hint=f'DATABASES["{name}"]["OPTIONS"] = {{"transaction_mode": "IMMEDIATE"}}',
            id="towline.W001",
        )


def check_tables(
    app_configs: object = None, databases: Sequence[str] | None = None, **_: Any
) -> Iterator[CheckMessage]:
    """The tables of each entry of TASKS whose database is looked at."""
    from .project import aliases, app_of

    for alias in aliases():
        try:
            app = app_of(alias)
        except ImproperlyConfigured:  # an entry that check_entry speaks of
            continue
        if app.database not in (databases or ()):
            continue
        runner = app.runner
        look = Op("check", runner.engine.migrations.check, runner.store.sql, reads=True)
        try:
            runner.engine.recognise(app.connection).run(look)
        except (SchemaMissing, SchemaMismatch) as problem:
            if not MigrationRecorder(app.connection).applied_migrations():
                continue  # a new database, which is about to be filled
            yield Warning(
                f'TASKS["{alias}"]: {str(problem).partition(":")[0]}.',
                hint=f"Run manage.py migrate --database {app.database}.",
                id="towline.W002",
            )
        except TowlineError as problem:
            yield Warning(f'TASKS["{alias}"]: {problem}', id="towline.W003")
