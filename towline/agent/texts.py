"""Texts of the database, as an agent may have them: they may hold anything, also words that want to
be taken for orders. By default none is given; what is given stands in a field `untrusted`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ..app.handles import Job
from ..app.shown import Mask, shown_arguments, shown_output
from ..text import plain

if TYPE_CHECKING:
    from ..app import Towline
    from .rules import Rules

MOST = 2048  # bytes of all texts of one answer
NAME = 200  # characters of a name


def named(text: str) -> str:
    """A name, or a sentence of ours with names in it, on one line."""
    return plain(text, lines=False)[: 5 * NAME]


def untrusted(app: Towline, rules: Rules, job: Job[Any]) -> dict[str, str]:
    """The texts of a job that the rules show, its secrets hidden, together in the room there is."""
    found: dict[str, Any] = {}
    if "payloads" in rules.show:
        progress = job.progress
        found = {
            "arguments": shown_arguments(app, job),
            "output": shown_output(app, job),
            "label": job.label,
            "key": job.key,
            "lane": job.lane,
            "progress": None if progress is None else progress.text,
        }
    if "errors" in rules.show:
        found["error"] = job.error
    given = {name: _text(value) for name, value in found.items() if value is not None}
    mask = Mask(job)
    room = MOST // max(1, len(given))
    return {name: _cut(plain(mask(text)), room) for name, text in given.items()}


def without_lane(text: str, job: Job[Any]) -> str:
    """A sentence of ours that does not name the job's lane: that is one of its arguments."""
    return text if job.lane is None else text.replace(f"lane {job.lane} of", "its lane of")


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, room: int) -> str:
    """The beginning that fits, as JSON on the wire has it."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= room:
        return raw.decode()
    return raw[: room - len("…".encode())].decode("utf-8", "ignore") + "…"
