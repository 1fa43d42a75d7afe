"""Values as people read them: the filters of the templates. Stored text goes through `shown`."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from ..text import plain
from ..times import length

LONG = 20_000  # characters of a value that a page shows


def shown(value: object) -> str:
    """Text as it is, with what would move or turn other text escaped; nothing for None."""
    return "" if value is None else plain(str(value))


def line(value: object) -> str:
    """The same in one line."""
    return "" if value is None else plain(str(value), lines=False)


def pretty(value: Any) -> str:
    """A stored value, indented."""
    text = plain(json.dumps(value, indent=2, ensure_ascii=False, default=str))
    return text if len(text) <= LONG else f"{text[:LONG]}\n… {len(text) - LONG} characters more"


def number(value: int | float | None) -> str:
    return "–" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def seconds(value: float | None) -> str:
    return "–" if value is None else length(timedelta(seconds=value), 1)


def ago(value: str | None) -> str:
    """How long ago, or in how long, by this machine's clock: the page says when exactly."""
    if value is None:
        return "–"
    span = datetime.now(UTC) - datetime.fromisoformat(value)
    if span < timedelta(0):
        return f"in {length(-span, 1)}"
    return f"{length(span, 1)} ago"


def moment(value: str | None) -> str:
    """A time to the second."""
    return "–" if value is None else f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M:%S} UTC"


def between(start: str | None, end: str | None) -> str:
    if start is None:
        return "–"
    until = datetime.now(UTC) if end is None else datetime.fromisoformat(end)
    return length(max(until - datetime.fromisoformat(start), timedelta(0)), 1)


FILTERS: dict[str, Callable[..., Any]] = {
    "shown": shown,
    "line": line,
    "pretty": pretty,
    "number": number,
    "seconds": seconds,
    "ago": ago,
    "moment": moment,
    "until": between,
}
