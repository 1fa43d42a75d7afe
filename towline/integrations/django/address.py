"""Where a database of `DATABASES` is, as a URL for connections of ours."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured

# What Django keeps for itself of the options of a PostgreSQL database; the rest is libpq's.
DJANGOS = frozenset(
    {
        "assume_role", "client_encoding", "context", "cursor_factory", "isolation_level", "pool",
        "prepare_threshold", "server_side_binding",
    }
)  # fmt: skip
# A folder that is never there: only Django's own connections lead into memory.
IN_MEMORY = "sqlite:////in-memory-database-of-a-test/only-with-on="


def url_of(database: Mapping[str, Any]) -> str:
    """The URL of a database as `connections.settings` has it, that of a running test included."""
    kind = str(database["ENGINE"]).rpartition(".")[2]
    if kind == "sqlite3":
        return _file(os.fspath(database["NAME"]))
    if kind in ("postgresql", "postgis"):
        return _server(database)
    raise ImproperlyConfigured(
        f"Towline works on SQLite and PostgreSQL; {database['ENGINE']} is neither: name another "
        'database of DATABASES in OPTIONS["database"]'
    )


def is_in_memory(name: str) -> bool:
    return name == ":memory:" or (name.startswith("file:") and "mode=memory" in name)


def _file(name: str) -> str:
    if is_in_memory(name):
        return IN_MEMORY
    if name.startswith("file:"):
        raise ImproperlyConfigured(f"Towline takes a path as NAME of a SQLite database, not {name}")
    return f"sqlite:///{quote(os.path.abspath(name))}"


def _server(database: Mapping[str, Any]) -> str:
    said = {name: str(database.get(name) or "") for name in ("USER", "PASSWORD", "HOST", "PORT")}
    user, password, host, port = (quote(text, safe="") for text in said.values())
    person = f"{user}{f':{password}' if password else ''}@" if user else ""
    options = {
        name: value
        for name, value in (database.get("OPTIONS") or {}).items()
        if name not in DJANGOS and value is not None
    }
    name = quote(str(database.get("NAME") or ""), safe="")
    if not name and "service" not in options:
        name = "postgres"  # as Django does
    query = f"?{urlencode(options, quote_via=quote)}" if options else ""
    return f"postgresql://{person}{host}{f':{port}' if port else ''}/{name}{query}"
