"""What commands show to people: tables, times as distances, colours on a terminal only.

Text from the database is shown as it is, never as markup, and without control characters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 160

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
    """Where people read: as wide as the terminal, wide when it goes into a pipe."""
    from rich.console import Console

    piped = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(highlight=False, markup=False, width=PIPED_WIDTH if piped else None)


def print_json(value: object) -> None:
    """One JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=2))


def table(rows: Iterable[Sequence[object]], *headers: str, right: Sequence[str] = ()) -> None:
    """Rows under headers. The last column takes what is left of the line."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for header in headers:
        last = header == headers[-1]
        shown.add_column(
            header,
            justify="right" if header in right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if last else None,
            min_width=None if last else min(len(header), 8),
        )
    for row in rows:
        cells = [plain("" if cell is None else str(cell)) for cell in row]
        shown.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in cells))
    console().print(shown)


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
    console().print(shown)


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
        return f"in {length(when - now)}"
    return f"{length(now - when)} ago"


def both(when: datetime | None, now: datetime) -> str | None:
    """The time itself, and how far away it is."""
    if when is None:
        return None
    return f"{when.astimezone():%Y-%m-%d %H:%M:%S}  ({distance(when, now)})"


def length(span: timedelta) -> str:
    """A duration in its two largest units that matter."""
    seconds = span.total_seconds()
    if seconds < 10:
        return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"
    left = round(seconds)
    parts = []
    for size, unit in _UNITS:
        number, left = divmod(left, size)
        if number or parts:
            parts.append(f"{number} {unit}" if number else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def took(start: datetime | None, end: datetime | None) -> str:
    return "" if start is None or end is None else length(end - start)


def compact(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)
