"""What public calls are given: names, numbers and durations that make sense, or a typed refusal."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Collection, Iterable
from typing import Any, TypeVar

from .errors import InvalidSetting, InvalidTask
from .times import Seconds, micros

V = TypeVar("V")

MOST_PRIORITY = 2**31 - 1
MOST_ATTEMPTS = 2**31 - 1
EVERY = "*"  # queue


def check_known(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InvalidSetting for the first name that `call` does not take."""
    names = list(known)
    for name in given:
        if name in names:
            continue
        from difflib import get_close_matches

        near = get_close_matches(name, names, 1)
        hint = f" (did you mean {near[0]}=?)" if near else ""
        raise InvalidSetting(f"{call} does not know {name}={hint}. It takes {', '.join(names)}")


def check_name(value: V, what: str) -> V:
    """Names are short text without control characters: they are keys, shown everywhere."""
    if value is None:
        return value
    if not isinstance(value, str):
        raise InvalidSetting(f"{what} is text of printable characters, not {type(value).__name__}")
    if not 0 < len(value) <= 200 or not value.isprintable():
        raise InvalidSetting(f"{what} {value!r} must be 1 to 200 printable characters")
    return value


def check_queue(queue: object) -> None:
    """The name of a queue, which is no word for several of them."""
    check_name(queue, "queue")
    if isinstance(queue, str) and (queue == EVERY or queue.startswith("-")):
        raise InvalidSetting(
            f'queue {queue!r} cannot be a name: "*" means every queue, "-…" all but one'
        )


def check_pausable(queue: V) -> V:
    """What can be paused: a queue by its name, or "*" for every one."""
    if queue is None:
        raise InvalidSetting("queue is text of printable characters, not NoneType")
    if queue != EVERY:
        check_queue(queue)
    return queue


def serves(words: Collection[str], queue: str) -> bool:
    """Whether who works on these serves a queue: names, "*" for every one, "-name" for all but."""
    return (queue in words or EVERY in words) and f"-{queue}" not in words


def check_priority(priority: object) -> None:
    if priority is None:
        return
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidSetting(f"priority is a whole number, not {priority!r}")
    if abs(priority) > MOST_PRIORITY:
        raise InvalidSetting(f"priority {priority} is beyond ±{MOST_PRIORITY}")


def check_patience(timeout: object) -> None:
    """How long a caller waits for something: seconds, or None for as long as it takes."""
    if timeout is not None and (isinstance(timeout, bool) or not isinstance(timeout, int | float)):
        raise InvalidSetting(f"timeout= is seconds to wait, or None, not {timeout!r}")


def check_limits(max_attempts: object, timeout: Seconds | None) -> None:
    if max_attempts is not None and (
        isinstance(max_attempts, bool)
        or not isinstance(max_attempts, int)
        or not 1 <= max_attempts <= MOST_ATTEMPTS
    ):
        raise InvalidSetting(
            f"max_attempts is a whole number from 1 to {MOST_ATTEMPTS}, not {max_attempts!r}"
        )
    if timeout is not None and micros(timeout, "timeout") <= 0:
        raise InvalidSetting(f"timeout is a positive duration, not {timeout!r}")


def check_parameter(task: str, function: Any, name: str) -> None:
    """Raise InvalidTask unless a function has a parameter of this name that can name a lane."""
    parameters = inspect.signature(function).parameters
    found = parameters.get(name)
    if found is None or found.kind in (found.VAR_POSITIONAL, found.VAR_KEYWORD):
        raise InvalidTask(
            f"{task} has no parameter {name!r} to name its lane; it has {', '.join(parameters)}"
        )


def refuse_arguments(name: str, function: Any) -> None:
    """Raise InvalidSetting if a function cannot be called without arguments: a tick has none."""
    needed = [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and not takes_context(parameter)
    ]
    if needed:
        raise InvalidSetting(
            f"{name}({', '.join(needed)}) needs arguments: "
            f"app.declare_schedule('…', {name}.call(…), …)"
        )


def takes_context(parameter: inspect.Parameter) -> bool:
    """Whether it is annotated so, as far as that is known before its annotation can be read."""
    return "Context" in re.findall(r"\w+", str(parameter.annotation))


def refuse_method(function: Any) -> None:
    """A function inside a class whose first parameter is the object: a worker has none to pass."""
    method = inspect.ismethod(function) or isinstance(function, classmethod)
    outside, dot, _ = getattr(function, "__qualname__", "").rpartition(".")
    if not method and inspect.isfunction(function) and dot and not outside.endswith("<locals>"):
        method = next(iter(inspect.signature(function).parameters), None) in ("self", "cls")
    if method:
        raise InvalidTask(
            f"{function.__qualname__} is a method: a task is a plain function or a staticmethod, "
            "since there is no object to call it on in a worker"
        )


def is_of_prompt(function: Any) -> bool:
    """Whether a function was defined by hand: at a prompt, or in a cell of a notebook."""
    return getattr(function, "__module__", None) == "__main__" and hasattr(sys, "ps1")


def refuse_process(name: str, function: Any) -> None:
    """Raise InvalidTask for a task in a process that is defined where no other process finds it."""
    if is_of_prompt(function):
        raise InvalidTask(
            f'{name} cannot have run_in="process" at a prompt: the process imports the module that '
            "defines it, and there is none; put it into a file, or leave run_in= away"
        )
