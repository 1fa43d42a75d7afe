"""One writer per process: one connection, passed from thread to thread, with group commit.

A thread that finds the writer free uses it at once. Threads that find it busy leave their operation
and wait; whoever gets the writer next takes all that was left, runs each in a savepoint of one
transaction, and commits once. Waiting has a deadline and names the holder. Between processes the
turn is passed by `lock`.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from ..connections.sqlite3 import execute
from ..errors import TowlineError, WriterBusy
from ..operation import Op, drive
from ..sql import Row, Statement
from .checkpoint import Checkpoint
from .fault import translate
from .file import File
from .fork import check_owner
from .holder import WriterBusy as Waited
from .holder import describe
from .lock import WriterLock

T = TypeVar("T")

GROUP = 64  # operations one transaction takes along
FULL, NORMAL = 2, 1


class Ticket:
    """An operation somebody waits for, and its answer."""

    __slots__ = ("done", "error", "leads", "op", "patience", "result", "taken")

    def __init__(self, op: Op[Any], patience: float) -> None:
        self.op = op
        self.patience = patience
        self.done = threading.Event()
        self.taken = False  # a leader runs it; giving up is no longer possible
        self.leads = False  # woken up to take the writer
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    """Runs writing operations, each in a transaction of ours."""

    def __init__(
        self,
        file: File,
        lock: WriterLock,
        connect: Callable[[], sqlite3.Connection],
        *,
        durable: bool,
        lock_timeout: float,
    ) -> None:
        self._file = file
        self._lock = lock
        self._connect = connect
        self._durable = durable
        self._lock_timeout = lock_timeout
        self._checkpoint = Checkpoint(file)
        self._pid = os.getpid()
        self._mutex = threading.Lock()
        self._busy = False
        self._waiting: deque[Ticket] = deque()
        self._connection: sqlite3.Connection | None = None
        self._second: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._level = FULL
        self._stored = False  # the group at hand is committed: never run it again

    def run(self, op: Op[T], patience: float | None = None) -> T:
        """Run one operation to its commit; raise WriterBusy when the writer is not free in time."""
        check_owner(self._pid)
        patience = min(self._lock_timeout, patience or self._lock_timeout)
        deadline = time.monotonic() + patience
        ticket = Ticket(op, patience)
        try:
            with self._mutex:
                if self._busy:
                    self._waiting.append(ticket)
                else:
                    self._busy = ticket.leads = True
            if not ticket.leads:
                self._wait(ticket, deadline)
            if ticket.leads:
                self._lead(ticket, deadline)
        finally:
            self._leave(ticket)
        return cast(T, self._answer(ticket))

    def close(self) -> None:
        """Close the connections. The last one of a process to go checkpoints, under the lock."""
        if os.getpid() != self._pid:
            return
        with self._mutex:
            self._busy = True
        self._close()
        self._lock.close()

    def let_go(self) -> bool:
        """Close the connections if nobody writes; they are opened again when used."""
        with self._mutex:
            if self._busy:
                return False
            self._close()
            return True

    def _close(self) -> None:
        for connection in (self._second, self._connection):
            if connection is not None:
                connection.close()
        self._connection = self._second = None

    # ---- waiting

    def _wait(self, ticket: Ticket, deadline: float) -> None:
        """Until the ticket is answered, or it is ours to lead; give up at the deadline."""
        ticket.done.wait(max(deadline - time.monotonic(), 0))
        if ticket.done.is_set():
            return
        with self._mutex:
            if not ticket.taken and not ticket.leads:
                self._waiting.remove(ticket)
                ticket.error = WriterBusy(
                    f"{ticket.op.name} waited {ticket.patience:g} s for the writer of "
                    f"{self._file.path}: {describe(self._lock.holder())}"
                )
                return
        ticket.done.wait()

    def _leave(self, ticket: Ticket) -> None:
        """Wake the longest waiting to take the writer next, or leave it free.

        Whoever was interrupted while waiting (Ctrl-C) takes its operation out of the line.
        """
        with self._mutex:
            if not ticket.leads:
                if not ticket.done.is_set() and ticket in self._waiting:
                    self._waiting.remove(ticket)
            elif self._waiting:
                following = self._waiting.popleft()
                following.leads = True
                following.done.set()
            else:
                self._busy = False

    def _answer(self, ticket: Ticket) -> Any:
        if ticket.error is not None:
            raise ticket.error
        return ticket.result

    # ---- writing

    def _lead(self, own: Ticket, deadline: float) -> None:
        """Take the turn between processes and run our operation with those that wait."""
        try:
            self._file.check_same()  # before opening, which would make a new file of a deleted one
            connection = self._open()
            full = self._durable and own.op.durable
            self._set_level(connection, FULL if full else NORMAL)
            self._lock.acquire(connection, deadline, own.op.name)
        except Waited as busy:
            own.error = WriterBusy(
                f"{own.op.name} waited {own.patience:g} s for the writer of "
                f"{self._file.path}: {busy}"
            )
            return
        except sqlite3.Error as error:
            own.error = translate(error, self._file.path)
            own.error.__cause__ = error
            return
        group = [own]
        self._stored = False
        try:
            self._gather(group)
            try:
                self._transact(connection, group)
                if self._checkpoint.due():
                    self._shorten_log(connection)
            finally:
                self._lock.release()
        except BaseException:
            if not self._stored:
                self._give_back(group, own)
            raise
        finally:
            for ticket in group:
                ticket.done.set()

    def _gather(self, group: list[Ticket]) -> None:
        """Add what waits, as far as one transaction should go.

        At NORMAL a commit costs nothing worth sharing, and one at NORMAL cannot carry an
        operation that must be durable.
        """
        if self._level == FULL:
            with self._mutex:
                while self._waiting and len(group) < GROUP:
                    ticket = self._waiting.popleft()
                    ticket.taken = True
                    group.append(ticket)

    def _transact(self, connection: sqlite3.Connection, group: list[Ticket]) -> None:
        """Run a group in the open transaction and commit; on failure nothing of it is stored."""
        cursor = self._cursor
        assert cursor is not None

        def run(statement: Statement) -> list[Row]:
            return execute(cursor, statement)

        try:
            if len(group) == 1:
                group[0].result = drive(group[0].op, run)
            else:
                for ticket in group:
                    self._run_saved(cursor, ticket, run)
            cursor.execute("COMMIT")
            self._stored = True
        except BaseException as error:
            interrupted = not isinstance(error, Exception)
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            elif interrupted:
                self._stored = True  # it came right after the commit
            if interrupted:
                raise
            self._fail(group, error)

    def _run_saved(
        self, cursor: sqlite3.Cursor, ticket: Ticket, run: Callable[[Statement], list[Row]]
    ) -> None:
        cursor.execute("SAVEPOINT one")
        try:
            ticket.result = drive(ticket.op, run)
        except Exception as error:
            if not cursor.connection.in_transaction:
                raise  # a full disk takes the whole transaction with it
            cursor.execute("ROLLBACK TO one")
            self._fail([ticket], error)
        cursor.execute("RELEASE one")

    def _fail(self, tickets: list[Ticket], error: BaseException) -> None:
        cause = error
        if isinstance(error, sqlite3.Error):
            cause = translate(error, self._file.path)
            cause.__cause__ = error
        for ticket in tickets:
            if ticket.error is None:
                ticket.error = cause

    def _give_back(self, group: list[Ticket], own: Ticket) -> None:
        """Interrupted (Ctrl-C): others' operations go back to the head of the line."""
        with self._mutex:
            for ticket in reversed(group):
                if ticket is not own:
                    ticket.taken = False
                    ticket.result = ticket.error = None
                    self._waiting.appendleft(ticket)
            group[:] = [own]

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._connect()
            self._cursor = self._connection.cursor()
            self._level = -1
        return self._connection

    def _set_level(self, connection: sqlite3.Connection, level: int) -> None:
        # Only possible between transactions; 3 µs, so not repeated.
        if level != self._level:
            connection.execute(f"PRAGMA synchronous = {level}")
            self._level = level

    def _shorten_log(self, connection: sqlite3.Connection) -> None:
        try:
            if self._second is None:
                self._second = self._connect()
            self._checkpoint.run(connection, self._second)
        except (sqlite3.Error, TowlineError):
            pass  # a foreign writer came first, or the disk is full: a later commit tries again
