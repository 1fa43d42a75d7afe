"""The contract: every operation on the store, stated once with its promise.

An operation yields named statements of the engine and never touches a connection, so it runs
blocking or awaiting, on our connection or the caller's, and composes with `yield from`.
"""

from __future__ import annotations

from .bulk import Bulk


class Store(Bulk):
    """All operations. An engine overrides one only where its database needs another sequence."""
