"""The isolation level that locking needs: READ COMMITTED, by which a later statement sees more."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import WrongIsolation
from ..operation import Row

READ_COMMITTED = "read committed"


def refuse_old_snapshot(rows: Sequence[Row]) -> None:
    """Refuse to end, open again or delete what was taken, when the transaction goes on seeing
    the database as it was at its first statement. Each row ends with the level."""
    level = rows[0][-1] if rows else READ_COMMITTED
    if level not in (READ_COMMITTED, "read uncommitted"):  # which the server takes for the same
        raise WrongIsolation(
            f"a {str(level).upper()} transaction does not see who has just begun to wait for a "
            "chain, so it must not end, retry or delete jobs, nor change what they wait for: use "
            "READ COMMITTED for this transaction, or call this without on= after your commit"
        )
