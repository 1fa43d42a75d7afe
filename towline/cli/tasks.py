"""Commands about tasks: tasks lists them, enqueue stores a job of one."""

from __future__ import annotations

import inspect
from datetime import timedelta
from difflib import get_close_matches
from typing import Any, get_args

import click

from .. import views
from ..app import Towline
from ..app.handles import Job
from ..app.shown import chain_error, output_text
from ..errors import ChainFailed
from ..exit_codes import FAILED, OK
from ..task import Task
from ..task.options import OnBlockerFailure, OnConflict
from ..text import gist
from . import completion, output
from .ending import CommandError, complain
from .filters import as_json, duration_of, json_of, shown
from .target import Command

SETTINGS = ("priority", "max_attempts", "timeout", "backoff", "run_in")


@click.command(cls=Command, creates=True, needs_tasks=True)
@as_json
def tasks(app: Towline, as_json: bool) -> None:
    """List the tasks of the app: what they take, where and how they run."""
    found = sorted(app.registry.values(), key=lambda task: task.name)
    if as_json:
        output.print_json({"tasks": [views.task_data(task) for task in found]})
        return
    output.table(
        [
            (
                task.name,
                task.signature.text.removeprefix(task.name),
                task.queue,
                settings_of(task),
                first_line(task),
            )
            for task in found
        ],
        *("task", "signature", "queue", "settings", ""),
        elastic=("signature", "settings", ""),
    )


def first_line(task: Task[..., Any]) -> str:
    """What its docstring begins with."""
    return (inspect.getdoc(task.function) or "").partition("\n")[0]


def settings_of(task: Task[..., Any]) -> str:
    """The settings that are not the usual ones."""
    usual, own = views.task_data(USUAL), views.task_data(task)
    said = [name for name in SETTINGS if own[name] != usual[name]]
    return ", ".join(name if name == "backoff" else f"{name}={own[name]}" for name in said)


def _usual() -> None: ...


USUAL: Task[[], None] = Task(_usual)


@click.command(cls=Command, words="TASK", least=1, most=1)
@click.option("--args", "arguments", metavar="JSON", help="A list, or an object by name.")
@click.option(
    "-p",
    "--param",
    "parameters",
    multiple=True,
    metavar="NAME=VALUE",
    help="One argument: JSON if it is that, else text.",
)
@click.option("--key", help="One open chain per key: a second call gives the first.")
@click.option(
    "--on-conflict",
    type=click.Choice(get_args(OnConflict)),
    default="return",
    help="When a chain has the key: give it, raise, replace it, run the latest, or run after it.",
)
@click.option(
    "--on-blocker-failure",
    type=click.Choice(get_args(OnBlockerFailure)),
    help="With --on-conflict after: run, or wait, when the one before it fails.",
)
@click.option("--delay", type=duration_of, metavar="TIME", help="Not before: 90, 15m, 2h, 3d.")
@click.option("--expires", type=duration_of, metavar="TIME", help="Not started after so long.")
@click.option("--queue", shell_complete=completion.queues, help="Another one than its task's.")
@click.option("--priority", type=int, help="Higher ones run first.")
@click.option("--label", help="A note, shown in lists.")
@click.option("--wait", is_flag=True, help="Wait for the end of the chain; print its output.")
@click.option("--timeout", type=duration_of, metavar="TIME", help="With --wait: at most so long.")
@as_json
def enqueue(
    app: Towline,
    words: tuple[str, ...],
    arguments: str | None,
    parameters: tuple[str, ...],
    wait: bool,
    timeout: timedelta | None,
    as_json: bool,
    **options: Any,
) -> int:
    """Store a job of a task; print its id.

    The arguments are checked by the task's signature. With --url the tasks are not known: the name
    is taken as it is, and the arguments are stored by name, as plain JSON. With --wait the exit
    code is 1 when the chain does not complete.
    """
    if timeout is not None and not wait:
        raise click.UsageError("--timeout goes with --wait")
    given, named = arguments_of(arguments, parameters)
    if (task := app.registry.get(words[0])) is not None:
        named |= texts_of(task, named, parameters)
    job = stored(app, words[0], given, named, options)
    if not job.created:
        complain(f"there is an open chain with this key already: {job.chain_id}", OK)
    if wait:
        return waited(app, job, timeout, as_json)
    if as_json:
        output.print_json(job_data(app, job))
    else:
        output.say(str(job.id))
    return OK


def arguments_of(text: str | None, parameters: tuple[str, ...]) -> tuple[list[Any], dict[str, Any]]:
    """What was given by place, and what by name."""
    try:
        value = {} if text is None else json_of(text)
    except ValueError as error:
        raise click.BadParameter(f"--args {error}") from None
    if not isinstance(value, list | dict):
        raise click.BadParameter("--args is a JSON list or object")
    given, named = (value, {}) if isinstance(value, list) else ([], value)
    for parameter in parameters:
        name, equals, said = parameter.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"-p {shown(parameter)} is not NAME=VALUE")
        if name in named:
            raise click.BadParameter(f"argument {shown(name)} was given twice")
        try:
            named[name] = json_of(said)
        except ValueError:
            named[name] = said
    return given, named


def texts_of(
    task: Task[..., Any], named: dict[str, Any], parameters: tuple[str, ...]
) -> dict[str, str]:
    """Those that are text by the task's signature, and look like a number: as they were written."""
    said = {name: text for name, _, text in (each.partition("=") for each in parameters)}
    types = task.signature.types
    return {
        name: text
        for name, text in said.items()
        if types.get(name) == "str" and not isinstance(named[name], str)
    }


def stored(
    app: Towline, name: str, given: list[Any], named: dict[str, Any], options: dict[str, Any]
) -> Job[Any]:
    """The job: of the app's own task, or of one that is only known by its name."""
    task = app.registry.get(name)
    if task is not None:
        args, kwargs = task.signature.read(given, named)
        return task.using(**options).enqueue(*args, **kwargs)
    if app.registry:
        near = get_close_matches(name, app.registry, 1)
        hint = f"did you mean {near[0]}?" if near else "`towline tasks` lists them"
        raise CommandError(f"the app has no task {shown(name)}: {hint}")
    if given:
        raise CommandError("with --url arguments go by name: --args '{…}' or -p NAME=VALUE")
    return app.named(name).using(**options).enqueue(**named)


def waited(app: Towline, job: Job[Any], timeout: timedelta | None, as_json: bool) -> int:
    """Wait for the chain, and show what came of it."""
    try:
        job.result(None if timeout is None else timeout.total_seconds())
    except ChainFailed:
        pass  # which is shown below
    chain = app.chain(job.chain_id)
    assert chain.last is not None
    text = output_text(app, chain.last)
    if as_json:
        output.print_json({**job_data(app, job.refresh()), "chain": views.chain_data(app, chain)})
    elif text is not None:
        output.say(text)
    if text is not None:
        return OK
    reason = gist(chain_error(chain))
    return complain(f"chain {chain.id} {chain.state}{f': {reason}' * bool(reason)}", FAILED)


def job_data(app: Towline, job: Job[Any]) -> views.Data:
    return {**views.jobs_data(app, [job])[0], "created": job.created}
