"""What the column `trace` holds: a W3C traceparent, or an object with one and what travels with it.

Text that is neither counts as absent: another release, or a hand, may have written it.
"""

from __future__ import annotations

import re
from typing import Any

from msgspec import DecodeError, json

from .stored import Stored

TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
MOST_TEXT = 8192  # characters that are looked at: tracestate and baggage have few


def carrier_of(text: str | None) -> dict[str, str]:
    """The W3C headers in it; none when it cannot be read."""
    if text is None:
        return {}
    if not text.startswith("{"):
        return {"traceparent": text} if TRACEPARENT.fullmatch(text) else {}
    try:
        carrier = json.decode(text, type=dict[str, str]) if len(text) <= MOST_TEXT else {}
    except (DecodeError, RecursionError):
        return {}
    return carrier if TRACEPARENT.fullmatch(carrier.get("traceparent", "")) else {}


class Traceparent(Stored[str | None]):
    """The traceparent alone, as `trace=` takes it."""

    def __get__(self, shown: Any, owner: type) -> str | None:
        text: Any = super().__get__(shown, owner)
        return text if shown is None else carrier_of(text).get("traceparent")
