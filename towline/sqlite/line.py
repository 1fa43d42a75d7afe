"""The line of processes that wait for their turn at writing one SQLite file.

Where a process waits, and how: `lock` has the file and the turn itself. Bytes of the lock file
are locked::

    HOLD          held by the process whose turn it is
    a ticket      held by a process that waits; its number is the time of its arrival
    EXPRESS       held by a process that goes past a turn that has come to a standstill

    arrive ── nobody waits, HOLD is free ─────────────▶ rest what is owed ──▶ BEGIN IMMEDIATE
       │                                                       ▲                     │
       └──▶ take a ticket ──▶ no lower ticket ──▶ HOLD is free ┘                the caller's turn
                                                                                     │
                           let go of HOLD ◀── note what the next one owes ◀── COMMIT or ROLLBACK

Whoever lets go and comes back finds tickets and queues behind them, so nobody overtakes. Two that
arrive at once may both think they are first; HOLD decides. The locks are POSIX record locks: the
kernel drops them when the process dies, a forked child does not inherit them, and anyone can ask
who holds one without taking it. Every wait is a poll with a deadline, so no thread is ever stuck
in the kernel; the first in line polls quickly, the others seldom.

Room for others. An application connection that finds the database taken looks again after 1, 2, 5,
10 … 100 ms; it gets in if the database is free for a good part of the time, not if it is free for
20 µs after each turn. So while writers outside Towline have been seen lately, every turn leaves a
debt of rest, 3/4 of its own length. Time that passes before the next turn pays it off; only what is
left when the next one comes at once is waited for. Without such writers nothing is owed; the first
one after a quiet minute has to get in by luck.

Standstill. A process that was stopped (Ctrl-Z, a debugger) keeps its byte locks. If the record does
not change for a while, the others go past it by EXPRESS, where SQLite's own lock allows it.
"""

from __future__ import annotations

import random
import sqlite3
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .lock import Baton, Turn

# Lock bytes lie behind the records, so that a look at the file with a pager shows text first.
HOLD: Final = 1024
EXPRESS: Final = 1025
TICKETS: Final = 4096

# Tuning; the figures are in design/005-writer-lock.md.
RETRY: Final = 0.0005  # between two looks at the database, ± half of it
HEAD_RETRY: Final = 0.00005  # between the first looks of the first in line; then ever longer
STANDSTILL_AFTER: Final = 0.25  # seconds without a sign of life that are a standstill


def wait_in_line(
    turn: Turn, baton: Baton, connection: sqlite3.Connection, deadline: float
) -> int | None:
    """Wait for HOLD; or, at a standstill, for EXPRESS and the database. None: too late."""
    if turn.onlooker is not None:
        turn.onlooker.begins("wait in line", idle=True)
    ticket = time.monotonic_ns()
    while not baton.take(ticket):
        ticket += 1
    looked = changed = moved = time.monotonic()
    seen = baton.read_bytes(HOLD)
    line = -1
    while True:
        now = time.monotonic()
        if line != (ahead := baton.queue_before(ticket)):
            line, moved = ahead, now
        if not ahead and baton.take(HOLD):
            baton.let_go(ticket)
            return HOLD
        stuck = seen == turn.lock.standstill
        if stuck or now - looked > STANDSTILL_AFTER / 10:
            looked = now
            record = baton.read_bytes(HOLD)
            if record != seen:
                seen, changed = record, now
            elif (stuck or now - changed > STANDSTILL_AFTER) and baton.take(EXPRESS):
                if turn.begin(connection):
                    turn.lock.standstill = seen
                    baton.let_go(ticket)
                    return EXPRESS
                baton.let_go(EXPRESS)
        if now >= deadline:
            return None
        # The first in line looks often, the others less so the further back they are; all of
        # them less often while nothing moves.
        pause = min(HEAD_RETRY + ahead * RETRY / 2 + (now - moved) / 8, RETRY * (ahead + 1))
        time.sleep(min(pause, deadline - now))


def begin_patiently(turn: Turn, connection: sqlite3.Connection, deadline: float) -> bool:
    """Retry BEGIN IMMEDIATE until it succeeds or the deadline has passed."""
    while not turn.begin(connection):
        left = deadline - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(left, RETRY * (0.5 + random.random())))
    return True
