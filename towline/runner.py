"""The runner: the only way to run an operation, blocking or awaiting, on our connection or the
caller's.

On first use it sees that the tables are there. After a commit it does what the operation's marks
ask for: workers and callers of `result()` are woken in this process, through the database, and
through Redis or NATS. On a caller's open transaction that is left to the database, whose NOTIFY
goes out with the caller's commit. Events with a subscriber are published then, too.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar, cast

from .errors import SchemaMismatch, SchemaMissing, TowlineError
from .events import Events
from .events.report import Report
from .executor import Executor, in_thread
from .operation import Mark, Op, Steps, adrive, drive
from .wakes.local import Local
from .wakes.waiting import Waiting

if TYPE_CHECKING:
    from collections.abc import Callable

    from .connections import Connection
    from .engine import Engine
    from .store import Store
    from .wakes import Wake

T = TypeVar("T")
# Operations that a caller runs one after the other, each by what the one before answered.
Loop = Generator[Op[Any], Any, T]


class Runner:
    """Runs the operations of one app, in one process.

    `create`: missing tables are made on first use. `open_wake` opens the extra wake (Redis, NATS)
    of a channel, where the app has one.
    """

    on: object = None  # where operations run that name no connection; None: on ours

    def __init__(
        self,
        engine: Engine,
        *,
        create: bool = True,
        open_wake: Callable[[str], Wake] | None = None,
    ) -> None:
        self._create = create
        self._open_wake = open_wake
        self._pid = os.getpid()
        self._preparing = Lock()
        self._executor = Executor("call")
        self.local = Local()
        self.events = Events()
        self._use(engine)

    def _use(self, engine: Engine) -> None:
        self.engine = engine
        self.waiting = Waiting(self._end_wake)
        self._ready = False  # the tables are there, seen on a connection of ours
        self._seen = False  # the same on a caller's connection, which says nothing of ours
        self._wake = self.new_wake()
        # Only where the database itself cannot wake callers of `result()`.
        wakes = self._wake is None or engine.end_wake() is not None
        self._ended_wake = None if wakes else self.new_wake(ended=True)

    @property
    def store(self) -> Store:
        """The operations."""
        return self.engine.store

    # ---- running

    def run(self, op: Op[T], on: object = None, *, patience: float | None = None) -> T:
        """Run an operation: in a transaction of its own, or in the caller's.

        It waits for locks as long as lock_timeout, or as `patience` says if that is shorter.
        """
        report = Report(self.events, op, on) if self.events.wants_operations else None
        try:
            if on is None:
                if not self._ready:
                    self.prepare()
                answer = self.engine.run(op, patience)
                commits = False
            else:
                connection = self.engine.recognise(on)
                if not self._seen:
                    op = self._checked(op)
                try:
                    answer = connection.run(op)
                except (SchemaMissing, SchemaMismatch) as problem:
                    self._prepare_for(connection, problem)
                    answer = connection.run(op)
                commits = connection.in_transaction  # the caller does; the engine wakes whom it can
        except BaseException as error:
            if report is not None:
                report.ended(None, error)
            raise
        if op.follows is not None and not commits:
            self._follow(op.follows)
        if report is not None:
            report.ended(answer)
        return answer

    async def arun(self, op: Op[T], on: object = None) -> T:
        """The same without blocking the event loop: on our connection it is one hop to a thread
        for the whole operation."""
        report = Report(self.events, op, on) if self.events.wants_operations else None
        try:
            if on is None:
                if not self._ready:
                    await in_thread(self.prepare)
                answer = await self._executor.run(self.engine.run, op)
                commits = False
            else:
                connection = self.engine.recognise(on)
                if not self._seen:
                    op = self._checked(op)
                try:
                    answer = await connection.arun(op)
                except (SchemaMissing, SchemaMismatch) as problem:
                    await in_thread(self._prepare_for, connection, problem)
                    answer = await connection.arun(op)
                commits = connection.in_transaction
        except BaseException as error:
            if report is not None:
                report.ended(None, error)
            raise
        if op.follows is not None and not commits:
            if self._open_wake is None and not op.follows.ended:
                self._follow(op.follows)
            else:  # telling a server, which may take a moment
                await in_thread(self._follow, op.follows)
        if report is not None:
            report.ended(answer)
        return answer

    def run_each(self, loop: Loop[T], on: object = None) -> T:
        """Run operations one after the other, each as `run` does: workers get in between."""
        return drive(cast(Op[T], loop), lambda op: self.run(cast(Op[Any], op), on))

    async def arun_each(self, loop: Loop[T], on: object = None) -> T:
        return await adrive(cast(Op[T], loop), lambda op: self.arun(cast(Op[Any], op), on))

    def _follow(self, mark: Mark) -> None:
        """Wake workers and waiters after a commit, by every road there is."""
        if mark.queues:
            if self.local.rings:
                self.local.tell(mark.queues)
            if self._wake is not None:
                self._wake.tell(mark.queues)
        if mark.ended:
            if self.waiting.rings:
                self.waiting.ring()
            self.engine.tell_ended()
            if self._ended_wake is not None:
                self._ended_wake.tell(())

    # ---- wakes

    def wakes(self) -> list[Wake]:
        """What wakes a worker of this app when there may be work."""
        extra = self.new_wake()
        return [*(self.engine.wakes() or [Local(self.local)]), *([] if extra is None else [extra])]

    def new_wake(self, *, ended: bool = False) -> Wake | None:
        """The extra wake of this app, if it has one; `ended`: the one that says that chains ended.
        Its channel is named after the database."""
        if self._open_wake is None:
            return None
        return self._open_wake(self.engine.wake_channel + (".ended" if ended else ""))

    def _end_wake(self) -> Wake | None:
        """What wakes callers of `result()`: the database itself, or else the extra wake."""
        return self.engine.end_wake() or self.new_wake(ended=True)

    # ---- the tables

    def prepare(self, *, create: bool | None = None) -> None:
        """On first use: the file or server, and its tables; `create` as the app says.

        With create=False nothing is made, and a database that is not there is refused.
        """
        if self._ready:
            return
        if os.getpid() != self._pid:  # the lock may have been held when this process was forked
            self._pid, self._preparing = os.getpid(), Lock()
        with self._preparing:
            if create is False and not self.engine.exists():
                raise SchemaMissing(
                    f"there is no database at {self.engine.place}: start a worker or run "
                    "`towline migrate` to create it"
                )
            self.engine.prepare()
            try:
                self.engine.check_schema()
            except (SchemaMissing, SchemaMismatch):
                if not (self._create if create is None else create):
                    raise
                self.engine.migrate()
            self._ready = True

    def _checked(self, op: Op[T]) -> Op[T]:
        """The operation, after a look at the tables that a caller's connection has."""

        def steps() -> Steps[T]:
            yield from self.engine.migrations.check(self.store.sql)
            self._seen = True
            return (yield from op)

        return Op(op.name, steps, reads=op.reads)

    def _prepare_for(self, connection: Connection, problem: TowlineError) -> None:
        """First use is on a caller's connection: never wait for a lock that the caller holds."""
        if self._seen:  # on another one
            raise problem
        if connection.in_transaction:
            raise type(problem)(
                f"{problem}, before your transaction begins: inside it cannot be done"
            ) from None
        self.prepare()

    def prefixes(self) -> list[tuple[str, str]]:
        """Prefix and schema of each set of tables like ours; ours need not be there."""
        find = self.engine.migrations.prefixes
        return self.engine.run(Op("prefixes", find, self.store.sql, reads=True))

    def migrate(self) -> list[str]:
        """Create the tables or bring them up to date; return the migrations that were applied."""
        with self._preparing:
            self.engine.prepare()
            applied = self.engine.migrate()
            self._ready = True
        return applied

    # ---- life

    def use(self, engine: Engine) -> None:
        """Go on with another database."""
        self.close()
        self._use(engine)

    def close(self) -> None:
        """Close the connections of this process; running something again opens new ones."""
        self.waiting.close()
        for wake in (self._wake, self._ended_wake):
            if wake is not None:
                wake.stop()
        self._executor.close()
        self.engine.close()
        self.events.close()
        self._ready = self._seen = False
