"""Tasks: registered functions, and the calls, continuations and options made from them. How a
function becomes a task is in `tasks`.

Everything is checked here, before the database is touched. Storing a call is left to the app.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
from datetime import datetime
from functools import cached_property, update_wrapper
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
)

from msgspec import Struct

from ..cron import Cron, cron_of
from ..errors import InvalidSetting, InvalidTask, NotFound
from ..model import Policy
from ..naming import (
    check_known,
    check_limits,
    check_parameter,
    check_priority,
    check_queue,
    refuse_arguments,
    refuse_method,
    refuse_process,
)
from ..naming import check_name as check_name
from ..records import NewBlocker, NewJob
from ..times import Seconds, micros, to_micros
from .options import POLICIES, REPLACING, Options, Using, check_lane
from .retry import Backoff, Defaults, as_backoff

if TYPE_CHECKING:
    from ..app import Towline
    from ..app.answers import Page
    from ..app.filters import TaskJobsWhere
    from ..app.handles import Job
    from .chunk import Chunk
    from .signature import Signature

P = ParamSpec("P")
V = TypeVar("V", bound="Output | Iterable[Any] | None")  # mypy: protocols and None lack its member
N = TypeVar("N")
R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
Coming: TypeAlias = Coroutine[Any, Any, T_co]
if TYPE_CHECKING:  # what calling gives: a coroutine, a Next; Task[P, R] leaves it open
    from typing_extensions import TypeVar as DefaultTypeVar

    C_co = DefaultTypeVar("C_co", covariant=True, default=Any)
else:
    C_co = TypeVar("C_co", covariant=True)

GROUP = "towline.group"  # the built-in task behind a group

RunIn = Literal["thread", "process"]
Slots = Literal["thread", "loop", "process"]


class Output(Protocol):
    """What a chain can end with, as a type checker sees it: all that has a member every object has.
    `Next` and the signals are declared without it, so `-> int | Next[int]` ends with int."""

    def __sizeof__(self) -> int: ...


class Call(Struct, Generic[T_co], frozen=True, eq=False):
    """A task with its arguments, not stored yet: for enqueue_many, and as a blocker in `after=`."""

    task: Task[..., T_co]
    arguments: str
    options: Options
    lane: str | None = None

    def new_job(self, blockers: Sequence[NewBlocker], *, continues: bool = False) -> NewJob:
        """What the store is given. A continuation inherits what was not said."""
        task, options = self.task, self.options
        timeout = task.timeout if options.timeout is None else options.timeout
        inherits = continues and options.queue is None and task.own_queue is None
        job = NewJob(
            task=task.name,
            arguments=self.arguments,
            queue=options.queue or task.queue,
            priority=task.priority if options.priority is None else options.priority,
            max_attempts=options.max_attempts or task.max_attempts,
            timeout=None if timeout is None else micros(timeout),
            delay=None if options.delay is None else micros(options.delay),
            at=None if options.at is None else to_micros(options.at),
            label=options.label,
            key=options.key,
            scope=options.scope,
            window=None if options.window is None else micros(options.window),
            on_conflict=options.on_conflict,
            blockers=blockers,
            policy=POLICIES[options.on_blocker_failure],
            trace=options.trace,
            lane=self.lane,
            weight=options.weight,
            inherit_queue=inherits,
            inherit_priority=continues and options.priority is None and task.own_priority is None,
        )
        expires = options.expires
        if isinstance(expires, datetime):
            job.expires_at = to_micros(expires)
        elif expires is not None:
            job.expires = micros(expires)
        if options.on_conflict in REPLACING:
            job.given = options.given(task.lane)
            if options.on_conflict == "latest" and job.policy is Policy.FAIL:
                job.policy = Policy.RUN  # in any case: else a failure would lose it
        return job


class Next(Struct, Generic[T_co], frozen=True, eq=False):
    """Return this from a handler to continue the chain with another job."""

    call: Call[T_co]
    if TYPE_CHECKING:  # how it differs from what a chain ends with: see Output
        __sizeof__: ClassVar[None]  # type: ignore[assignment] # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        options = self.call.options
        if options.key is not None:
            raise InvalidSetting("a continuation belongs to its chain and takes no key=")
        if options.on is not None:
            raise InvalidSetting("a continuation commits with its predecessor and takes no on=")


class ConfiguredTask(Generic[P, R_co]):
    """A task with options: `task.using(...)`."""

    def __init__(self, task: Task[P, R_co], given: Using) -> None:
        self._task = task
        self._given = given
        self._options = Options(**given)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        """Store the job; it becomes visible to workers when the transaction commits."""
        calls = [self.call(*args, **kwargs)]
        return self._task.app.enqueue_many(calls, on=self._options.on)[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R_co]:
        calls = [self.call(*args, **kwargs)]
        return (await self._task.app.aenqueue_many(calls, on=self._options.on))[0]

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Check the arguments and make a call of it, to be stored later."""
        task = self._task
        if task.signature.outputs:
            task.signature.check_blockers(self._options.after)
        text = task.signature.encode(args, kwargs, limit=task.app.settings.payload_limit)
        lane = self._options.lane
        if lane is None and task.lane is None:
            return Call(task, text, self._options)
        named = task.signature.lane_of(task.lane, args, kwargs) if lane is None else lane
        return Call(task, text, self._options, check_lane(named))

    def then(self, *args: P.args, **kwargs: P.kwargs) -> Next[R_co]:
        """Continue the chain with this job; returned from a handler."""
        return Next(self.call(*args, **kwargs))

    def using(self, **options: Unpack[Using]) -> ConfiguredTask[P, R_co]:
        """Say how the next calls differ: when, where, under which key, behind what, on what."""
        try:
            return self._with({**self._given, **options})
        except TypeError:
            check_known("using()", options, Using.__annotations__)
            raise

    def _with(self, given: Using) -> ConfiguredTask[P, R_co]:
        return ConfiguredTask(self._task, given)

    def __repr__(self) -> str:
        plain, own = Options(), self._options
        said = [
            f"{name}={getattr(own, name)!r}"
            for name in Using.__annotations__
            if getattr(own, name) != getattr(plain, name)
        ]
        return f"<task {self._task.name}{' using ' if said else ''}{', '.join(said)}>"


class Task(ConfiguredTask[P, R_co], Generic[P, R_co, C_co]):
    """A registered function. Calling it just calls it."""

    chunk: Chunk | None = None  # how many of its jobs one call of its function takes
    __name__: str
    __qualname__: str
    __wrapped__: Callable[..., Any]

    if not TYPE_CHECKING:

        def __class_getitem__(cls, of: Any) -> Any:
            """Task[P, R] at run time, where Python before 3.13 knows no defaults."""
            two = isinstance(of, tuple) and len(of) == 2
            return super().__class_getitem__((*of, Any) if two else of)

    def __init__(
        self,
        function: Callable[P, C_co],
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: Seconds | None = None,
        backoff: Backoff | Callable[[int], Seconds] | None = None,
        run_in: RunIn = "thread",
        cron: Cron | str | None = None,
        lane: str | None = None,
    ) -> None:
        if run_in not in ("thread", "process"):
            raise InvalidSetting(f'run_in is "thread" or "process", not {run_in!r}')
        self.function = function
        self.name: str = name if name is not None else getattr(function, "__name__", "")
        self.own_queue = queue
        self.queue = queue or "default"
        self.own_priority = priority
        self.priority = priority or 0
        self._said = max_attempts, timeout, None if backoff is None else as_backoff(backoff)
        self._apply(Defaults())
        self.run_in = run_in
        self.lane = lane
        self._app: Towline | None = None
        if not self.name or self.name == "<lambda>":
            raise InvalidTask("a task needs a name: use a def, or say name=")
        check_name(self.name, "task name")
        check_queue(queue)
        check_priority(priority)
        check_limits(max_attempts, timeout)
        refuse_method(function)
        if run_in == "process":
            refuse_process(self.name, function)
        self.cron = None if cron is None else cron_of(cron)
        if self.cron is not None:
            refuse_arguments(self.name, function)
        if lane is not None:
            check_parameter(self.name, function, lane)
        update_wrapper(self, function, updated=())
        super().__init__(self, {})

    def _apply(self, defaults: Defaults) -> None:
        """What it does not say itself, the defaults of its app do."""
        max_attempts, timeout, backoff = self._said
        self.max_attempts = max_attempts or defaults.max_attempts
        self.timeout = defaults.timeout if timeout is None else timeout
        self.backoff = backoff or as_backoff(defaults.backoff)

    @cached_property
    def signature(self) -> Signature:
        """How arguments and result travel; read on first use, since annotations may name later
        definitions."""
        from .context import Context
        from .signature import Signature

        return Signature(self.function, name=self.name, injected=Context)

    @cached_property
    def slots(self) -> Slots:
        """The slots of a worker in which it runs."""
        if self.run_in == "process":
            return "process"
        return "loop" if inspect.iscoroutinefunction(self.function) else "thread"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C_co:
        return self.function(*args, **kwargs)

    def job(self, id: int, *, on: object = None) -> Job[R_co]:
        """A job of this task by its id; NotFound also when it is another task's."""
        return self._own(self.app.job(id, on=on))

    async def ajob(self, id: int, *, on: object = None) -> Job[R_co]:
        return self._own(await self.app.ajob(id, on=on))

    def jobs(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        newest: bool = True,
        on: object = None,
        **where: Unpack[TaskJobsWhere],
    ) -> Page[Job[R_co]]:
        """A page of this task's jobs, with the filters of `app.jobs`."""
        return self.app.jobs(
            task=self.name, limit=limit, cursor=cursor, newest=newest, on=on, **where
        )

    async def ajobs(
        self,
        *,
        limit: int = 50,
        cursor: str | None = None,
        newest: bool = True,
        on: object = None,
        **where: Unpack[TaskJobsWhere],
    ) -> Page[Job[R_co]]:
        return await self.app.ajobs(
            task=self.name, limit=limit, cursor=cursor, newest=newest, on=on, **where
        )

    def _own(self, job: Job[Any]) -> Job[R_co]:
        if job.task != self.name:
            raise NotFound(f"job {job.id} is of task {job.task}, not of {self.name}")
        return job

    @property
    def app(self) -> Towline:
        """The app that it belongs to; InvalidTask while no app includes it."""
        if self._app is None:
            raise InvalidTask(
                f"task {self.name} belongs to a set of tasks that no app includes yet: "
                "call app.include(tasks) first"
            )
        return self._app

    def check_unbound(self, app: Towline) -> None:
        """Raise InvalidTask when the task belongs to an app already: it can have one name only."""
        if self._app is not None:
            whose = "this" if self._app is app else "another"
            raise InvalidTask(f"task {self.name} already belongs to {whose} app")

    def bind(self, app: Towline, name: str) -> None:
        """Become a task of an app, under its name there."""
        self._app = app
        self._apply(app.defaults)
        self.name = name
        self.__dict__.pop("signature", None)  # it says the name
