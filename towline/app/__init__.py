"""The application: its settings and tasks, workers, the schema.

What one stores is in `batches`, what one reads in `reading`, what one does to jobs in `management`;
schedules are in `schedules`, limits in `limits`, running operations in `runner`. A method whose
name begins with `a` awaits; apart from that the two are the same, and a test compares them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ..engine import EngineSettings, ServerSettings
from ..executor import in_thread
from ..naming import check_known
from ..runner import Runner
from ..secret import masked
from ..task import Task, check_name
from ..task.group import built_in_tasks
from ..task.retry import Defaults
from ..task.tasks import Tasks
from ..telemetry.log import write_each, write_log
from ..times import MICRO, Seconds, micros
from ..wakes import open_wake
from .declarations import Declaring
from .groups import Groups
from .management import Management
from .settings import SECRET_NAMES, check_settings, default_url, open_engine

if TYPE_CHECKING:
    from ..worker import Worker
    from ..worker.middleware import Middleware
    from ..worker.settings import WorkerSettings
    from .named import NamedTask

S = TypeVar("S", bound=Callable[[Any], object])

apps: weakref.WeakSet[Towline] = weakref.WeakSet()  # of this process
welcomes: list[Callable[[Towline], object]] = []  # called with each that is made


class Towline(Declaring, Groups, Management):
    """Durable background work in the application's own database.

    Opens lazily and creates its tables on first use, unless migrate=False. `durable=False` lets
    a power cut take the last commits (never a kill), for speed. Retention: how long ended chains
    are kept, None for ever. On PostgreSQL: `schema` holds the tables, `notify` tells workers of new
    jobs at once, `connections` is the most this process opens for operations of its own, and
    `pooler` says that the URL leads to a pooler in transaction mode: nothing is prepared there, and
    `listen` is an address past it, for the connection that hears of new jobs. `wake` is the URL of
    a Redis or NATS server that carries such hints as well. `secret_names`: names, or patterns of
    them, of arguments and fields whose values are shown nowhere, besides those marked `Secret`; in
    place of the usual ones: *password*, *passwd*, *secret*, *token*, *api_key*, authorization.
    `defaults`: the timeout, attempts and back-off of tasks that do not say their own.
    """

    found_at: tuple[str, str] | None = None  # module and name, for processes; None: looked for

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
        defaults: Defaults | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        super().__init__()
        self.defaults = defaults or Defaults()
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
        self.settings = self.first_settings = check_settings(
            engine, payload_limit, keep, secret_names
        )
        self.runner = Runner(
            open_engine(self.settings.engine),
            create=migrate,
            open_wake=None if wake is None else partial(open_wake, wake),
        )
        write_log(self.runner.events)
        self.middleware: list[Middleware] = []
        self.built_in = built_in_tasks(self)
        self.workers_here: set[Worker] = set()  # that run in this process
        apps.add(self)
        for welcome in welcomes:
            welcome(self)

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
        if task.cron is not None and not self._replaces(task, name):
            self.refuse_declared_twice(name)
        super()._register(task, name)
        task.bind(self, name)
        self._queues.add(task.queue)

    def named(self, name: str) -> NamedTask:
        """A task whose code lives elsewhere, by its name: `app.named("other.task").enqueue(to=1)`.

        Its arguments go by name, as plain JSON; the worker that knows the task checks them.
        """
        from .named import NamedTask

        check_name(name, "task name")
        if name not in self.registry:
            self._elsewhere.add(name)
        return NamedTask(self, name)

    def knows(self, task: str) -> bool:
        """Whether code of this process has said this name of a task."""
        return task in self.registry or task in self._elsewhere or task in self.built_in

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

    # ---- events

    @overload
    def on(self, function: S, /) -> S: ...
    @overload
    def on(self, *names: str) -> Callable[[S], S]: ...
    def on(self, *names: Any) -> Any:
        """Tell a function of events, after the commits they tell of: `@app.on("attempt.ended")`,
        of several, or without a name of all. It runs on a thread of its own, one event after the
        other; docs/guides/see/events.md lists them. `off` ends it."""
        if names and callable(names[0]):
            return self.on()(names[0])

        def subscribe(function: S) -> S:
            self.runner.events.subscribe(function, names)
            return function

        return subscribe

    def off(self, function: Callable[[Any], object]) -> None:
        """Tell this function of nothing any more."""
        self.runner.events.unsubscribe(function)

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
        self,
        url: str,
        *,
        schema: str | None = None,
        durable: bool | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Point the app at another database; its tasks and its other settings stay.

        For tests, and for a program that learns its URL late. Not while a worker of it runs.
        """
        settings = self.settings.at(url, schema, durable=durable, clock=clock)
        self.runner.use(open_engine(settings.engine))
        self.settings = settings

    def close(self) -> None:
        """Close the connections of this process; using the app again opens new ones."""
        self.runner.close()

    async def aclose(self) -> None:
        await in_thread(self.close)

    def __repr__(self) -> str:
        return f"<Towline {masked(self.url)}>"
