"""What a worker calls for a task of Django's: the function, with context and signals around it.

Of a job's attempts only the last one is finished in Django's sense; `task_finished` is sent then,
and inside an `except` block, where Django's logger finds the error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from asgiref.sync import sync_to_async

from ...model import Outcome
from ...task.context import INJECTED, Context
from ...worker.attempt import Attempt
from ...worker.ending import of_error
from . import shim
from .result import end, running_result


def handler_of(function: Callable[..., Any], alias: str) -> Callable[..., Any]:
    """The function as a task of ours; its arguments are stored as Django gives them."""

    def run(args: list[Any], kwargs: dict[str, Any], ctx: Context = INJECTED) -> Any:
        this = Run(ctx, alias, args, kwargs)
        given = this.begin()
        try:
            value = shim.normalize_json(function(*given, **kwargs))
        except BaseException as error:
            this.fail(error)
            raise
        this.succeed(value)
        return value

    async def arun(args: list[Any], kwargs: dict[str, Any], ctx: Context = INJECTED) -> Any:
        this = Run(ctx, alias, args, kwargs)
        given = await sync_to_async(this.begin)()  # receivers of signals may use the database
        try:
            value = shim.normalize_json(await function(*given, **kwargs))
        except BaseException as error:
            await sync_to_async(this.fail)(error)
            raise
        await sync_to_async(this.succeed)(value)
        return value

    handler: Any = arun if inspect.iscoroutinefunction(function) else run
    handler.runs = function
    handler.__name__, handler.__qualname__ = function.__name__, function.__qualname__
    handler.__doc__ = function.__doc__
    return handler  # type: ignore[no-any-return]


class Run:
    """One attempt, as Django's receivers and the task itself are told of it."""

    def __init__(self, ctx: Context, alias: str, args: list[Any], kwargs: dict[str, Any]) -> None:
        self._attempt: Attempt = ctx._attempt
        self._alias = alias
        self._sender = type(shim.configured[alias])
        self._given = args, kwargs

    def begin(self) -> tuple[Any, ...]:
        """Give what the function is called with."""
        args, kwargs = self._given
        self._result = result = running_result(self._attempt, self._alias, args, kwargs)
        shim.task_started.send(self._sender, task_result=result)
        if result.task.takes_context:
            return (shim.TaskContext(task_result=result), *args)
        return tuple(args)

    def succeed(self, value: Any) -> None:
        if self._attempt.stopped_for is Outcome.TIMEOUT:
            return  # too late: it has failed, or is run again
        end(self._result, shim.TaskResultStatus.SUCCESSFUL, value=value)
        shim.task_finished.send(self._sender, task_result=self._result)

    def fail(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt) or not _is_last(self._attempt, error):
            return
        end(self._result, shim.TaskResultStatus.FAILED, error=error)
        trace = error.__traceback__
        try:
            raise error  # this may be another thread than the one that caught it
        except BaseException:
            error.__traceback__ = trace
            shim.task_finished.send(self._sender, task_result=self._result)


def _is_last(attempt: Attempt, error: BaseException) -> bool:
    """Whether no attempt follows one that ends with this."""
    ending = of_error(attempt, error)
    if ending is None or ending.outcome is Outcome.CANCELLED:
        return True
    if ending.outcome not in (Outcome.FAILED, Outcome.TIMEOUT):
        return False
    return ending.delay is None or attempt.held.used + 1 >= attempt.held.max_attempts
