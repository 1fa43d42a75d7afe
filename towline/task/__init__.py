"""Tasks: registered functions, and the calls, continuations and options made from them.

Everything is checked here, before the database is touched. Storing a call is left to the app.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterable, Sequence
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
    overload,
)

from msgspec import Struct

from ..errors import InvalidSetting, InvalidTask
from ..model import NewBlocker, NewJob
from ..naming import check_known, check_limits, check_priority, refuse_method
from ..naming import check_name as check_name
from ..times import Seconds, micros, to_micros
from .options import POLICIES, Options, Using
from .retry import Backoff, Signal

if TYPE_CHECKING:
    from ..app import Towline
    from ..app.handles import Job
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

    def new_job(self, blockers: Sequence[NewBlocker], *, continues: bool = False) -> NewJob:
        """What the store is given. A continuation inherits what was not said."""
        task, options = self.task, self.options
        timeout = task.timeout if options.timeout is None else options.timeout
        inherits = continues and options.queue is None and task.own_queue is None
        return NewJob(
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
            inherit_queue=inherits,
            inherit_priority=continues and options.priority is None and task.own_priority is None,
        )


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
        text = task.signature.encode(args, kwargs, limit=task.app.settings.payload_limit)
        return Call(task, text, self._options)

    def then(self, *args: P.args, **kwargs: P.kwargs) -> Next[R_co]:
        """Continue the chain with this job; returned from a handler."""
        return Next(self.call(*args, **kwargs))

    def using(self, **options: Unpack[Using]) -> ConfiguredTask[P, R_co]:
        """Say how the next calls differ: when, where, under which key, behind what, on what."""
        try:
            return ConfiguredTask(self._task, {**self._given, **options})
        except TypeError:
            check_known("using()", options, Using.__annotations__)
            raise

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
        max_attempts: int = 5,
        timeout: Seconds | None = None,
        backoff: Backoff | None = None,
        run_in: RunIn = "thread",
    ) -> None:
        if run_in not in ("thread", "process"):
            raise InvalidSetting(f'run_in is "thread" or "process", not {run_in!r}')
        self.function = function
        self.name: str = name if name is not None else getattr(function, "__name__", "")
        self.own_queue = queue
        self.queue = queue or "default"
        self.own_priority = priority
        self.priority = priority or 0
        self.max_attempts = max_attempts
        self.timeout = timeout
        self.backoff = backoff or Backoff()
        self.run_in = run_in
        self._app: Towline | None = None
        if not self.name or self.name == "<lambda>":
            raise InvalidTask("a task needs a name: use a def, or say name=")
        check_name(self.name, "task name")
        check_name(queue, "queue")
        check_priority(priority)
        check_limits(max_attempts, timeout)
        refuse_method(function)
        update_wrapper(self, function, updated=())
        super().__init__(self, {})

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
        self.name = name
        self.__dict__.pop("signature", None)  # it says the name


class Decorate(Protocol):
    """What `@tasks.task(...)` gives. Async functions come first, or the result were a coroutine;
    what never continues comes before what may: a type checker keeps its unions as they are. What
    may continue is called as if it did not: a `Next` of nothing would not vanish from a union."""

    @overload
    def __call__(self, function: Callable[P, Coming[Next[N]]]) -> Task[P, N, Coming[Next[N]]]: ...
    @overload
    def __call__(self, function: Callable[P, Coming[V]]) -> Task[P, V, Coming[V]]: ...
    @overload
    def __call__(
        self, function: Callable[P, Coming[V | Next[N] | Signal]]
    ) -> Task[P, V | N, Coming[V | N]]: ...
    @overload
    def __call__(self, function: Callable[P, Next[N]]) -> Task[P, N, Next[N]]: ...
    @overload
    def __call__(self, function: Callable[P, V]) -> Task[P, V, V]: ...
    @overload
    def __call__(self, function: Callable[P, V | Next[N] | Signal]) -> Task[P, V | N, V | N]: ...


class Tasks:
    """A set of tasks without an app, to be included by one later."""

    def __init__(self) -> None:
        self.registry: dict[str, Task[..., Any]] = {}

    @overload
    def task(self, function: Callable[P, Coming[Next[N]]], /) -> Task[P, N, Coming[Next[N]]]: ...
    @overload
    def task(self, function: Callable[P, Coming[V]], /) -> Task[P, V, Coming[V]]: ...
    @overload
    def task(
        self, function: Callable[P, Coming[V | Next[N] | Signal]], /
    ) -> Task[P, V | N, Coming[V | N]]: ...
    @overload
    def task(self, function: Callable[P, Next[N]], /) -> Task[P, N, Next[N]]: ...
    @overload
    def task(self, function: Callable[P, V], /) -> Task[P, V, V]: ...
    @overload
    def task(self, function: Callable[P, V | Next[N] | Signal], /) -> Task[P, V | N, V | N]: ...
    @overload
    def task(
        self,
        *,
        name: str | None = None,
        queue: str | None = None,
        priority: int | None = None,
        max_attempts: int = 5,
        timeout: Seconds | None = None,
        backoff: Backoff | None = None,
        run_in: RunIn = "thread",
    ) -> Decorate: ...
    def task(self, *function: Any, **settings: Any) -> Any:
        """Register a function as a task; calling it still just calls it.

        Settings: name, queue, priority, max_attempts, timeout, backoff, run_in.
        """
        check_known("task()", settings, Task.__init__.__kwdefaults__ or ())

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(function, Task):
                raise InvalidTask(f"{function.name} is a task already")
            task: Task[..., Any] = Task(function, **settings)
            self._register(task, task.name)
            return task

        return decorate(*function) if function else decorate

    def _register(self, task: Task[..., Any], name: str) -> None:
        self._refuse_twice(name)
        self.registry[name] = task

    def _refuse_twice(self, name: str) -> None:
        if name in self.registry:
            raise InvalidTask(
                f"there is a task named {name} already; give one of them another name="
            )
