"""The tables of this release, and the unmanaged models that the admin shows."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models

from ..models import view_name
from ..schema import Tables

STATES = ["blocked", "scheduled", "pending", "running", "completed", "failed", "cancelled"]


class Migration(migrations.Migration):
    """Later ones repeat `Tables`, which does what is missing then."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        Tables(),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("task", models.TextField()),
                ("label", models.TextField(null=True)),
                ("key", models.TextField(null=True)),
                ("queue", models.TextField()),
                ("priority", models.IntegerField()),
                ("state", models.TextField(choices=[(state, state) for state in STATES])),
                ("attempt", models.IntegerField(null=True)),
                ("max_attempts", models.IntegerField()),
                ("created_at", models.DateTimeField()),
                ("run_at", models.DateTimeField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("worker", models.TextField(null=True)),
                ("error", models.TextField(null=True)),
            ],
            options={
                "db_table": view_name(),
                "managed": False,
                "default_permissions": ("view",),
                "permissions": [
                    ("retry_job", "Can retry jobs"),
                    ("cancel_job", "Can cancel jobs"),
                    ("run_job", "Can run jobs now"),
                ],
            },
        ),
    ]
