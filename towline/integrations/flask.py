"""Towline in a Flask application: its context around each attempt, and `flask towline …`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from importlib import import_module
from shlex import quote
from typing import TYPE_CHECKING

import click
from flask.cli import ScriptInfo

from ..app import Towline
from ..exit_codes import USAGE
from ..task.context import Context

if TYPE_CHECKING:
    from flask import Flask

NAME = "towline"  # of the extension, and of the command
APPLICATION = "towline.integrations.flask_application"  # what the command line works on
HELP = {"-h", "--help"}


def init_app(flask_app: Flask, app: Towline) -> None:
    """Give each attempt an application context of its own, and Flask our commands.

    What Flask and its extensions tear down with a context, as sessions of a database, is torn down
    after each attempt. A later application takes the place of an earlier one: in tests.
    """
    app.middleware[:] = [each for each in app.middleware if not isinstance(each, InContext)]
    app.middleware.insert(0, InContext(flask_app))
    flask_app.extensions[NAME] = app
    flask_app.cli.add_command(_command)


class InContext:
    """The middleware: a handler runs in the context of this application."""

    def __init__(self, flask_app: Flask) -> None:
        self.flask_app = flask_app

    def __call__(self, context: Context) -> Generator[None, None, None]:
        with self.flask_app.app_context():
            yield


def towline_of(flask_app: Flask) -> Towline:
    """The app that `init_app` has given it."""
    app: Towline = flask_app.extensions[NAME]
    return app


# ---- flask towline …


@click.command(
    NAME,
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def _command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Every command of `towline`, on this application's jobs."""
    from ..cli.commands import group
    from ..cli.ending import complain, run

    path = _path_of(ctx.ensure_object(ScriptInfo))
    if _asks_for_agents(words):
        ctx.exit(complain(_for_agents(path), USAGE))
    sys.modules.pop(APPLICATION, None)  # of an earlier application, in tests
    # What it starts (a supervisor's workers, processes of handlers) finds the same application.
    found = {"FLASK_APP": path}
    with _environment({**found, "TOWLINE_APP": f"{APPLICATION}:app"}):
        import_module(APPLICATION)
        code = run(group, list(words))
    ctx.exit(code)


def _asks_for_agents(words: tuple[str, ...]) -> bool:
    name = next((word for word in words if not word.startswith("-")), None)
    return name == "mcp" and HELP.isdisjoint(words)


def _for_agents(path: str | None) -> str:
    """An agent's client reads stdout, where the application may have printed by now: Flask imports
    it before we are asked. `towline mcp` takes stdout away before it does."""
    found = "" if path is None else f"FLASK_APP={quote(path)} "
    return (
        "agents read stdout, where this application may have printed already: start "
        f"`{found}TOWLINE_APP={APPLICATION}:app towline mcp` in the same folder, with the same "
        "options"
    )


@contextmanager
def _environment(names: dict[str, str | None]) -> Iterator[None]:
    """With these names in it; None: as it was."""
    before = {name: os.environ.get(name) for name in names}
    _set(names)
    try:
        yield
    finally:
        for name in names:
            os.environ.pop(name, None)
        _set(before)


def _set(names: dict[str, str | None]) -> None:
    os.environ.update({name: value for name, value in names.items() if value is not None})


def _path_of(info: ScriptInfo) -> str | None:
    """How another process finds the application; None where Flask finds it by itself."""
    create: Callable[..., Flask] | None = info.create_app
    if create is not None:
        return f"{create.__module__}:{create.__qualname__}"
    return info.app_import_path
