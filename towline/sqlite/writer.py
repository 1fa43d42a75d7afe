"""One writer per process: one connection, passed from thread to thread, with group commit.

A thread that finds the writer free uses it at once. Threads that find it busy leave their operation
in a line and wait; the next to get the writer takes all that was left, runs each in a savepoint
of one transaction, and commits once. Waiting has a deadline and names the holder. Between processes
the turn is passed by `lock`.

The lock of the writer is its gate; who has it leads. Who ends, gives up or is interrupted wakes the
first in line, who tries the gate. An exception may arrive anywhere (Ctrl-C, a handler of SIGALRM):
every end of a call settles what is really so, twice if the first time was interrupted.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from ..errors import CommitUnknown, TowlineError, WriterBusy
from ..operation import Loss, Onlooker, Op, Row, Statement, drive, execute
from .errors import is_full, translate
from .file import File
from .instant import is_running, move, move_back
from .kept import Kept
from .lock import Turn, WriterLock
from .log import LOOK_COMMITS, LOOK_ROWS, Log

T = TypeVar("T")

GROUP = 64  # operations one transaction takes along
FULL, NORMAL = 2, 1
# At FULL, unless the application said durable=False. A crash of the machine ends every worker of
# its files, so what hangs on them may be lost with it.
SYNCED = (Loss.NEVER, Loss.IF_ALLOWED)
# What takes as long as all else of a turn together, without the interpreter's lock.
LONG = {"find_pending", "claim_jobs", "settle_attempts", "settle_live", "settle_chains"}
TRIES = 10  # of an operation that raises while others run it; then that is believed
LOOK = 1.0  # seconds between looks of a thread whose operation a leader has taken


class Ticket:
    """An operation that a thread waits for, and its answer."""

    __slots__ = (
        "answered", "error", "failed", "left", "op", "others", "patience", "repeat", "result",
        "signal", "stored", "tries",
    )  # fmt: skip

    def __init__(self, op: Op[Any], patience: float, tries: int) -> None:
        self.op = op
        self.patience = patience
        self.tries = tries  # how often others have run it, and it raised
        self.signal: threading.Lock | None = None  # released to wake who waits in the line
        self.left = False  # its thread waits no more
        self.answered = False
        self.repeat = False  # answered by: run it again
        self.result: Any = None
        self.error: BaseException | None = None
        # While it leads:
        self.others: list[Ticket] = []  # taken along
        self.stored: list[object] = []  # not empty once the group is committed
        self.failed = False  # each of the group has its error

    def ring(self) -> None:
        """Let who waits for it look again."""
        if self.signal is not None:
            try:
                self.signal.release()
            except RuntimeError:  # it has been woken already
                pass


class Writer(Kept):
    """Runs writing operations, each in a transaction of ours."""

    def __init__(
        self,
        file: File,
        lock: WriterLock,
        open: Callable[[], sqlite3.Connection],
        connect: Callable[[], sqlite3.Connection],
        *,
        durable: bool,
        lock_timeout: float,
    ) -> None:
        self._file = file
        self._lock = lock
        self._turn = Turn(lock)
        self._open_first = open
        self._durable = durable
        self._lock_timeout = lock_timeout
        self._connect = connect
        self._waiting: deque[Ticket] = deque()
        self._leader: Ticket | None = None
        self._level = FULL
        self._place = os.fspath(file.path)
        super().__init__(lock.database)

    def run(self, op: Op[T], patience: float | None = None) -> T:
        """Run one operation to its commit; raise WriterBusy when the writer is not free in time."""
        patience = min(self._lock_timeout, patience or self._lock_timeout)
        ticket = self._run(op, patience, 0)
        while ticket.repeat:
            ticket = self._run(op, patience, ticket.tries + 1)
        if ticket.error is not None:
            raise ticket.error
        return cast(T, ticket.result)

    def _run(self, op: Op[Any], patience: float, tries: int) -> Ticket:
        if self.is_owned():
            self._come_again(op)
        deadline = time.monotonic() + patience
        ticket = Ticket(op, patience, tries)
        try:
            try:
                free = not self._waiting and not self.wanted
                if (free and self.lock.acquire(False)) or self._wait(ticket, deadline):
                    self._lead(ticket, deadline)
            finally:
                self._leave(ticket)
        except BaseException:
            self._leave(ticket)
            raise
        return ticket

    def _come_again(self, op: Op[Any]) -> None:
        """This thread has the gate: in a call further out, or two interrupts left it behind."""
        if is_running(Writer._run.__code__, 1):
            raise WriterBusy(
                f"{op.name} was called inside an operation that this thread is writing "
                "(a handler of a signal, __del__, an operation of your own): it would wait for "
                "itself. If you have an open transaction, pass on=connection, or commit it first"
            )
        self._leave(self._leader or Ticket(op, 0.0, 0))

    # ---- closing and forking

    def freed(self) -> None:
        self._wake()

    def forget(self) -> None:
        super().forget()
        self._turn = Turn(self._lock)
        self._waiting.clear()
        self._leader = None

    # ---- waiting

    def _wait(self, ticket: Ticket, deadline: float) -> bool:
        """Until the ticket is ours to lead (True), or it is answered, or the deadline has passed.

        What a leader has taken along cannot be given up: it may be stored.
        """
        signal = threading.Lock()
        signal.acquire()
        ticket.signal = signal
        self._waiting.append(ticket)
        taken = False
        while not ticket.answered:
            mine = not self.wanted and (taken or self._is_first(ticket))
            if mine and self.lock.acquire(False):
                if self._drop(ticket):
                    return True
                if not ticket.answered:  # its leader was interrupted twice
                    ticket.error = CommitUnknown(
                        f"{ticket.op.name} was taken along by another thread, which was "
                        "interrupted: it may have been stored or not"
                    )
                return False
            left = deadline - time.monotonic()
            if left <= 0:
                if self._drop(ticket):
                    ticket.error = self._lock.busy(ticket.op.name, ticket.patience)
                    return False
                taken = True
            signal.acquire(True, LOOK if taken else left)
        return False

    def _is_first(self, ticket: Ticket) -> bool:
        try:
            return self._waiting[0] is ticket
        except IndexError:
            return False

    def _drop(self, ticket: Ticket) -> bool:
        """Take a ticket out of the line; False if it is not in it."""
        try:
            self._waiting.remove(ticket)
        except ValueError:
            return False
        return True

    def _wake(self) -> None:
        """Let the first in line try the gate."""
        while True:
            try:
                first = self._waiting[0]
            except IndexError:
                return
            if not first.left:
                first.ring()
                return
            self._drop(first)

    def _leave(self, ticket: Ticket) -> None:
        """End a call, wherever it was interrupted; a second time does nothing."""
        if self.is_owned():
            self._settle(ticket)
            self.lock.release()
            if self._closing:
                self._shut_within(0.0)
        elif ticket.signal is not None:
            ticket.left = True
            self._drop(ticket)
        if self._waiting and not ticket.answered:
            self._wake()

    def _settle(self, own: Ticket) -> None:
        """As the leader: what is not committed is rolled back, the others learn of it, the turn
        goes on."""
        connection = self.connection
        if connection is not None and connection.in_transaction:
            self.roll_back(connection)
        if own.others:
            if own.stored or own.failed:
                self._answer(own)
            else:
                self._give_back(own)
        self._turn.release()
        self._leader = None

    def _answer(self, own: Ticket) -> None:
        for ticket in own.others:
            ticket.answered = True
            ticket.ring()

    def _give_back(self, own: Ticket) -> None:
        """Interrupted: others' operations go back to the head of the line."""
        returned = list(own.others)
        for ticket in returned:
            ticket.result = ticket.error = None
            ticket.repeat = False
        move_back(own.others, self._waiting)
        for ticket in returned:
            ticket.ring()

    # ---- writing

    def _lead(self, own: Ticket, deadline: float) -> None:
        """Take the turn between processes and run our operation with those that wait."""
        self._leader = own
        try:
            if not self.is_same_file():  # before opening, which would make a new one of a deleted
                self._file.check_same()
            connection = self.connection or self._open()
            full = self._durable and own.op.loss in SYNCED
            level = FULL if full else NORMAL
            if level != self._level:  # only possible between transactions, and 3 µs
                connection.execute(f"PRAGMA synchronous = {level}")
                self._level = level
            self._turn.onlooker = own.op.onlooker
            if not self._turn.acquire(connection, deadline, own.op.name):
                raise self._lock.busy(own.op.name, own.patience)
        except sqlite3.Error as error:
            raise translate(error, self._file.path) from error
        if full and self._waiting:
            # At NORMAL a commit costs nothing worth sharing, and one at NORMAL cannot carry an
            # operation that must be durable.
            move(self._waiting, own.others, GROUP - 1)
        problem = self._transact(connection, own)
        if problem is not None and is_full(problem) and self._log.make_room():
            problem = self._transact(connection, own)
        if problem is not None:
            refusal = self._translate(problem)
            for ticket in (own, *own.others):
                ticket.error, ticket.repeat = refusal, False
            own.failed = True
            return
        if own.others:
            self._answer(own)
        log = self._log
        log.commits += 1
        if log.commits >= LOOK_COMMITS or connection.total_changes - log.rows >= LOOK_ROWS:
            log.shorten()

    def _transact(self, connection: sqlite3.Connection, own: Ticket) -> sqlite3.Error | None:
        """Run a group in the open transaction and commit; what the database refused, if it did."""
        cursor = self._cursor
        run = partial(execute, cursor)
        if own.op.onlooker is not None:
            run = partial(_execute_telling, own.op.onlooker, run)
        try:
            if not own.others:
                own.result = drive(own.op, run)
            else:
                for ticket in (own, *own.others):
                    self._run_saved(cursor, own, ticket, run)
            # Done and noted in one call: `instant`.
            own.stored.extend(map(cursor.execute, ("COMMIT",)))
        except sqlite3.Error as error:
            if connection.in_transaction:
                cursor.execute("ROLLBACK")
            return error
        return None

    def _run_saved(
        self,
        cursor: sqlite3.Cursor,
        own: Ticket,
        ticket: Ticket,
        run: Callable[[Statement], list[Row]],
    ) -> None:
        if ticket.left:
            return
        ticket.error, ticket.repeat = None, False
        cursor.execute("SAVEPOINT one")
        try:
            ticket.result = drive(ticket.op, run)
        except Exception as error:
            if not cursor.connection.in_transaction:
                raise  # a full disk takes the whole transaction with it
            cursor.execute("ROLLBACK TO one")
            known = isinstance(error, (TowlineError, sqlite3.Error))
            if ticket is own or known or ticket.tries >= TRIES:
                ticket.error = self._translate(error)
            else:
                # Perhaps not its own but meant for this thread, by the handler of a signal: it is
                # run again, and what it raises in its own thread is its own.
                ticket.repeat = True
        cursor.execute("RELEASE one")

    def _translate(self, error: Exception) -> Exception:
        if not isinstance(error, sqlite3.Error):
            return error
        cause = translate(error, self._file.path)
        cause.__cause__ = error
        return cause

    def is_same_file(self) -> bool:
        try:
            status = os.stat(self._place)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self._file.identity

    def _open(self) -> sqlite3.Connection:
        self._level = -1
        connection = self._open_first()
        self._cursor = connection.cursor()
        self._log = Log(self._file, connection, self._connect)
        self.connection = connection
        return connection


def _execute_telling(
    onlooker: Onlooker, run: Callable[[Statement], list[Row]], statement: Statement
) -> list[Row]:
    if statement.query.name not in LONG:
        return run(statement)
    onlooker.begins(statement.query.name, idle=False)
    try:
        return run(statement)
    finally:
        onlooker.ended()
