"""The application: its settings and tasks, enqueueing, workers, the schema.

What one reads is in `reading`, what one does to jobs in `management`, running operations in
`runner`. A method whose name begins with `a` awaits; apart from that the two are the same, and a
test compares them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Unpack

from ..engine import EngineSettings, ServerSettings
from ..errors import InvalidTask
from ..executor import in_thread
from ..model import NewJob
from ..naming import check_known
from ..runner import Runner
from ..secret import masked
from ..task import Call, Task, Tasks, check_name
from ..task.batch import new_jobs
from ..telemetry.log import write_each, write_log
from ..times import MICRO, Seconds, micros
from ..wakes import open_wake
from .handles import Job
from .management import Management
from .settings import SECRET_NAMES, check_settings, default_url, open_engine

if TYPE_CHECKING:
    from ..worker import Worker
    from ..worker.middleware import Middleware
    from ..worker.settings import WorkerSettings

log = logging.getLogger("towline")


class Towline(Management):
    """Durable background work in the application's own database.

    Opens lazily and creates its tables on first use, unless migrate=False. `durable=False` lets
    a power cut take the last commits (never a kill), for speed. Retention: how long ended chains
    are kept, None for ever. On PostgreSQL: `schema` holds the tables, `notify` tells workers of new
    jobs at once, `connections` is the most this process opens for operations of its own, and
    `pooler` says that the URL leads to a pooler in transaction mode: nothing is prepared there, and
    `listen` is an address past it, for the connection that hears of new jobs. `wake` is the URL of
    a Redis or NATS server that carries such hints as well. `secret_names`: names, or patterns of
    them, of arguments and fields whose values are shown nowhere, besides those marked `Secret`.
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
        secret_names: Iterable[str] = SECRET_NAMES,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        engine = EngineSettings(
            url=url or default_url(),
            prefix=prefix,
            lock_timeout=micros(lock_timeout, "lock_timeout") / MICRO,
            durable=durable,
            clock=clock,
            server=ServerSettings(
                schema=schema, notify=notify, connections=connections, pooler=pooler, listen=listen
            ),
        )
        keep = (keep_completed, keep_failed, keep_cancelled)
        self.settings = check_settings(engine, payload_limit, keep, secret_names)
        self.runner = Runner(
            open_engine(self.settings.engine),
            create=migrate,
            open_wake=None if wake is None else partial(open_wake, wake),
        )
        write_log(self.runner.events)
        self.middleware: list[Middleware] = []
        self._queues: set[str] = set()  # of its tasks, and those that were mentioned

    @property
    def url(self) -> str:
        """Where its database is."""
        return self.settings.engine.url

    def include(self, tasks: Tasks, prefix: str = "") -> None:
        """Take in a set of tasks, each name with the prefix in front."""
        for name, task in tasks.registry.items():
            check_name(prefix + name, "task name")
            self._refuse_twice(prefix + name)
            task.check_unbound(self)
        for name, task in tasks.registry.items():
            self._register(task, prefix + name)

    def _register(self, task: Task[..., Any], name: str) -> None:
        super()._register(task, name)
        task.bind(self, name)
        self._queues.add(task.queue)

    # ---- enqueue

    def enqueue_many(self, calls: Iterable[Call[Any]], *, on: object = None) -> list[Job[Any]]:
        """Store many calls in one transaction; jobs come back in the order given.

        A call in the `after=` of another is stored with it: a whole graph at once.
        """
        calls = list(calls)
        jobs = self._new_jobs(calls, on)
        answers = self.runner.run(self.runner.store.enqueue(jobs), on)
        return [Job(self, answer.record, answer.created) for answer in islice(answers, len(calls))]

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, on: object = None
    ) -> list[Job[Any]]:
        calls = list(calls)
        jobs = self._new_jobs(calls, on)
        answers = await self.runner.arun(self.runner.store.enqueue(jobs), on)
        return [Job(self, answer.record, answer.created) for answer in islice(answers, len(calls))]

    def _new_jobs(self, calls: Sequence[Call[Any]], on: object) -> list[NewJob]:
        """The calls in their order, and behind them what only their `after=` names."""
        jobs = [calls[0].new_job(())] if _is_plain(calls, on) else new_jobs(calls, on)
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

    # ---- workers

    def worker(self, **settings: Unpack[WorkerSettings]) -> Worker:
        """A worker for the tasks of this app: `app.worker(concurrency=8).run()`."""
        from ..worker import Worker
        from ..worker.settings import WorkerSettings

        check_known("worker()", settings, WorkerSettings.__annotations__)
        write_each(self.runner.events)
        return Worker(self, **settings)

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
        return self.runner.migrate()

    async def amigrate(self) -> list[str]:
        return await in_thread(self.migrate)

    def ddl(self, after: str | None = None) -> str:
        """The SQL that `migrate` would run, for Alembic, Django or a database administrator.

        `after` names the newest migration the database has already.
        """
        return self.runner.engine.migrations.text(self.runner.store.sql, after)

    def use(
        self, url: str, *, durable: bool | None = None, clock: Callable[[], int] | None = None
    ) -> None:
        """Point the app at another database; its tasks and its other settings stay.

        For tests, and for a program that learns its URL late. Not while a worker of it runs.
        """
        settings = self.settings.at(url, durable=durable, clock=clock)
        self.runner.use(open_engine(settings.engine))
        self.settings = settings

    def close(self) -> None:
        """Close the connections of this process; using the app again opens new ones."""
        self.runner.close()

    async def aclose(self) -> None:
        await in_thread(self.close)

    def __repr__(self) -> str:
        return f"<Towline {masked(self.url)}>"


def _is_plain(calls: Sequence[Call[Any]], on: object) -> bool:
    """One call that waits for nothing: no batch."""
    if len(calls) != 1 or not isinstance(calls[0], Call):
        return False
    options = calls[0].options
    return options.after == () and (options.on is None or options.on is on)
