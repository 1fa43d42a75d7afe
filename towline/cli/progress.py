"""A bar for work that takes long: on stderr, at a terminal; elsewhere nothing is shown."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..app import Towline
from ..events.kinds import ChainPruned, JobControlled
from ..text import plain

if TYPE_CHECKING:
    from rich.progress import Progress


def is_shown() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class Bar:
    """How far something is: of a total with its rate and the time left, or how much so far."""

    def __init__(self, what: str, total: float | None = None, *, counts: bool = True) -> None:
        self._what = what
        self._total = total
        self._counts = counts
        self._done = 0.0
        self._progress: Progress | None = None

    def __enter__(self) -> Bar:
        if is_shown():
            self._progress = _progress(self._counts)
            self._progress.start()
            self._task = self._progress.add_task(self._what, total=self._total)
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def move(self, number: float) -> None:
        """So much more is done."""
        self.show(self._done + number)

    def show(self, done: float | None, text: str | None = None) -> None:
        """So much is done in all; None when that is not known."""
        if self._progress is None:
            return
        self._done = done or 0.0
        total = None if done is None else self._total
        what = plain(f"{self._what} {text}", lines=False) if text else self._what
        self._progress.update(self._task, completed=self._done, total=total, description=what)


@contextmanager
def following(app: Towline, what: str, total: Callable[[], int] | None = None) -> Iterator[None]:
    """A bar that moves with what the app says it has done. The total is only asked for, which may
    take a moment itself, where somebody sees it."""
    if not is_shown():
        yield
        return
    with Bar(what, None if total is None else total()) as bar:
        names = (JobControlled.name, ChainPruned.name)
        app.runner.events.subscribe(lambda event: bar.move(event.count), names)
        yield


def _progress(counts: bool) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        Task,
        TaskProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """How many a second."""

        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f}/s" if task.speed else "", style="dim")

    numbers: list[ProgressColumn] = [MofNCompleteColumn(), Rate()] if counts else []
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *(numbers or [TaskProgressColumn("{task.percentage:>3.0f}%", markup=False)]),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,  # what came of it is said on stdout
        # Lines that are printed meanwhile go above the bar, where both are at the same terminal.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        redirect_stderr=False,
    )
