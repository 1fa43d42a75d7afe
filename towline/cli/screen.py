"""What commands show to people: tables, times as distances, colours on a terminal only.

Text from the database is shown as it is, never as markup, and without control characters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

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

_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def console() -> Console:
    """Where people read: as wide as the terminal, without end in a pipe."""
    from rich.console import Console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, markup=False, width=PIPED_WIDTH if piped else None)


def show(renderable: RenderableType) -> None:
    """Print, without the blanks that fill a table up to its width."""
    out = console()
    with out.capture() as captured:
        out.print(renderable)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


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

    cells = [[plain("" if cell is None else str(cell)) for cell in row] for row in rows]
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
            text = plain(str(value))
            shown.add_row(name, Text(text, style=STYLES.get(text, "")))
    show(shown)


def title(text: str) -> None:
    from rich.text import Text

    out = console()
    out.print()
    out.print(Text(plain(text), style="bold underline"))


def say(text: str, style: str = "") -> None:
    """A line, or several."""
    from rich.text import Text

    console().print(Text(plain(text), style=style), soft_wrap=True)


def plain(text: str) -> str:
    """Without characters that move a cursor or change a terminal."""
    return "".join(
        char if char.isprintable() or char == "\n" else "    " if char == "\t" else "\ufffd"
        for char in text
    )


def last_line(text: str | None) -> str:
    """The line of an error that says what it is: the last, below its traceback."""
    lines = [line for line in (text or "").splitlines() if line.strip()]
    if not lines:
        return ""
    return (lines[-1] if lines[0].startswith("Traceback") else lines[0]).strip()


def distance(when: datetime | None, now: datetime) -> str:
    """A time as people say it: 3 s ago, in 5 min."""
    if when is None:
        return ""
    if when > now:
        return f"in {length(when - now, 1)}"
    return f"{length(now - when, 1)} ago"


def both(when: datetime | None, now: datetime) -> str | None:
    """The time itself, and how far away it is."""
    if when is None:
        return None
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}  ({distance(when, now)})"


def length(span: timedelta, units: int = 2) -> str:
    """A duration in the largest units that matter."""
    seconds = span.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts: list[str] = []
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == units:
            break
    return " ".join(part for part in parts if part)


def took(start: datetime | None, end: datetime | None) -> str:
    return "" if start is None or end is None else length(end - start)


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)
