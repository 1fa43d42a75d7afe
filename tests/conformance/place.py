"""Where a caller's connection stands: the rows of DESIGN's table."""

from __future__ import annotations

from enum import Enum


class Place(Enum):
    """Where the connection stands when we get it: the rows of the table."""

    IN_TRANSACTION = "in a transaction"
    OPENS_BY_ITSELF = "idle, and the driver begins at the next statement"
    AUTOCOMMIT = "idle, and each statement commits"
    OURS = "our own connection"
