"""Chunks: a task whose handler takes many jobs at once. Each item is a job of its own, with its own
attempts and outcome; the worker gathers them."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar, cast, overload

from msgspec import Struct

from ..errors import InvalidSetting, InvalidTask
from ..naming import takes_context
from ..times import Seconds, micros
from . import N, Next, R_co, RunIn, Task, V
from .payload import members, type_text
from .retry import Backoff, Signal

if TYPE_CHECKING:
    from . import Coming
    from .signature import Signature

A = TypeVar("A")

MOST = 10_000  # items of one chunk


class TaskSettings(TypedDict, total=False):
    """What `task()` takes beside the function."""

    name: str | None
    queue: str | None
    priority: int | None
    max_attempts: int
    timeout: Seconds | None
    backoff: Backoff | Callable[[int], Seconds] | None
    run_in: RunIn
    lane: str | None


class Chunk(Struct, frozen=True):
    """How many items one call of the handler takes at most, and how long the first waits for the
    others, in microseconds."""

    size: int
    wait: int


class ChunkTask(Task[[A], R_co]):
    """A task of which many jobs are run by one call of its function, which takes a list of them and
    returns None, or a list as long. Calling it calls the function with this one item."""

    def __init__(self, function: Callable[..., Any], *, size: int, wait: Seconds, **settings: Any):
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MOST:
            raise InvalidSetting(f"size is a number from 1 to {MOST:,}, not {size!r}")
        if micros(wait, "wait") < 0:
            raise InvalidSetting("wait= cannot be negative")
        if settings.get("run_in", "thread") == "process":
            raise InvalidSetting(
                'a chunk runs in a thread or on the event loop, not with run_in="process"'
            )
        super().__init__(function, **settings)
        _check_parameters(function, self.name)
        self.chunk = Chunk(size, micros(wait, "wait"))

    @cached_property
    def signature(self) -> Signature:
        """How one item and its result travel."""
        from .signature import Signature

        return Signature(_item_function(self.function, self.name), name=self.name)

    def __call__(self, item: Any) -> Any:
        if inspect.iscoroutinefunction(self.function):
            return self._call_and_await(item)
        return _first(cast("Any", self.function)([item]))

    async def _call_and_await(self, item: Any) -> Any:
        return _first(await cast("Any", self.function)([item]))


def _first(results: Sequence[Any] | None) -> Any:
    return None if results is None else results[0]


def _check_parameters(function: Callable[..., Any], name: str) -> None:
    """One parameter, by position; its type is looked at when the task is first used, since it may
    name later definitions."""
    from .context import INJECTED

    parameters = list(inspect.signature(function).parameters.values())
    for parameter in parameters:
        if parameter.default is INJECTED or takes_context(parameter):
            raise InvalidSetting(
                f"{name}: a chunk has no context, since it runs for many jobs at once; leave out "
                f"the parameter {parameter.name!r}"
            )
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if len(parameters) != 1 or parameters[0].kind not in kinds:
        raise InvalidSetting(
            f"{name}: a chunk takes one parameter, the list of its items; several values of an "
            "item go into one, such as a dataclass"
        )


def _item_function(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function of one item, with the types that the handler's lists are of."""
    from .signature import _plain_function, _read

    (parameter,), hints = _read(_plain_function(function, name), name, None)
    item = _element(hints.get(parameter.name, list[Any]), name, f"parameter {parameter.name!r}")
    returns = hints.get("return", Any)
    if returns not in (None, type(None), Any):
        wanted = [part for part in members(returns) if part is not type(None)]
        results = [_element(part, name, "the result") for part in wanted]
        kept = [
            part
            for result in results
            for part in members(result)
            if not _is_error(part)
        ]  # fmt: skip
        returns = typing.Union[tuple(kept)] if kept else Any  # noqa: UP007

    def of_item() -> None: ...

    of_item.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [parameter.replace(annotation=item, default=parameter.empty)], return_annotation=returns
    )
    of_item.__annotations__ = {parameter.name: item, "return": returns}
    return of_item


def _is_error(part: Any) -> bool:
    """What an item may be beside a value, and which is never stored as one."""
    return isinstance(part, type) and issubclass(part, BaseException)


def _element(annotation: Any, name: str, place: str) -> Any:
    origin = typing.get_origin(annotation) or annotation
    if annotation is Any:
        return Any
    if not (isinstance(origin, type) and issubclass(origin, Sequence)) or origin in (str, bytes):
        raise InvalidTask(f"{name}: {place} of a chunk is a list, not {type_text(annotation)}")
    return (typing.get_args(annotation) or (Any,))[0]


class DecorateChunk(Protocol):
    """What `@tasks.chunk(...)` gives: a task of one item. Async functions come first."""

    @overload
    def __call__(self, function: Callable[[list[A]], Coming[Sequence[V]]]) -> Task[[A], V]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], Coming[Sequence[V | Next[N] | Signal]]]
    ) -> Task[[A], V | N]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], Coming[None]]) -> Task[[A], None]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], Sequence[V]]) -> Task[[A], V]: ...
    @overload
    def __call__(
        self, function: Callable[[list[A]], Sequence[V | Next[N] | Signal]]
    ) -> Task[[A], V | N]: ...
    @overload
    def __call__(self, function: Callable[[list[A]], None]) -> Task[[A], None]: ...
