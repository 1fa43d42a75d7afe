"""Sets of tasks: how functions become tasks, of an app or to be included by one later."""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Unpack, overload

from ..errors import InvalidTask
from ..naming import check_known, is_of_prompt
from ..times import Seconds
from . import GROUP, Coming, N, Next, P, RunIn, Task, V
from .retry import Backoff, Signal

if TYPE_CHECKING:
    from ..cron import Cron
    from .chunk import DecorateChunk, TaskSettings


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
        self.known_tasks = [GROUP]  # what a worker of theirs can run, by name, sorted

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
        backoff: Backoff | Callable[[int], Seconds] | None = None,
        run_in: RunIn = "thread",
        cron: Cron | str | None = None,
        lane: str | None = None,
    ) -> Decorate: ...
    def task(self, *function: Any, **settings: Any) -> Any:
        """Register a function as a task; calling it still just calls it.

        Settings: name, queue, priority, max_attempts, timeout, backoff, run_in; cron: there is a
        schedule of the task's name, which workers store a job of at each tick; lane: the parameter
        whose value names the lane of a job.
        """
        check_known("task()", settings, Task.__init__.__kwdefaults__ or ())

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(function, Task):
                raise InvalidTask(f"{function.name} is a task already")
            task: Task[..., Any] = Task(function, **settings)
            self._register(task, task.name)
            return task

        return decorate(*function) if function else decorate

    def chunk(
        self, *, size: int, wait: Seconds = 0, **settings: Unpack[TaskSettings]
    ) -> DecorateChunk:
        """Register a function of many items as a task of one: each is a job of its own, and a
        worker calls the function with up to `size` of them, gathered for at most `wait` seconds.

        It returns None, or a list with what each item ended with: a value, `task.then(…)`, a
        `Snooze` or the like, an exception. Settings are those of `task()`.
        """
        from .chunk import ChunkTask

        check_known("chunk()", settings, Task.__init__.__kwdefaults__ or ())

        def decorate(function: Callable[..., Any]) -> Task[..., Any]:
            if isinstance(function, Task):
                raise InvalidTask(f"{function.name} is a task already")
            task: Task[..., Any] = ChunkTask(function, size=size, wait=wait, **settings)
            self._register(task, task.name)
            return task

        return decorate

    def _register(self, task: Task[..., Any], name: str) -> None:
        if not self._replaces(task, name):
            self._refuse_twice(name)
        if name not in self.known_tasks:
            insort(self.known_tasks, name)
        self.registry[name] = task

    def _replaces(self, task: Task[..., Any], name: str) -> bool:
        """At a prompt a function is defined again to mend it."""
        old = self.registry.get(name)
        return old is not None and is_of_prompt(old.function) and is_of_prompt(task.function)

    def _refuse_twice(self, name: str) -> None:
        if name in self.registry or name == GROUP:
            raise InvalidTask(
                f"there is a task named {name} already; give one of them another name="
            )
