"""Completion in shells: the command that prints the script, and the names of tasks, queues and
schedules."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import click
from click.shell_completion import BashComplete, add_completion_class, get_completion_class

from . import output

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TOWLINE_COMPLETE"
MOST_NAMES = 200  # of schedules
Names = Callable[[click.Context, click.Parameter, str], list[str]]


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
@click.pass_context
def completion(ctx: click.Context, shell: str, as_json: bool) -> None:
    """Print what completes commands, options, tasks and queues in a shell.

    \b
    bash  eval "$(towline completion bash)"     in ~/.bashrc
    zsh   eval "$(towline completion zsh)"      in ~/.zshrc
    fish  towline completion fish | source      in ~/.config/fish/config.fish
    """
    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(ctx.find_root().command, {}, "towline", VARIABLE).source()
    if as_json:
        output.print_json({"shell": shell, "script": script})
    else:
        output.write(script)


class Bash(BashComplete):
    """Bash takes shop:app apart at its colon, and name=value at its sign."""

    def get_completion_args(self) -> tuple[list[str], str]:
        words, last = super().get_completion_args()
        joined: list[str] = []
        for word in words:
            if joined and (word in (":", "=") or joined[-1][-1:] in (":", "=")):
                joined[-1] += word
            else:
                joined.append(word)
        return joined, last


add_completion_class(Bash)


def tasks(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Names of the tasks of the app that the line names."""
    return _beginning(begin, (name for name in _registry(ctx)))


def queues(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Names of the queues of its tasks."""
    return _beginning(begin, {task.queue for task in _registry(ctx).values()})


def schedules(ctx: click.Context, parameter: click.Parameter, begin: str) -> list[str]:
    """Names of schedules, and behind one what can be done to it."""
    from .target import is_name

    said = [word for word in ctx.params.get("words") or () if not is_name(word)]
    if said:
        return _beginning(begin, ("pause", "resume", "run", "delete"))
    try:
        app = _app(ctx)
        return [] if app is None else _beginning(begin, _schedules(app))
    except BaseException:
        return []


def _schedules(app: Any) -> set[str]:
    """Those that the code declares, and those that are stored, if the database is there."""
    names = {new.name for new in app.declarations().schedules}
    try:
        app.runner.prepare(create=False)
        names |= {found.name for found in app.schedules(limit=MOST_NAMES)}
    except Exception:
        pass  # it is away: the code is all that is known
    finally:
        app.close()
    return names


def words(kind: str) -> Names | None:
    """What completes the words of a command."""
    kinds = {"TASK": tasks, "QUEUE": queues, "NAME [pause|resume|run|delete]": schedules}
    return kinds.get(kind)


def _beginning(begin: str, names: Any) -> list[str]:
    return sorted(name for name in names if name.startswith(begin))


def _registry(ctx: click.Context) -> dict[str, Any]:
    """The tasks of the app."""
    app = _app(ctx)
    return {} if app is None else dict(app.registry)


def _app(ctx: click.Context) -> Any:
    """The app that the line names. Whatever goes wrong, a line that is being typed is left alone:
    nothing is completed, and nothing that the application prints is seen."""
    from .target import APP_VARIABLE, is_name, load

    # Before an option that still has no value, the words of a line are not told apart.
    words = [*(ctx.params.get("words") or ()), *ctx.args]
    said = [ctx.params.get("name"), *words, os.environ.get(APP_VARIABLE)]
    name = next((word for word in said if word and is_name(word)), None)
    if name is None or ctx.params.get("url"):
        return None
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return load(name)
    except BaseException:
        return None
