"""What a person sees of the demo; machines get the same as one JSON document at the end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from towline.text import fit, plain

WIDEST = 100


class Screen:
    """Writes lines under headings; quiet when the output is for machines."""

    def __init__(self, *, quiet: bool) -> None:
        self.console = Console(quiet=quiet, highlight=False, soft_wrap=False)
        self.console.width = min(self.console.width, WIDEST)
        self._ascii = self.console.options.ascii_only
        self._act = 0

    def title(self, text: str, detail: str) -> None:
        self.console.print(f"[bold]{escape(text)}[/] [dim]{escape(detail)}[/]")

    def act(self, text: str) -> None:
        self._act += 1
        self.console.print(f"\n[bold cyan]{self._act}[/]  [bold]{escape(text)}[/]")

    def line(self, text: str, *, mark: str = "") -> None:
        """One thing that happened; a mark says how: good, bad, or neither."""
        signs = {"good": ("[green]✓[/]", "ok"), "bad": ("[red]✗[/]", "!!"), "": (" ", "")}
        sign = signs[mark][self._ascii]
        body = escape(fit(plain(text), self.console.encoding))
        self.console.print(f"   {sign or ' '} {body}")

    def summary(self, figures: str, verdict: str, ok: bool) -> None:
        color = "green" if ok else "red"
        self.console.print(f"\n[bold]{escape(fit(figures, self.console.encoding))}[/]")
        self.console.print(f"[bold {color}]{escape(verdict)}[/]")

    @contextmanager
    def progress(self) -> Iterator[Rate]:
        """A live rate; where nothing can be overwritten, a line every second."""
        if self.console.quiet or not self.console.is_terminal:
            yield Rate(self, None)
            return
        with Progress(
            TextColumn("   "),
            SpinnerColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[text]}"),
            console=self.console,
            transient=True,
        ) as bar:
            yield Rate(self, bar)


class Rate:
    """How many jobs are done, and how many per second of late."""

    def __init__(self, screen: Screen, bar: Progress | None) -> None:
        self._screen = screen
        self._bar = bar
        self._task = None if bar is None else bar.add_task("", total=None, text="")
        self._seen = [(time.monotonic(), 0)]
        self._said_at = time.monotonic()

    def show(self, done: int, asked: int) -> None:
        now = time.monotonic()
        self._seen = [(at, number) for at, number in self._seen if at > now - 1] or self._seen[-1:]
        self._seen.append((now, done))
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        rate = (after - before) / max(last - first, 1e-6)
        text = f"{done:,} of {asked:,} jobs  {rate:,.0f}/s"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, completed=done, total=max(asked, 1), text=text)
        elif now >= self._said_at + 1:
            self._said_at = now
            self._screen.line(text)
