"""Tasks whose code lives elsewhere: enqueued by name, checked by the worker that knows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import InvalidArguments
from ..task import Call, ConfiguredTask, Task
from ..task.options import Using

if TYPE_CHECKING:
    from . import Towline


class NamedTask(ConfiguredTask[..., Any]):
    """A name with options. It cannot be called, and knows no types; the name of a task of this app
    stands for that task, with its settings."""

    def __init__(self, app: Towline, name: str, given: Using | None = None) -> None:
        task: Task[..., Any] | None = app.registry.get(name)
        if task is None:
            task = Task(_elsewhere, name=name)
            task.bind(app, name)
        super().__init__(task, given or {})

    def call(self, *args: Any, **kwargs: Any) -> Call[Any]:
        from ..task.signature import encode_plain

        task = self._task
        if task.function is not _elsewhere:
            return super().call(*args, **kwargs)
        if args:
            raise InvalidArguments(f"{task.name} is known by its name only: arguments go by name")
        limit = task.app.settings.payload_limit
        text = encode_plain(kwargs, limit=limit, what="the object of arguments")
        return Call(task, text, self._options)

    def _with(self, given: Using) -> NamedTask:
        return NamedTask(self._task.app, self._task.name, given)


def _elsewhere(**arguments: Any) -> Any:
    raise NotImplementedError("the code of this task lives elsewhere")
