"""The one place that knows where the tasks framework is: in Django from 6.0 on, before that in the
package django-tasks, where a few names differ."""

from __future__ import annotations

from django.core.exceptions import ImproperlyConfigured

try:
    from django.tasks import task_backends as configured
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus, task
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json

except ImportError:
    try:
        from django_tasks import task_backends as configured
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import (
            Task,
            TaskContext,
            TaskError,
            TaskResult,
            TaskResultStatus,
            task,
        )
        from django_tasks.exceptions import InvalidTaskError as InvalidTask
        from django_tasks.exceptions import TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ImportError as error:
        raise ImproperlyConfigured(
            "Towline needs Django 6.0 or newer, or the package django-tasks beside an older one: "
            "pip install django-tasks"
        ) from error

__all__ = [
    "BaseTaskBackend",
    "InvalidTask",
    "Task",
    "TaskContext",
    "TaskError",
    "TaskResult",
    "TaskResultDoesNotExist",
    "TaskResultStatus",
    "configured",
    "normalize_json",
    "task",
    "task_enqueued",
    "task_finished",
    "task_started",
]
