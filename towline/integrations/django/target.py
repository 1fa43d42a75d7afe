"""Where `towline` commands and other processes find an app of a Django project, by its alias:
`towline worker towline.integrations.django.target:default`, with DJANGO_SETTINGS_MODULE set.

Django is set up, and every task declared, before the app is given out.
"""

from __future__ import annotations

import django
from django.apps import apps

if not apps.ready:
    django.setup()

from .declaring import declare_all
from .project import ProjectApp, aliases, app_of


def name_of(alias: str) -> str:
    """As commands take it."""
    return f"{__name__}:{alias}"


def __getattr__(name: str) -> ProjectApp:
    if name not in aliases():
        raise AttributeError(f"no entry {name!r} of TASKS is Towline's")
    app = app_of(name)
    declare_all(app)
    return app
