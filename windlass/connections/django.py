"""Django's connections: the driver's connection underneath, when Django lets it be used."""

from __future__ import annotations

from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionProxy


def unwrap(raw: object) -> Any:
    """The driver's connection of `django.db.connection` or `connections["alias"]`, else None.

    Refused, as Django would, in another thread, in an event loop, and in a broken `atomic`.
    """
    if isinstance(raw, ConnectionProxy):
        raw = raw._connections[raw._alias]
    if not isinstance(raw, BaseDatabaseWrapper):
        return None
    raw.ensure_connection()
    raw.validate_thread_sharing()
    raw.validate_no_broken_transaction()
    return raw.connection
