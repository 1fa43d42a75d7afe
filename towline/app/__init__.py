"""The application: its settings and tasks, enqueueing, and where operations are run.

Reading and control are in `face`. A method whose name begins with `a` awaits; apart from that the
two are the same, and a test compares them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from pathlib import PurePath
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from ..connections import Connection
from ..engine import FILE, open_engine, settled
from ..errors import InvalidSetting, InvalidTask, SchemaMismatch, SchemaMissing
from ..model import Enqueued, NewJob
from ..naming import check_known
from ..operation import Mark, Op
from ..secret import masked
from ..sql import check_prefix
from ..store.retention import Ages
from ..task import Call, Task, Tasks, check_name
from ..task.batch import new_jobs
from ..times import Seconds, micros
from ..wakes.local import Near
from .handles import Job
from .management import Face
from .waiting import Waiting

if TYPE_CHECKING:
    from typing import Unpack

    from ..store import Store
    from ..wakes import Wake
    from ..worker import Worker, WorkerSettings
    from ..worker.attempt import Middleware

log = logging.getLogger("towline")

T = TypeVar("T")

DEFAULT_URL = "sqlite:///towline.db"
# What names a place that only PostgreSQL has, and what it is when nothing is said. `notify` and
# `connections` bound what is done there, and are kept by doing less.
ON_A_SERVER = {"schema": "public", "pooler": False, "listen": None}


class Towline(Face):
    """Durable background work in the application's own database.

    Opens lazily and creates its tables on first use, unless migrate=False. `durable=False` lets
    a power cut take the last commits (never a kill), for speed. Retention: how long ended chains
    are kept, None for ever. On PostgreSQL: `schema` holds the tables, `notify` tells workers of new
    jobs at once, `connections` is the most this process opens for operations of its own, and
    `pooler` says that the URL leads to a pooler in transaction mode: nothing is prepared there, and
    `listen` is an address past it, for the connection that hears of new jobs. `wake` is the URL of
    a Redis or NATS server that carries such hints as well.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        prefix: str = "towline_",
        schema: str = "public",
        lock_timeout: Seconds = 5.0,
        migrate: bool = True,
        durable: bool = True,
        notify: bool = True,
        connections: int = 10,
        pooler: bool = False,
        listen: str | None = None,
        wake: str | None = None,
        payload_limit: int = 1024 * 1024,
        keep_completed: Seconds | None = timedelta(days=7),
        keep_failed: Seconds | None = timedelta(days=30),
        keep_cancelled: Seconds | None = timedelta(days=30),
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        self.url = settled(_text(url or os.environ.get("TOWLINE_URL") or DEFAULT_URL))
        self.payload_limit = payload_limit
        self._queues: set[str] = set()  # of its tasks, and those that were mentioned
        self._migrate = migrate
        self._ready = False
        self._seen = False  # on a caller's connection, which says nothing of ours
        self._preparing = Lock()
        self._pid = os.getpid()
        self.middleware: list[Middleware] = []
        self.ages = Ages(*(
            None if keep is None else micros(keep, "a retention time")
            for keep in (keep_completed, keep_failed, keep_cancelled)
        ))  # fmt: skip
        if any(age is not None and age < 0 for age in (self.ages.of(code) for code in (1, 2, 3))):
            raise InvalidSetting("a retention time cannot be negative; None keeps for ever")
        patience = micros(lock_timeout, "lock_timeout") / 1e6
        if patience < 0:
            raise InvalidSetting("lock_timeout cannot be negative")
        if payload_limit < 1:
            raise InvalidSetting("payload_limit is a number of bytes from 1")
        if connections < 1:
            raise InvalidSetting("connections is a number from 1")
        if listen is not None and not isinstance(listen, str):
            raise InvalidSetting("listen= is an address, postgresql://…; notify=False turns it off")
        prefix, schema = check_prefix(prefix), check_prefix(schema, "schema")
        given = {"schema": schema, "pooler": pooler, "listen": listen}
        extra = [name for name, value in given.items() if value != ON_A_SERVER[name]]
        if extra and self.url.startswith(FILE):
            raise InvalidSetting(
                f"{extra[0]}= belongs to PostgreSQL and means nothing for a SQLite file: "
                "leave it out"
            )
        self._open = partial(
            open_engine, prefix=prefix, schema=schema, lock_timeout=patience, durable=durable,
            notify=notify, connections=connections, pooler=pooler, listen=listen, clock=clock,
        )  # fmt: skip
        self.engine = self._open(self.url)
        self.waiting = Waiting(self._end_wake)
        self.near = Near()
        self._wake = wake
        self._tables = f"{schema}.{prefix}"
        self._open_tellers()

    @property
    def store(self) -> Store:
        """The operations, for composing several into one transaction."""
        return self.engine.store

    def include(self, tasks: Tasks, prefix: str = "") -> None:
        """Take in a set of tasks, each name with the prefix in front."""
        for name, task in tasks.registry.items():
            check_name(prefix + name, "task name")
            self._refuse_twice(prefix + name)
            task.check_home(self)
        for name, task in tasks.registry.items():
            self._register(task, prefix + name)

    def _register(self, task: Task[..., Any], name: str) -> None:
        super()._register(task, name)
        task.join(self, name)
        self._queues.add(task.queue)

    # ---- running operations

    def run(self, op: Op[T], on: object = None) -> T:
        """Run an operation: in a transaction of its own, or in the caller's."""
        op.accept()
        if on is None:
            self.prepare()
            answer = self.engine.run(op)
        else:
            connection = self.engine.recognise(on)
            if not self._seen:
                self._prepare_for(connection, connection.migrations())
            answer = connection.run(op)
            if connection.in_transaction:
                return answer  # the caller commits; the engine tells what it can
        if op.follows is not None:
            self.follow(op.follows)
        return answer

    async def arun(self, op: Op[T], on: object = None) -> T:
        op.accept()
        if on is None:
            if not self._ready:
                await asyncio.to_thread(self.prepare)
            answer = await self.engine.arun(op)
        else:
            connection = self.engine.recognise(on)
            if not self._seen:
                applied = await connection.amigrations()
                await asyncio.to_thread(self._prepare_for, connection, applied)
            answer = await connection.arun(op)
            if connection.in_transaction:
                return answer
        if op.follows is not None:
            if self._wake is None and not op.follows.ended:
                self.follow(op.follows)
            else:  # telling a server, which may take a moment
                await asyncio.to_thread(self.follow, op.follows)
        return answer

    def follow(self, mark: Mark, tell_ended: Callable[[], None] | None = None) -> None:
        """Wake workers and waiters after a commit: in this process, and through whatever carries
        hints to the others. `tell_ended` is a worker's own way to say that chains ended."""
        if mark.queues:
            if self.near:
                self.near.tell(mark.queues)
            if self._teller is not None:
                self._teller.tell(mark.queues)
        if mark.ended:
            self.waiting.ring()
            (tell_ended or self.engine.tell_ended)()
            if self._end_teller is not None:
                self._end_teller.tell(())

    def prepare(self) -> None:
        """On first use: the file, and its tables."""
        if self._ready:
            return
        if os.getpid() != self._pid:  # the lock may have been held when this process was forked
            self._pid, self._preparing = os.getpid(), Lock()
        with self._preparing:
            self.engine.prepare()
            try:
                self.engine.check_schema()
            except (SchemaMissing, SchemaMismatch):
                if not self._migrate:
                    raise
                self.engine.migrate()
            self._ready = True

    def _prepare_for(self, connection: Connection, applied: set[str] | None) -> None:
        """First use is on a caller's connection: never wait for a lock that the caller holds."""
        try:
            self.engine.migrations.judge(applied)
        except (SchemaMissing, SchemaMismatch) as problem:
            if connection.in_transaction:
                raise type(problem)(
                    f"{problem}, before your transaction begins: inside it cannot be done"
                ) from None
            self.prepare()
        self._seen = True

    # ---- enqueue

    def enqueue_many(self, calls: Iterable[Call[Any]], *, on: object = None) -> list[Job[Any]]:
        """Store many calls in one transaction; jobs come back in the order given.

        A call in the `after=` of another is stored with it: a whole graph at once.
        """
        calls = list(calls)
        jobs = self._new_jobs(calls, on)
        answers = self.run(self.store.enqueue(jobs), on)
        return self._handles(answers, calls)

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, on: object = None
    ) -> list[Job[Any]]:
        calls = list(calls)
        jobs = self._new_jobs(calls, on)
        answers = await self.arun(self.store.enqueue(jobs), on)
        return self._handles(answers, calls)

    def _new_jobs(self, calls: Sequence[Call[Any]], on: object) -> list[NewJob]:
        jobs = new_jobs(calls, on)
        for job in jobs:
            if job.task not in self.registry:
                raise InvalidTask(f"task {job.task} belongs to another app; enqueue it there")
            if job.queue not in self._queues:
                self._mention(job.queue)
        return jobs

    def _mention(self, queue: str) -> None:
        """Say once that a queue is no task's own: a worker serves those of its tasks."""
        self._queues.add(queue)
        log.warning(
            "no task of this app declares queue %r; a worker serves it only with queues=[…]", queue
        )

    def _handles(self, answers: Sequence[Enqueued], calls: Sequence[Call[Any]]) -> list[Job[Any]]:
        """Jobs for the calls; what only their `after=` names is stored behind them."""
        asked = islice(answers, len(calls))
        return [Job(self, record, created) for record, created in asked]

    # ---- workers

    def worker(self, **settings: Unpack[WorkerSettings]) -> Worker:
        """A worker for the tasks of this app: `app.worker(concurrency=8).run()`."""
        from ..worker import Worker, WorkerSettings

        check_known("worker()", settings, WorkerSettings.__annotations__)
        return Worker(self, **settings)

    def new_wake(self, *, ended: bool = False) -> Wake | None:
        """The extra wake of this app, if it has one, for somebody who listens or tells; `ended`:
        the one that says that chains ended."""
        if self._wake is None:
            return None
        from ..wakes.address import open_wake

        place = PurePath(urlsplit(self.url).path).name
        what = ".ended" if ended else ""
        return open_wake(self._wake, f"towline.{self._tables}{place}{what}")

    def _end_wake(self) -> Wake | None:
        """What tells those who wait: the database itself, or else the extra wake."""
        return self.engine.ends() or self.new_wake(ended=True)

    def _open_tellers(self) -> None:
        """Channels are named after the database."""
        self._teller = self.new_wake()
        self._end_teller = None
        if self._wake is not None and self.engine.ends() is None:
            self._end_teller = self.new_wake(ended=True)

    def add_middleware(self, middleware: Middleware) -> Middleware:
        """Wrap each attempt: a generator function that yields once, where the handler runs.

        It gets the context before, and at its yield the handler's value or its exception. Its own
        failure is an ordinary failure of the attempt.
        """
        self.middleware.append(middleware)
        return middleware

    # ---- schema and end

    def migrate(self) -> list[str]:
        """Create the tables or bring them up to date; return the migrations that were applied."""
        with self._preparing:
            self.engine.prepare()
            applied = self.engine.migrate()
            self._ready = True
        return applied

    async def amigrate(self) -> list[str]:
        return await asyncio.to_thread(self.migrate)

    def ddl(self, after: str | None = None) -> str:
        """The SQL that `migrate` would run, for Alembic, Django or a database administrator.

        `after` names the newest migration the database has already.
        """
        return self.engine.migrations.text(self.store.sql, after)

    def use(
        self, url: str, *, durable: bool | None = None, clock: Callable[[], int] | None = None
    ) -> None:
        """Point the app at another database; its tasks and its other settings stay.

        For tests, and for a program that learns its URL late. Not while a worker of it runs.
        """
        given: dict[str, Any] = {"durable": durable, "clock": clock}
        changed = {name: value for name, value in given.items() if value is not None}
        url = settled(_text(url))
        engine = self._open(url, **changed)
        self.close()
        self.url, self.engine, self.waiting = url, engine, Waiting(self._end_wake)
        self._open_tellers()

    def close(self) -> None:
        """Close the connections of this process; using the app again opens new ones."""
        self.waiting.close()
        for teller in (self._teller, self._end_teller):
            if teller is not None:
                teller.stop()
        self.engine.close()
        self._ready = self._seen = False

    async def aclose(self) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        return f"<Towline {masked(self.url)}>"


def _text(url: str) -> str:
    if not isinstance(url, str):
        raise InvalidSetting(f"a URL is text, not {type(url).__name__}")
    return url
