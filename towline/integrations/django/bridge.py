"""The backend that TASKS names: Django's calls made into jobs, on Django's own connection.

TASKS = {"default": {"BACKEND": "towline.integrations.django.Backend", "QUEUES": []}}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils import timezone

from ...app.filters import parse_id
from ...app.handles import Job
from ...errors import InvalidSetting, NotFound, SchemaMismatch, SchemaMissing
from ...errors import InvalidTask as Unusable
from ...task.context import current
from . import shim
from .checks import check_installed
from .declaring import ProjectTask, check, declare, declared
from .project import ProjectApp, app_of
from .result import result_of


class Backend(shim.BaseTaskBackend):
    """Stores a task's calls in the project's database: they commit with what else is written there.

    OPTIONS: `database` (an alias of DATABASES), `max_attempts` (1), `timeout`, `modules` (where
    tasks are declared besides `tasks` of each app), `inline` (True: run at once, where it was
    enqueued, for tests), and settings of `Towline` such as `prefix` or `keep_completed`.
    """

    task_class = ProjectTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    @property
    def app(self) -> ProjectApp:
        """Shared by all threads, of each of which there is one of these."""
        return app_of(self.alias)

    @property
    def inline(self) -> bool:
        return bool(self.options.get("inline", False))

    def validate_task(self, task: Any) -> None:
        """What Django asks of a task, and what a job can be told. From here on it is known."""
        super().validate_task(task)
        try:
            check(task)
            declare(self.app, task)
        except (InvalidSetting, Unusable) as error:
            raise shim.InvalidTask(str(error)) from error

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Store a job: in the open transaction of this thread's connection, or in its own."""
        self.validate_task(task)
        app = self.app
        given = {"args": shim.normalize_json(list(args)), "kwargs": shim.normalize_json(kwargs)}
        stored = app.registry[task.module_path].using(
            at=_aware(task.run_after),
            priority=task.priority,
            queue=task.queue_name,
            max_attempts=getattr(task, "max_attempts", None) or app.defaults.max_attempts,
            timeout=getattr(task, "timeout", None) or app.defaults.timeout,
            key=getattr(task, "key", None),
            label=getattr(task, "label", None),
            on=app.connection,
        )
        try:
            job: Job[Any] = stored.enqueue(**given)
        except (SchemaMissing, SchemaMismatch) as problem:
            raise type(problem)(
                f"database {app.database!r} has not the Towline tables of this release: "
                f"run manage.py migrate --database {app.database}"
            ) from problem
        result = result_of(task, job, (), self.alias)
        object.__setattr__(result, "task", task)
        if job.created:
            shim.task_enqueued.send(type(self), task_result=result)
        # What a handler enqueues is run by the drain that runs the handler.
        if self.inline and current.get(None) is None:
            from ...testing import drain

            drain(app, on=app.connection, raising=False)
            result.refresh()
        return result

    def get_result(self, result_id: str) -> Any:
        """Read by this thread's connection, so also what is not committed yet."""
        app = self.app
        id = parse_id(str(result_id))
        if id is None:
            raise shim.TaskResultDoesNotExist(result_id)
        try:
            job = app.job(id, on=app.connection)
        except NotFound:
            raise shim.TaskResultDoesNotExist(result_id) from None
        if (task := declared(job.task)) is None:
            app.discover()
            if (task := declared(job.task)) is None:  # a task of `app`, or of code that is gone
                raise shim.TaskResultDoesNotExist(result_id)
        attempts = app.attempts(id, on=app.connection)
        return result_of(task, job, attempts, self.alias)

    def check(self, **_: Any) -> Iterator[Any]:
        yield from check_installed(self.alias)


def _aware(run_after: Any) -> Any:
    """A time without a zone, where the project has none, is by its clock."""
    if run_after is None or timezone.is_aware(run_after):
        return run_after
    return timezone.make_aware(run_after)
