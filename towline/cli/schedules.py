"""Commands about schedules: all of them, and one: what it does next, and what is done to it."""

from __future__ import annotations

from datetime import datetime

import click

from .. import views
from ..app import Towline
from ..app.schedules import Schedule
from ..app.shown import shown_template
from ..times import MICRO, to_datetime_or_none
from . import completion, output
from .control import who
from .filters import as_json, once
from .lists import show_jobs
from .target import Command

ACTIONS = ("pause", "resume", "run", "delete")
RUNS = 10  # of one schedule, the newest


@click.command(cls=Command)
@click.option(
    "--task", multiple=True, callback=once, help="Of one task.", shell_complete=completion.tasks
)
@click.option("--limit", default=50, show_default=True, help="How many at most, up to 10000.")
@click.option("--cursor", metavar="CURSOR", help="Go on after an earlier page.")
@as_json
def schedules(
    app: Towline, task: str | None, limit: int, cursor: str | None, as_json: bool
) -> None:
    """List schedules by name: when each ticks next, and how it went."""
    page = app.schedules(task=task, limit=limit, cursor=cursor)
    if as_json:
        data = [views.schedule_data(app, schedule) for schedule in page]
        output.print_json({"schedules": data, "cursor": page.cursor})
        return
    if not page:
        output.say("no schedules", "dim")
        return
    now = app.now()
    output.table(
        [
            (
                schedule.name,
                schedule.task,
                schedule.explain(),
                output.distance(schedule.next_at, now),
                schedule.ticks,
                schedule.skipped or "",
                schedule.missed or "",
                _standing(schedule),
            )
            for schedule in page
        ],
        *("schedule", "task", "when", "next", "ticks", "skipped", "missed", ""),
        right=("ticks", "skipped", "missed"),
        elastic=("schedule", "task", "when", ""),
    )
    if page.cursor is not None:
        output.say(f"\nthere may be more: --cursor {page.cursor}", "dim")


@click.command(cls=Command, words="NAME [pause|resume|run|delete]", least=1, most=2)
@as_json
def schedule(app: Towline, words: tuple[str, ...], as_json: bool) -> None:
    """Show one schedule with its next ticks, or do something to it.

    pause lets no tick give a job; resume goes on with the next tick after now; run stores a job of
    it at once; delete is for those that were made at run time.
    """
    name, *action = words
    if action and action[0] not in ACTIONS:
        raise click.BadParameter(f"{action[0][:40]!r} is not one of {', '.join(ACTIONS)}")
    found = app.schedule(name)
    if not action:
        if as_json:
            output.print_json(views.schedule_data(app, found))
        else:
            show_schedule(app, found)
    elif action[0] == "run":
        job = found.run(by=who())
        if as_json:
            output.print_json({"jobs": views.jobs_data(app, [job])})
        else:
            show_jobs(app, [job], app.now())
    elif action[0] == "delete":
        found.delete(by=who())
        output.answer({"schedule": name, "deleted": True}, f"schedule {name} is deleted", as_json)
    else:
        was_paused = found.paused
        found = found.pause(by=who()) if action[0] == "pause" else found.resume(by=who())
        done = "is paused" if found.paused else "goes on" if was_paused else "was not paused"
        output.answer(views.schedule_data(app, found), f"schedule {name} {done}", as_json)


def show_schedule(app: Towline, found: Schedule) -> None:
    now = app.now()
    record = found.record
    output.facts(
        [
            ("schedule", found.name),
            ("task", found.task),
            ("arguments", shown_template(app, found)),
            ("queue", found.queue),
            ("when", found.explain()),
            ("cron", record.cron),
            ("overlap", record.overlap),
            ("catch up", record.catch_up),
            ("jitter", f"up to {record.jitter / MICRO:g} s" if record.jitter else None),
            ("from", output.both(to_datetime_or_none(record.start_at), now)),
            ("until", output.both(to_datetime_or_none(record.end_at), now)),
            ("made", _made(found)),
            ("state", found.reason),
            ("next", output.both(found.next_at, now)),
            ("last tick", output.both(found.last_tick, now)),
            ("last job", found.last_job),
            ("ticks", f"{found.ticks} run, {found.skipped} skipped, {found.missed} missed"),
        ]
    )
    if ticks := found.upcoming():
        output.title("next ticks")
        rows = [(_clock(t), _clock(t.astimezone()), output.distance(t, now)) for t in ticks]
        output.table(rows, record.tz, "here", "")
    if jobs := app.jobs(schedule=found.name, limit=RUNS):
        output.title("newest jobs")
        show_jobs(app, list(jobs), now)


def _clock(tick: datetime) -> str:
    return f"{tick:%a %Y-%m-%d %H:%M:%S %Z}"


def _made(found: Schedule) -> str:
    if not found.declared:
        return "at run time"
    return "declared in code, changed since" if found.edited else "declared in code"


def _standing(found: Schedule) -> str:
    words = [found.reason or "", "changed since it was declared" if found.edited else ""]
    return " · ".join(word for word in words if word)
