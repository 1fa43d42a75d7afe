"""Every method that does I/O exists twice, blocking and awaiting, and the two say the same."""

from __future__ import annotations

import inspect
import keyword
from collections.abc import Callable
from typing import Any

import pytest

from towline import Job, Task, Towline
from towline.app.group import Group
from towline.app.management import Management
from towline.app.schedules import Schedule
from towline.task import ConfiguredTask

CLASSES = (Towline, Group, Job, Schedule, Task, ConfiguredTask)

# These give one thing after another, so the awaiting twin is no coroutine.
STREAMS = {"Group.results", "Towline.map"}

# Public methods that touch no database; everything else has a twin.
NO_IO: dict[type, set[str]] = {
    Towline: {
        "add_middleware",
        "chunk",
        "ddl",
        "declarations",
        "declare_limit",
        "declare_schedule",
        "declared_schedules",
        "decode_output",
        "include",
        "knows",
        "named",
        "off",
        "on",
        "refuse_declared_twice",
        "refuse_too_heavy",
        "task",
        "use",
        "worker",
    },
    Group: set(),
    Job: set(),
    Schedule: {"explain", "upcoming"},
    Task: {"bind", "call", "check_unbound", "then", "using"},
    ConfiguredTask: {"call", "then", "using"},
}


def methods(cls: type) -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for name, method in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


def twin_of(name: str) -> str:
    """With an `a` in front; `await` is a word of Python's own."""
    twin = f"a{name}"
    return f"{twin}_" if keyword.iskeyword(twin) else twin


def pairs() -> list[Any]:
    return [
        pytest.param(cls, name, id=f"{cls.__name__}.{name}")
        for cls in CLASSES
        for name, method in methods(cls).items()
        if not inspect.iscoroutinefunction(method)
        and name not in NO_IO[cls]
        and f"{cls.__name__}.{name[1:]}" not in STREAMS
    ]


@pytest.mark.parametrize(("cls", "name"), pairs())
def test_a_blocking_method_has_an_awaiting_twin(cls: type, name: str) -> None:
    found = methods(cls)
    twin = found.get(twin_of(name))
    assert twin is not None, f"{cls.__name__}.{name} has no awaiting twin"
    if f"{cls.__name__}.{name}" in STREAMS:
        parameters = inspect.signature(found[name]).parameters
        assert inspect.signature(twin).parameters == parameters
        return
    assert inspect.iscoroutinefunction(twin)
    assert inspect.signature(twin) == inspect.signature(found[name])  # defaults, annotations, order
    assert found[name].__doc__, "the blocking one is documented"


@pytest.mark.parametrize("cls", CLASSES)
def test_an_awaiting_method_has_a_blocking_twin(cls: type) -> None:
    found = methods(cls)
    alone = {
        name
        for name, method in found.items()
        if inspect.iscoroutinefunction(method) and name[1:].rstrip("_") not in found
    }
    assert alone == set()


@pytest.mark.parametrize("cls", CLASSES)
def test_the_exceptions_exist_and_have_no_twin(cls: type) -> None:
    found = methods(cls)
    assert NO_IO[cls] <= found.keys()
    assert not {f"a{name}" for name in NO_IO[cls]} & found.keys()


def test_E13_every_operation_takes_a_connection() -> None:
    """All but those that cannot be part of a transaction."""
    without = {
        f"{cls.__name__}.{name}"
        for cls in (Towline, Group, Job, Schedule)
        for name, method in methods(cls).items()
        if name not in NO_IO[cls]
        and not inspect.iscoroutinefunction(method)
        and "on" not in inspect.signature(method).parameters
    }
    # A map commits as it goes.
    committing = {"Towline.map", "Towline.amap"}
    assert without == {"Towline.close", "Towline.migrate", "Towline.vacuum", *committing}


def test_a_face_is_what_an_app_is() -> None:
    """Nothing of the face is hidden by the app."""
    assert methods(Management).keys() <= methods(Towline).keys()
