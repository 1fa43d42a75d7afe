"""What `towline bench` measured, for people as a table and for programs as a document; and the bar
that is seen meanwhile."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from ...app import Towline
from ...operation import Op, Steps
from ...version import VERSION
from .. import output
from .limits import Handlers, Limit, handlers_of, limits_of, span
from .measure import ROUNDS, SLOTS, THREADS, Bench, Figure, Proof, Step
from .tables import beside, tables

OVERHEAD = 1.15  # tables, threads and the worker's start take some time, too


class Report(Struct, frozen=True, kw_only=True):
    """Everything that was measured on one database."""

    facts: dict[str, Any]
    steps: list[Step]
    figures: dict[str, Figure]
    limits: dict[str, Limit]
    proof: Proof
    handlers: Handlers | None
    seconds: float


def take(app: Towline, seconds: float) -> Report:
    """Measure the database of an app in tables beside its own."""
    began = time.monotonic()
    own = beside(app)
    try:
        with tables(own):
            known, bench = facts(own), Bench(own)
            steps = list(bench.steps())
            figures = measure(steps, seconds)
            proof = bench.proof()
    finally:
        own.close()
    return Report(
        facts=known,
        steps=steps,
        figures=figures,
        limits=limits_of(figures, is_file=bench.is_file, durable=bench.durable),
        proof=proof,
        handlers=handlers_of(app, app.now()),
        seconds=time.monotonic() - began,
    )


def measure(steps: Sequence[Step], seconds: float) -> dict[str, Figure]:
    """Take the steps in rounds, so that each figure and its limit meet the same machine."""
    figures: dict[str, Figure] = {}
    done = 0.0
    with progress(seconds) as went:
        for turn in range(ROUNDS):
            for step in (step for step in steps if turn < step.rounds):
                went(step.what, done)
                share = step.share / step.rounds
                figure = step.measure(share * seconds / OVERHEAD)
                figures[step.name] = figures[step.name] + figure if turn else figure
                done += share
    return figures


def facts(app: Towline) -> dict[str, Any]:
    """The machine and the database."""

    def steps() -> Steps[str]:
        ((version,),) = yield app.runner.store.sql.engine_version()
        return str(version)

    engine = app.runner.engine
    return {
        "towline": VERSION,
        "engine": engine.name,
        "version": engine.run(Op("version", steps, reads=True)),
        "database": engine.place,
        "durable": app.settings.engine.durable,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "threads": THREADS,
        "slots": SLOTS,
    }


def document(report: Report) -> dict[str, Any]:
    """For programs: numbers as they were measured, times in seconds."""
    limits = report.limits
    return {
        "ok": report.proof.holds,
        "seconds": report.seconds,
        "facts": report.facts,
        "figures": {
            step.name: {
                "what": step.what,
                **asdict(figure := report.figures[step.name]),
                "rate": figure.rate,
                "each": figure.each,
                "cpu_each": figure.cpu_each,
                "limit": asdict(limits[step.name]) if step.name in limits else None,
            }
            for step in report.steps
        },
        "handlers": asdict(report.handlers) if report.handlers else None,
        "proof": asdict(report.proof),
    }


# ---- for people


def show(report: Report) -> None:
    """The table, what is proven, and what the application's own handlers have to do with it."""
    known = report.facts
    name = "SQLite" if known["engine"] == "sqlite" else "PostgreSQL"
    durable = "durable" if known["durable"] else "durable=False"
    output.say(f"{name} {known['version']} · {known['database']} · {durable}", "bold")
    cpus = f"{known['cpus']} CPU{'s' * (known['cpus'] != 1)}"
    output.say(f"Towline {VERSION} · Python {known['python']} · {cpus}\n", "dim")
    show_table(report)
    show_proof(report)
    show_handlers(report)


def show_table(report: Report) -> None:
    """A row for each figure; below them what the machine can do at best."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    shown.add_column("what", no_wrap=True)
    shown.add_column("rate", justify="right", no_wrap=True, style="cyan")
    shown.add_column("per op", justify="right", no_wrap=True)
    shown.add_column("limited by", overflow="fold")
    limits = report.limits
    for step in sorted(report.steps, key=lambda step: step.name not in limits):
        figure, limit = report.figures[step.name], limits.get(step.name)
        if step.name == "start":
            assert figure.p99 is not None
            rate, each = f"p50 {span(figure.each)}", f"p99 {span(figure.p99)}"
        else:
            rate, each = f"{number(figure.rate)}/s", span(figure.each)
        text = limit.text if limit else "the machine by itself"
        cells = [output.shown_text(cell) for cell in (step.what, rate, each, text)]
        last = Text(cells.pop(), style="" if limit else "dim")
        shown.add_row(*map(Text, cells), last)
    output.show(shown)


def show_proof(report: Report) -> None:
    proof = report.proof
    if proof.holds:
        text = f"✓ each of {proof.ran:,} jobs ran exactly once, all {proof.enqueued:,} are stored"
        output.say(f"\n{text}", "green")
        return
    text = (
        f"✗ this does not add up: {proof.enqueued:,} enqueued and {proof.stored:,} stored; "
        f"{proof.handed:,} to run, {proof.ran:,} calls, {proof.attempts:,} attempts, "
        f"{proof.completed:,} completed"
    )
    output.say(f"\n{text}", "bold red")


def show_handlers(report: Report) -> None:
    """From when on it is not Towline that limits a worker."""
    longest = SLOTS / report.figures["drain"].rate
    text = f"A worker of {SLOTS} slots is limited by handlers that take more than {span(longest)}."
    if mine := report.handlers:
        text += (
            f"\nYours took {span(mine.mean)} on average in the last day ({mine.count:,} runs): "
            f"{number(mine.rate)}/s at most."
        )
    output.say(text)


def number(rate: float) -> str:
    """A rate with as many digits as mean something."""
    return f"{rate / 1e6:.1f} M" if rate >= 1e6 else f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"


@contextmanager
def progress(seconds: float) -> Iterator[Callable[[str, float], None]]:
    """A bar on stderr, where that is a terminal; called with what comes next and the share done."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda what, done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.fields[text]}"))
    console = Console(stderr=True, markup=False, highlight=False)
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as bar:
        task = bar.add_task("", total=1.0, text="")

        def went(what: str, done: float) -> None:
            left = f"about {seconds * (1 - done):.0f} s left"
            bar.update(task, completed=done, text=f"{what} · {left}", refresh=True)

        yield went
