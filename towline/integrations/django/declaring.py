"""Tasks as Django declares them, and as a worker of ours knows them: by the path of their function.

A worker runs what was declared in modules that it imported by itself. No row makes it import
anything; a path that it does not know is parked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any, Literal

from ...naming import check_limits, check_name
from ...task import Task as StoredTask
from ...times import Seconds
from . import shim
from .handler import handler_of
from .project import ProjectApp

_declared: dict[str, Any] = {}  # tasks by path, whatever their alias
_declaring = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectTask(shim.Task):
    """Django's task, and what else a job can be told. What is None, OPTIONS say."""

    max_attempts: int | None = None
    timeout: Seconds | None = None
    key: str | None = None
    label: str | None = None
    run_in: Literal["thread", "process"] = "thread"

    def using(self, **changes: Any) -> Any:
        """The same with other values; None changes nothing."""
        own = {name: changes.pop(name) for name in OWN if name in changes}
        # Not super(): a class with slots is made twice, and this one would be the first.
        changed = shim.Task.using(self, **changes)
        return replace(changed, **{name: v for name, v in own.items() if v is not None})


OWN = tuple(
    field.name
    for field in fields(ProjectTask)
    if field.name not in {inherited.name for inherited in fields(shim.Task)}
)


def task(
    function: Callable[..., Any] | None = None,
    *,
    priority: int = 0,
    queue_name: str = "default",
    backend: str = "default",
    takes_context: bool = False,
    **own: Any,
) -> Any:
    """Django's `@task`, with what a job of ours can be told as well, on every release of Django:
    max_attempts, timeout, key, label, run_in."""
    common = {
        "priority": priority,
        "queue_name": queue_name,
        "backend": backend,
        "takes_context": takes_context,
        "run_after": None,
    }

    def declare(function: Callable[..., Any]) -> Any:
        return shim.configured[backend].task_class(func=function, **common, **own)

    return declare if function is None else declare(function)


def check(task: Any) -> None:
    """Raise InvalidSetting for what a job cannot be told; tasks of other aliases say none of it."""
    check_limits(getattr(task, "max_attempts", None), getattr(task, "timeout", None))
    for name in ("key", "label"):
        check_name(getattr(task, name, None), name)
    if (run_in := getattr(task, "run_in", "thread")) not in ("thread", "process"):
        from ...errors import InvalidSetting

        raise InvalidSetting(f'run_in is "thread" or "process", not {run_in!r}')


def declared(path: str) -> Any:
    """The task of a path; None where no module that declares it was imported."""
    return _declared.get(path)


def declare(app: ProjectApp, task: Any) -> StoredTask[..., Any]:
    """Make it a task of the app; one of the same function is one already."""
    path: str = task.module_path
    known = _declared.get(path)
    if known is None or known.func is not task.func:
        # As it was declared, not as some call changes it: that is said with each job.
        _declared[path] = task
    stored = app.registry.get(path)
    if stored is None or getattr(stored.function, "runs", None) is not task.func:
        with _declaring:
            stored = app.replace_task(
                StoredTask(
                    handler_of(task.func, app.alias),
                    name=path,
                    queue=task.queue_name,
                    max_attempts=getattr(task, "max_attempts", None),
                    timeout=getattr(task, "timeout", None),
                    run_in=getattr(task, "run_in", "thread"),
                )
            )
    return stored


def declare_all(app: ProjectApp) -> None:
    """What a worker of this app can run: every task that there is, also those which only a call
    sends to its alias."""
    app.discover()
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").rpartition(".")[2] == "tasks":
            for found in list(vars(module).values()):
                if isinstance(found, shim.Task):
                    _declared.setdefault(found.module_path, found)
    for found in _declared.values():
        declare(app, found)
