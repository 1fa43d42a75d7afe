"""The PostgreSQL part of `towline doctor`: the server, its settings, transactions and clock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

from ..engine import NOTE, OK, PROBLEM, Finding
from ..operation import Op, Row, Steps
from ..store import Store
from ..store.ground import int_of
from ..times import MICRO, length

OLDEST_POSTGRES = 130_000
LONG_TRANSACTION = 600  # seconds
CLOCK_SLACK = 2.0  # seconds that clocks may differ before it is worth a line


def describe(store: Store) -> Op[tuple[Row, int]]:
    """What the server says about itself, and its time."""

    def steps() -> Steps[tuple[Row, int]]:
        (row,) = yield store.sql.describe_database()
        return row, (yield from store.now())

    return Op("describe", steps, reads=True)


def examine(described: Row, now: int) -> Iterator[Finding]:
    """Findings from what `describe` answered."""
    version, autovacuum, standby, oldest = described
    yield _server(int_of(version), bool(standby))
    if autovacuum == "on":
        yield Finding(OK, "autovacuum", "on")
    else:
        yield Finding(
            PROBLEM,
            "autovacuum",
            "off: dead rows pile up and claims get slower every day",
            "set autovacuum = on in the server's configuration",
        )
    if int_of(oldest) > LONG_TRANSACTION:
        open_for = length(timedelta(seconds=int_of(oldest)))
        yield Finding(
            NOTE,
            "transactions",
            f"one has been open for {open_for}: dead rows stay as long, and claims get slower",
            "find it in pg_stat_activity; idle_in_transaction_session_timeout ends such ones",
        )
    yield _clock(abs(now / MICRO - time.time()))


def _server(version: int, standby: bool) -> Finding:
    name = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < OLDEST_POSTGRES:
        return Finding(PROBLEM, "server", f"{name} is too old", "upgrade to 13 or newer")
    if standby:
        return Finding(PROBLEM, "server", f"{name}, a read-only standby", "name the primary")
    return Finding(OK, "server", name)


def _clock(gap: float) -> Finding:
    if gap <= CLOCK_SLACK:
        return Finding(OK, "clock", "this host and the server agree")
    return Finding(
        NOTE,
        "clock",
        f"this host's clock differs from the server's by {length(timedelta(seconds=gap))}; "
        "the server's decides, so only what people read is wrong",
        "synchronise the clocks (NTP)",
    )
