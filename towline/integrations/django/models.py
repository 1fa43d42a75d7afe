"""Jobs as a model, for the admin and for queries of the project's own: a view, so reading only."""

from __future__ import annotations

from typing import Any, ClassVar

from django.conf import settings
from django.db import models

from ...app import handles
from ...model import State


def view_name() -> str:
    """The view of jobs, by the prefix and the schema of the main alias."""
    entry: dict[str, Any] = getattr(settings, "TASKS", {}).get("default", {})
    options = entry.get("OPTIONS", {})
    name = f"{options.get('prefix', 'towline_')}jobs"
    schema = options.get("schema")
    return name if schema is None else f'"{schema}"."{name}"'


class Job(models.Model):
    """A job as it stands. `Job.objects` reads the view; what changes a job is a method of `app`."""

    id = models.BigIntegerField(primary_key=True)
    task = models.TextField()
    label = models.TextField(null=True)
    key = models.TextField(null=True)
    queue = models.TextField()
    priority = models.IntegerField()
    state = models.TextField(choices=[(str(state), str(state)) for state in State])
    attempt = models.IntegerField(null=True)
    max_attempts = models.IntegerField()
    created_at = models.DateTimeField()
    run_at = models.DateTimeField(null=True)
    started_at = models.DateTimeField(null=True)
    ended_at = models.DateTimeField(null=True)
    worker = models.TextField(null=True)
    error = models.TextField(null=True)

    class Meta:
        managed = False
        db_table = view_name()
        default_permissions = ("view",)
        permissions: ClassVar[list[tuple[str, str]]] = [
            ("retry_job", "Can retry jobs"),
            ("cancel_job", "Can cancel jobs"),
            ("run_job", "Can run jobs now"),
        ]

    def __str__(self) -> str:
        return f"job {self.pk} ({self.task})"

    @classmethod
    def of(cls, job: handles.Job[Any]) -> Job:
        """The same from a handle."""
        names = [field.attname for field in cls._meta.concrete_fields]
        found = cls(**{name: getattr(job, name) for name in names})
        found.state = str(job.state)
        return found
