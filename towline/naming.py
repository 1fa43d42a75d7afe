"""What public calls are given: names, numbers and durations that make sense, or a typed refusal."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any, TypeVar

from .errors import InvalidSetting, InvalidTask
from .times import Seconds, micros

V = TypeVar("V")

MOST_PRIORITY = 2**31 - 1
MOST_ATTEMPTS = 2**31 - 1


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


def check_priority(priority: object) -> None:
    if priority is None:
        return
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise InvalidSetting(f"priority is a whole number, not {priority!r}")
    if abs(priority) > MOST_PRIORITY:
        raise InvalidSetting(f"priority {priority} is beyond ±{MOST_PRIORITY}")


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
