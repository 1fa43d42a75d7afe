"""Commands that change jobs and queues: retry, cancel, run, complete, fail, pause, resume."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, Unpack

import click

from ..app import Towline
from ..app.filters import JobsWhere
from ..app.handles import Job
from ..errors import StoreError, TowlineError
from ..exit_codes import FAILED, OK
from ..model import State
from ..naming import EVERY
from ..views import jobs_data
from . import output
from .ending import complain
from .filters import as_json, filters, is_empty, job_id, json_of
from .lists import show_jobs
from .progress import following
from .target import Command

T = TypeVar("T")


def who() -> str:
    """Who did it, for the history: the user at this host."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a user without a name, as in some containers
        name = "somebody"
    return f"{name}@{socket.gethostname()}"


def each(app: Towline, ids: list[int], action: Callable[[int], Job[Any]], as_json: bool) -> int:
    """Do it to every job that can take it, show those, and say of the rest why not."""
    done, errors = tried(ids, action)
    if as_json:
        output.print_json({"jobs": jobs_data(app, done), "errors": errors})
    elif done:
        show_jobs(app, done, app.now())
    return refused(errors)


def tried(
    ids: Iterable[int], action: Callable[[int], T]
) -> tuple[list[T], list[dict[str, object]]]:
    """What came of it for each that could take it, and why the others could not."""
    done: list[T] = []
    errors: list[dict[str, object]] = []
    for id in ids:
        try:
            done.append(action(id))
        except StoreError:
            raise
        except TowlineError as error:
            errors.append({"id": id, "error": str(error)})
    return done, errors


def refused(errors: list[dict[str, object]]) -> int:
    """Say why; the exit code."""
    for error in errors:
        complain(str(error["error"]), FAILED)
    return FAILED if errors else OK


def chosen(
    words: tuple[str, ...], where: Mapping[str, object], everything: bool, preview: bool
) -> list[int]:
    """The ids that were given; none when there is a filter or --all instead."""
    if words and not is_empty(where):
        raise click.UsageError("either ids or filters, not both")
    if everything and (words or not is_empty(where)):
        raise click.UsageError("either --all, or ids or filters, not both")
    if not (words or everything) and is_empty(where):
        options = ", ".join(f"--{name}" for name in [*where][:3])
        raise click.UsageError(
            f"name them by id, or choose them with {options}, …; --all for every one"
        )
    if words and preview:
        raise click.UsageError("--preview goes with filters")
    return [job_id(word) for word in words]


def tell_number(number: int, preview: bool, verb: str, as_json: bool, *, what: str = "job") -> None:
    text = f"{number} {what}{'s' * (number != 1)} {'would be ' * preview}{verb}"
    output.answer({"number": number, "preview": preview}, text, as_json)


@click.command(cls=Command, words="[ID]...", most=None)
@filters
@click.option("--all", "everything", is_flag=True, help="Every failed one, of any task.")
@click.option("--preview", is_flag=True, help="Only count what would be retried.")
@as_json
def retry(
    app: Towline,
    words: tuple[str, ...],
    everything: bool,
    preview: bool,
    as_json: bool,
    **where: Unpack[JobsWhere],
) -> int:
    """Make failed or cancelled jobs pending again, with fresh attempts.

    By id, or all that fit the filters: of those the failed ones, unless --state says otherwise.
    """
    ids = chosen(words, where, everything, preview)
    if ids:
        return each(app, ids, partial(app.retry, by=who()), as_json)
    where["state"] = where.get("state") or State.FAILED
    if preview:
        number = app.retry_many(preview=True, **where)
    else:
        with following(app, "retrying", partial(app.retry_many, preview=True, **where)):
            number = app.retry_many(by=who(), **where)
    tell_number(number, preview, "retried", as_json)
    return OK


@click.command(cls=Command, words="[ID]...", most=None)
@filters
@click.option("--reason", help="With ids: why, for the history.")
@click.option("--all", "everything", is_flag=True, help="Every open one, of any task.")
@click.option("--preview", is_flag=True, help="Only count what would be cancelled.")
@as_json
def cancel(
    app: Towline,
    words: tuple[str, ...],
    reason: str | None,
    everything: bool,
    preview: bool,
    as_json: bool,
    **where: Unpack[JobsWhere],
) -> int:
    """End open jobs as cancelled; a running handler is told to stop.

    By id, or all open ones that fit the filters.
    """
    ids = chosen(words, where, everything, preview)
    by = who()
    if ids:
        return each(app, ids, lambda id: app.cancel(id, reason=reason, by=by), as_json)
    if reason is not None:
        raise click.UsageError("--reason goes with ids")
    all_of_them: dict[str, Any] = {"everything": True} if everything else {}
    fitting = partial(app.cancel_many, preview=True, **where, **all_of_them)
    if preview:
        number = fitting()
    else:
        with following(app, "cancelling", fitting):
            number = app.cancel_many(by=by, **where, **all_of_them)
    tell_number(number, preview, "cancelled", as_json)
    return OK


@click.command(cls=Command, words="ID...", least=1, most=None)
@as_json
def run(app: Towline, words: tuple[str, ...], as_json: bool) -> int:
    """Make scheduled jobs pending at once."""
    return each(app, [job_id(word) for word in words], partial(app.run_now, by=who()), as_json)


@click.command(cls=Command, words="ID VALUE", least=2, most=2)
@as_json
def complete(app: Towline, words: tuple[str, ...], as_json: bool) -> int:
    """Complete an open job from outside, with VALUE, which is JSON, as its output.

    A negative number goes behind --, so that it is not taken for an option.
    """
    id, text = job_id(words[0]), words[1]
    try:
        json_of(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None

    def completed(id: int) -> Job[Any]:
        value = app.decode_output(app.target(id).task, text)
        return app.complete(id, value, by=who())

    return each(app, [id], completed, as_json)


@click.command(cls=Command, words="ID REASON", least=2, most=2)
@as_json
def fail(app: Towline, words: tuple[str, ...], as_json: bool) -> int:
    """Fail an open job from outside, without another try."""
    id, reason = job_id(words[0]), words[1]
    return each(app, [id], lambda id: app.fail(id, reason, by=who()), as_json)


@click.command(cls=Command, words="QUEUE", least=1, most=1)
@as_json
def pause(app: Towline, words: tuple[str, ...], as_json: bool) -> None:
    """Stop all workers from claiming jobs of a queue, until it is resumed; '*' is every queue."""
    app.pause(words[0], by=who())
    tell_queue(app, words[0], "is paused", as_json)


@click.command(cls=Command, words="QUEUE", least=1, most=1)
@as_json
def resume(app: Towline, words: tuple[str, ...], as_json: bool) -> None:
    """Let workers claim from a paused queue again."""
    was_paused = words[0] in app.paused()
    app.resume(words[0], by=who())
    tell_queue(app, words[0], "goes on" if was_paused else "was not paused", as_json)


def tell_queue(app: Towline, queue: str, done: str, as_json: bool) -> None:
    if as_json:
        output.print_json({"queue": queue, "paused": queue in app.paused()})
    else:
        output.say(f"{'every queue' if queue == EVERY else f'queue {queue}'} {done}")
