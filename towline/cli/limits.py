"""Commands about limits and lanes: limits, limit, lanes."""

from __future__ import annotations

from datetime import timedelta

import click

from .. import views
from ..app import Towline
from ..app.limits import Limit
from ..exit_codes import OK
from ..times import length
from . import output
from .control import who
from .filters import as_json
from .target import Command


@click.command(cls=Command)
@as_json
def limits(app: Towline, as_json: bool) -> None:
    """List the limits of queues and lanes, and how much of each is used."""
    show(app, app.limits(), as_json)


@click.command(cls=Command, words="QUEUE", least=1, most=1)
@click.option("--lane", help='A lane, or "*" for each lane of the queue.')
@click.option("--concurrency", type=int, help="How much may run at a time; 0 stops it.")
@click.option("--rate", type=int, help="How much may begin in any --per seconds.")
@click.option("--per", type=float, help="The seconds of --rate; 60 unless it is said.")
@click.option("--none", "remove", is_flag=True, help="Take the limit away.")
@as_json
def limit(
    app: Towline,
    words: tuple[str, ...],
    lane: str | None,
    concurrency: int | None,
    rate: int | None,
    per: float | None,
    remove: bool,
    as_json: bool,
) -> int:
    """Limit a queue, each of its lanes or one; without a number, show its limits.

    Nothing that runs is stopped. What is not said is not limited.
    """
    queue = words[0]
    said = concurrency is not None or rate is not None
    if remove and said:
        raise click.UsageError("--none takes the limit away: no --concurrency, no --rate")
    if per is not None and rate is None:
        raise click.UsageError("--per is the time of --rate: say both")
    if remove or said:
        window = 60.0 if per is None else per
        app.set_limit(queue, lane=lane, concurrency=concurrency, rate=rate, per=window, by=who())
    show(app, app.limits(queue), as_json)
    return OK


@click.command(cls=Command, words="QUEUE", least=1, most=1)
@click.option("--limit", default=50, show_default=True, help="How many at most, up to 10000.")
@click.option("--cursor", help="Go on after an earlier page.")
@as_json
def lanes(
    app: Towline, words: tuple[str, ...], limit: int, cursor: str | None, as_json: bool
) -> None:
    """List the lanes of a queue: what waits and runs in each, which are full or rest."""
    page = app.lanes(words[0], limit=limit, cursor=cursor)
    if as_json:
        output.print_json({"lanes": views.lanes_data(page), "cursor": page.cursor})
        return
    if not page:
        output.say(f"no lanes in queue {words[0]}", "dim")
        return
    now = app.now()
    output.table(
        [
            (
                lane.lane,
                lane.state + (f", {output.distance(lane.opens_at, now)}" if lane.opens_at else ""),
                f"{lane.waiting}{'+' * (lane.waiting >= 1000)}",
                used(lane.running, lane.concurrency),
                used(lane.began, lane.rate) if lane.rate else "",
                output.distance(lane.served_at, now),
            )
            for lane in page
        ],
        *("lane", "state", "waiting", "running", "began", "last served"),
        right=("waiting", "running", "began"),
        elastic=("lane",),
    )
    if page.cursor is not None:
        output.say(f"\nthere may be more: --cursor {page.cursor}", "dim")


def show(app: Towline, found: list[Limit], as_json: bool) -> None:
    if as_json:
        output.print_json({"limits": views.limits_data(found)})
        return
    if not found:
        output.say("no limits", "dim")
        return
    now = app.now()
    output.table(
        [
            (
                each.queue,
                {None: "", "*": "each"}.get(each.lane, each.lane),
                used(each.running, each.concurrency) if each.concurrency is not None else "",
                rate_text(each),
                note_of(each),
                output.distance(each.changed_at, now),
            )
            for each in found
        ],
        *("queue", "lane", "running", "rate", "", "changed"),
        right=("running",),
        elastic=("queue", "lane", ""),
    )


def used(number: int | None, most: int | None) -> str:
    shown = "·" if number is None else str(number)
    return shown if most is None else f"{shown} of {most}"


def rate_text(limit: Limit) -> str:
    if limit.rate is None or limit.per is None:
        return ""
    text = f"{limit.rate} in {length(timedelta(seconds=limit.per))}"
    return f"{limit.began} of {text}" if limit.lane is None else text


def note_of(limit: Limit) -> str:
    words = ["declared" * limit.declared, "edited" * limit.edited]
    words.append(f"by {limit.changed_by}" if limit.changed_by else "")
    return " · ".join(word for word in words if word)
