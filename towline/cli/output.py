"""What commands show to people: tables, times as distances, colours on a terminal only.

Text from the database is shown as it is, never as markup, its control characters escaped.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ..text import fit, plain
from ..times import distance as distance
from ..times import length

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PIPED_WIDTH = 1000  # programs that read lines want them whole
GAP = "  "
NARROWEST = 6

STYLES = {
    "blocked": "dim",
    "scheduled": "magenta",
    "pending": "yellow",
    "running": "cyan",
    "open": "cyan",
    "completed": "green",
    "continued": "green",
    "failed": "bold red",
    "timeout": "bold red",
    "lost": "red",
    "cancelled": "dim",
    "ok": "green",
    "note": "yellow",
    "problem": "bold red",
}


class NotWritten(Exception):
    """What was to be printed could not be."""

    def __init__(self, error: OSError) -> None:
        super().__init__(error.strerror or str(error))
        self.quiet = isinstance(error, BrokenPipeError)  # the reader has seen enough


def write(text: str) -> None:
    """Print; all that goes to stdout goes this way."""
    if sys.stdout is None:
        raise NotWritten(OSError("it is closed"))
    try:
        sys.stdout.write(fit(text, _encoding()))
    except OSError as error:
        raise NotWritten(error) from error


def flush() -> None:
    """See that what was printed has arrived."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError as error:
        raise NotWritten(error) from error


def console() -> Console:
    """Where people read: as wide as the terminal, without end in a pipe."""
    from rich.console import Console

    out = sys.stdout or io.StringIO()
    piped = not out.isatty() and "COLUMNS" not in os.environ
    return Console(file=out, highlight=False, markup=False, width=PIPED_WIDTH if piped else None)


def show(renderable: RenderableType, *, wrap: bool = True) -> None:
    """Print, without the blanks that fill a table up to its width."""
    out = console()
    with out.capture() as captured:
        out.print(renderable, soft_wrap=not wrap)
    write("".join(f"{line.rstrip()}\n" for line in captured.get().split("\n")[:-1]))


def print_json(value: object) -> None:
    """One JSON document, of ASCII: no character of it can do anything to a terminal."""
    write(json.dumps(exact(value), indent=2, default=str, allow_nan=False) + "\n")


def print_json_line(value: object) -> None:
    """The same on one line, where documents follow one another."""
    write(json.dumps(exact(value), default=str, allow_nan=False) + "\n")


def answer(data: object, text: str, as_json: bool) -> None:
    """What came of a command: data for programs, or a line for people."""
    if as_json:
        print_json(data)
    else:
        say(text)


def exact(value: Any) -> Any:
    """A value without numbers that JSON does not have; they become text."""
    if isinstance(value, dict):
        return {key: exact(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [exact(inner) for inner in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def table(
    rows: Iterable[Sequence[object]],
    *headers: str,
    right: Collection[str] = (),
    elastic: Collection[str] = (),
) -> None:
    """Rows under headers. On a narrow terminal the elastic columns give way, the widest first."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    cells = [[shown_text("" if c is None else c, lines=False) for c in row] for row in rows]
    widths = [max(map(cell_len, column), default=0) for column in zip(headers, *cells, strict=True)]
    shrinking = [n for n, header in enumerate(headers) if header in elastic]
    over = sum(widths) + len(GAP) * (len(widths) - 1) - console().width
    while over > 0 and shrinking:
        widest = max(shrinking, key=lambda n: widths[n])
        if widths[widest] <= NARROWEST:
            break
        widths[widest] -= 1
        over -= 1
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, len(GAP), 0, 0))
    for header, width in zip(headers, widths, strict=True):
        side: Literal["left", "right"] = "right" if header in right else "left"
        shown.add_column(
            header,
            justify=side,
            no_wrap=True,
            overflow="ellipsis",
            min_width=width,
            max_width=width,
        )
    for row in cells:
        shown.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    show(shown)


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one below the other; those without a value are left out."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    shown.add_column(style="bold", no_wrap=True)
    shown.add_column(overflow="fold")
    for name, value in pairs:
        if value is not None and value != "":
            text = shown_text(value)
            shown.add_row(name, Text(text, style=STYLES.get(text, "")))
    show(shown)


def title(text: str) -> None:
    from rich.text import Text

    show(Text(f"\n{text}", style="bold underline"))


def say(text: str, style: str = "") -> None:
    """A line, or several."""
    from rich.text import Text

    show(Text(shown_text(text), style=style), wrap=False)


def shown_text(value: object, *, lines: bool = True) -> str:
    """A value as the output can show it, before widths are measured."""
    text = plain(str(value), lines=lines)
    return fit(text, _encoding()) if sys.stdout is not None else text


def _encoding() -> str | None:
    """What can be said on stdout. While a bar is shown there is something of rich's before it."""
    encoding: str | None = getattr(sys.stdout, "rich_proxied_file", sys.stdout).encoding
    return encoding


def both(when: datetime | None, now: datetime) -> str | None:
    """The time itself, and how far away it is."""
    if when is None:
        return None
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}  ({distance(when, now)})"


def took(start: datetime | None, end: datetime | None) -> str:
    return "" if start is None or end is None else length(end - start)
