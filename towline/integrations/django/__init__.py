"""Towline for Django: its tasks (`django.tasks`, or django-tasks before Django 6) stored in the
project's own database, with migrations, `manage.py towline`, checks and an admin.

`INSTALLED_APPS` imports this before any app is ready, so what it offers is fetched when it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bridge import Backend as Backend
    from .declaring import task as task
    from .project import ProjectApp

    app: ProjectApp

__all__ = ["Backend", "app", "task"]


def __getattr__(name: str) -> Any:
    if name == "Backend":
        from .bridge import Backend

        return Backend
    if name == "task":
        from .declaring import task

        return task
    if name == "app":  # of the alias "default", or of the only one that is ours
        from .project import main_app

        return main_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
