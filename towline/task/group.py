"""The task behind a group that has no `then=`: it does nothing, and every worker knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import GROUP, Task

if TYPE_CHECKING:
    from ..app import Towline


def built_in_tasks(app: Towline) -> dict[str, Task[..., Any]]:
    """Tasks that an app has without having declared them; they are listed nowhere as its own."""
    task: Task[..., Any] = Task(_end_of_group, name=GROUP)
    task.bind(app, GROUP)
    return {GROUP: task}


def _end_of_group() -> None:
    pass
