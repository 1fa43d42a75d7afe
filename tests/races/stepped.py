"""One side of a meeting: an operation on a connection of its own, run a statement at a time.

In transactions as our engine makes them, or as a caller has them: begun by the caller, with a
savepoint around the operation, at any level. A side that met a deadlock starts anew, as our engine
does; a caller who sees an old state of the database may be refused instead.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from enum import Enum
from typing import Any

import psycopg
from psycopg.errors import SerializationFailure

from tests.races.footprint import Footprint, Held, Marks
from towline.connections.psycopg import PlainCursor, PsycopgConnection, execute
from towline.errors import TowlineError, WrongIsolation
from towline.operation import Mark, Op, Statement
from towline.postgres.errors import AGAIN
from towline.postgres.own_connection import SESSION, OwnConnection
from towline.postgres.transaction import SETTINGS, Transaction
from towline.sql import TABLES, Queries

PATIENCE = 30.0  # seconds until a step that neither ends nor waits is a mistake of ours
GLANCE = 0.0015  # seconds that a statement has before we ask whether it waits
ENDINGS = ("commit", "rollback", "rollback_to")


class Style(Enum):
    """Whose transaction an operation runs in, and a caller's level where it is not the usual."""

    OURS = "ours"
    CALLER = "caller"
    REPEATABLE_READ = "repeatable read"
    SERIALIZABLE = "serializable"

    @property
    def old(self) -> bool:
        """Whether all its statements see the database as it was at the first one."""
        return self in (Style.REPEATABLE_READ, Style.SERIALIZABLE)


class Left(Exception):
    """An operation is not brought to its end."""


class SteppedOperation:
    """A connection, and what is done on it. All of its steps run in one thread of its own."""

    def __init__(self, name: str, url: str) -> None:
        self.name = name
        self.raw = OwnConnection.connect(url, autocommit=True)
        self.raw.pooled, self.raw.settings = True, dict(SESSION)  # set for each transaction
        self.raw.execute("SET deadlock_timeout = '5ms'")
        self.raw.execute("SET synchronous_commit = off")
        self.pid = self.raw.info.backend_pid
        self._cursor = PlainCursor(self.raw)
        self._thread = ThreadPoolExecutor(1)
        self._future: Future[None] | None = None
        self._held = Held()

    def close(self) -> None:
        self._thread.shutdown()
        self._cursor.close()
        self.raw.close()

    def take(self, op: Op[Any], sql: Queries, style: Style) -> None:
        """Stand before the first step of an operation."""
        self._op = op
        self._sql = sql
        self._style = style
        self.answer: Any = None
        self.error: Exception | None = None
        self.next: str | None = "begin"
        self.again = 0  # how often it met a deadlock
        self.waited: list[str] = []
        self._statement: Statement | None = None

    # ---- where it stands

    @property
    def over(self) -> bool:
        return self.next is None

    @property
    def waiting(self) -> bool:
        """A statement of it waits for a lock."""
        return self._future is not None

    @property
    def refused(self) -> bool:
        """Told that this cannot be done by who sees an old state of the database."""
        return self._is_refusal(self.error)

    def _is_refusal(self, error: Exception | None) -> bool:
        """Ours, or the server's: a caller is told it, and nobody tries again for him."""
        return self._style.old and isinstance(error, WrongIsolation | SerializationFailure)

    def footprint(self, before: Marks, after: Marks) -> Footprint:
        """What others could notice of the step that was made last, given the rows' marks."""
        return self._footprint._replace(
            touched=self._footprint.touched
            | {row for row, mark in after.items() if before.get(row) != mark}
        )

    # ---- making steps

    def go(self, is_blocked: Callable[[int], bool]) -> bool:
        """Make the next step; True when it is done, False when it waits for a lock."""
        label, text = str(self.next), self._statement and self._statement.query.text
        self._wrote = True
        self._future = self._thread.submit(self._step)
        done = self.settle(is_blocked)
        if not done:
            self.waited.append(label)
        if label in ENDINGS:
            self._footprint = self._held.end()
        elif label == "begin" and self._style.old:
            self._footprint = Footprint(seen=frozenset(TABLES))  # all that it will ever see
        else:
            self._footprint = self._held.step(text or "", waits=not done, writes=self._wrote)
        return done

    def settle(self, is_blocked: Callable[[int], bool]) -> bool:
        """See how a step stands that was begun: done, or waiting for a lock."""
        assert self._future is not None
        turns = int(PATIENCE / GLANCE)
        for _ in range(turns):
            done, _ = wait_for([self._future], GLANCE)
            if done:
                self._future.result()
                self._future = None
                return True
            if is_blocked(self.pid):
                return False
        raise AssertionError(f"{self.name} neither ends nor waits at {self.next}")

    def leave(self) -> None:
        """Give up in the middle; a statement that waits must be let go by then."""
        if self._future is not None:
            self._future.result(PATIENCE)
            self._future = None
        self._thread.submit(self._give_up).result(PATIENCE)

    def _give_up(self) -> None:
        if self.next not in (None, "begin"):
            self._transaction.undo()
        if self._statement is not None:  # the operation may want to clear up first
            try:
                self._steps.throw(Left())
                while True:
                    self._steps.send([])
            except (Left, TowlineError, psycopg.Error):  # or what it was clearing up after
                pass
        self.next = self._statement = None

    def _step(self) -> None:
        match self.next:
            case "begin":
                self._begin()
            case "commit":
                self._transaction.commit(self._op.name)
                self._end()
            case "rollback":
                self._transaction.undo()
                self._end()
            case _:
                self._execute()

    def _begin(self) -> None:
        self._held = Held()
        self._transaction = Transaction(self._sql, self.raw, self._cursor)
        patience = str(round(PATIENCE * 1000))
        if self._style.old:
            self._begin_at(self._style.value, patience)
        else:
            self._transaction.begin(self._op, patience, losable=True)
        op = self._op
        if self._style is Style.OURS:
            self._steps = iter(op)
        else:
            self._steps = PsycopgConnection(self.raw).framed(op)
        self._advance(lambda: next(self._steps))

    def _begin_at(self, level: str, lock_timeout: str) -> None:
        """Begin as a caller who looks at something, and so has his snapshot, before our part."""
        self._cursor.execute(
            f"BEGIN ISOLATION LEVEL {level}; {SETTINGS}; "
            f"SET LOCAL lock_timeout = {lock_timeout}; SELECT 1".encode()
        )
        while self._cursor.nextset():
            pass

    def _execute(self) -> None:
        assert self._statement is not None
        try:
            rows = (
                self._transaction.execute(self._statement)
                if self._style is Style.OURS
                else execute(self._cursor, self._statement, None)
            )
        except psycopg.Error as error:
            failure = error
            self.again += isinstance(error, AGAIN) and not self._is_refusal(error)
            self._advance(lambda: self._steps.throw(failure))
        else:
            self._wrote = not self._statement.counted or any(number for (number,) in rows)
            self._advance(lambda: self._steps.send(rows))

    def _advance(self, step: Callable[[], Statement | Mark]) -> None:
        """Let the operation say what comes next; what follows its commit is of no interest."""
        self._statement = None
        try:
            found = step()
            while isinstance(found, Mark):
                found = self._steps.send([])
            self._statement = found
        except StopIteration as stop:
            self.answer, self.next = stop.value, "commit"
        except Exception as error:
            # A caller who is refused may go on and commit; ours is undone.
            told = isinstance(error, TowlineError) or self._is_refusal(error)
            kept = self._style is not Style.OURS and told
            self.error, self.next = error, "commit" if kept else "rollback"
        else:
            self.next = self._statement.query.name

    def _end(self) -> None:
        self.next = None
        if isinstance(self.error, AGAIN) and not self.refused:
            self.error, self.next = None, "begin"
