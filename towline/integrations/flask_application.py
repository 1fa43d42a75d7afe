"""The Flask application that `flask` finds (FLASK_APP, wsgi.py, app.py), and its Towline as `app`.

For `flask towline` and the processes that it starts: made when this module is imported there, which
TOWLINE_APP says, and nowhere else.
"""

from __future__ import annotations

import os

import click
from flask.cli import ScriptInfo

from ..errors import InvalidSetting
from .flask import APPLICATION, NAME, towline_of


def _script() -> ScriptInfo:
    """In the `flask` command itself the application has been made already."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_object(ScriptInfo)
    return found or ScriptInfo(os.environ.get("FLASK_APP"))


if os.environ.get("TOWLINE_APP") == f"{APPLICATION}:app":
    flask_app = _script().load_app()
    if NAME not in flask_app.extensions:
        raise InvalidSetting(f"{flask_app!r} has no Towline: call init_app(flask_app, app)")
    app = towline_of(flask_app)
