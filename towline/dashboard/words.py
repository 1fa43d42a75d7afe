"""Values as people read them: the filters of the templates. Stored text goes through `shown`."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from ..brief import brief
from ..text import gist, plain
from ..times import distance, length

SHORT = 60  # characters of a value in one line
LONG = 20_000  # characters of a value that a page shows


def shown(value: object) -> str:
    """Text as it is, with what would move or turn other text escaped; nothing for None."""
    return "" if value is None else plain(str(value))


def line(value: object) -> str:
    """The same in one line."""
    return "" if value is None else plain(str(value), lines=False)


def kind(error_type: str | None) -> str | None:
    """The kind of an error; Python's own without where they are from."""
    return error_type and error_type.removeprefix("builtins.")


def pretty(value: Any) -> str:
    """A stored value: in one line if it is short, else indented."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    if len(text) > SHORT:
        text = json.dumps(value, indent=2, ensure_ascii=False, default=str)
    text = plain(text)
    return text if len(text) <= LONG else f"{text[:LONG]}\n… {len(text) - LONG} characters more"


def number(value: int | float | None) -> str:
    return "–" if value is None else f"{value:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def seconds(value: float | None) -> str:
    return "–" if value is None else length(timedelta(seconds=value))


def percent(share: float | None) -> str:
    """A share as people say it; small ones are not nothing."""
    if share is None:
        return "–"
    if 0 < share < 0.001:
        return "< 0.1 %"
    return f"{100 * share:.{0 if share in (0, 1) else 1}f} %"


def fifths(share: float) -> int:
    """Which fifth of the whole a share is in, from 1 to 5."""
    return max(1, math.ceil(5 * share))


def ago(value: str | None) -> str:
    """How long ago, or in how long, by this machine's clock: the page says when exactly."""
    return distance(datetime.fromisoformat(value), datetime.now(UTC)) if value else "–"


def moment(value: str | None) -> str:
    """A time to the second."""
    return "–" if value is None else f"{datetime.fromisoformat(value):%Y-%m-%d %H:%M:%S} UTC"


def minute(value: str) -> str:
    """A time as a link has it, to the minute."""
    return f"{datetime.fromisoformat(value):%Y-%m-%dT%H:%MZ}"


def between(start: str | None, end: str | None) -> str:
    if start is None:
        return "–"
    until = datetime.now(UTC) if end is None else datetime.fromisoformat(end)
    return length(max(until - datetime.fromisoformat(start), timedelta(0)))


def note(job: Mapping[str, Any]) -> str:
    """What is worth knowing about a job where many are listed."""
    return line(brief(job, datetime.now(UTC)))


FILTERS: dict[str, Callable[..., Any]] = {
    "shown": shown,
    "line": line,
    "gist": gist,
    "kind": kind,
    "pretty": pretty,
    "number": number,
    "seconds": seconds,
    "percent": percent,
    "fifths": fifths,
    "ago": ago,
    "moment": moment,
    "minute": minute,
    "until": between,
    "note": note,
}
