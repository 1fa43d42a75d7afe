"""`towline shell`: a Python prompt with the app and its tasks at hand, where `await` works."""

from __future__ import annotations

from typing import Any

import click

from ..app import Towline
from ..secret import masked
from ..version import VERSION
from .target import Command


@click.command(cls=Command)
@click.option("--plain", is_flag=True, help="Python's own prompt, also where IPython is installed.")
def shell(app: Towline, plain: bool) -> None:
    """Open a Python prompt with the app and its tasks; IPython's, where it is installed.

    `app` is the app, and its tasks have their names. `await` works. A task that is defined there a
    second time takes the place of the first.
    """
    from .prompt import IPythonPrompt, Prompt, has_ipython

    names = names_of(app)
    banner = f"Towline {VERSION} on {masked(app.url)}: {', '.join(names)}"
    (Prompt if plain or not has_ipython() else IPythonPrompt)(names).begin(banner)


def names_of(app: Towline) -> dict[str, Any]:
    """The app, and its tasks by the last part of their names, where that is free."""
    names: dict[str, Any] = {"app": app}
    for name, task in app.registry.items():
        last = name.rpartition(".")[2]
        if last.isidentifier():
            names.setdefault(last, task)
    return names
