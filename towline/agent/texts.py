"""Texts of the database, as an agent may have them: they may hold anything, also words that want to
be taken for orders. By default none is given; what is given stands in a field `untrusted`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .. import views
from ..app.handles import Job
from ..secret import HIDDEN
from ..text import plain

if TYPE_CHECKING:
    from ..app import Towline
    from .rules import Rules

MOST = 2048  # bytes of all texts of one answer
NAME = 200  # characters of a name
SHORTEST = 4  # characters of a secret that is looked for inside of other texts


def named(text: str) -> str:
    """A name, or a sentence of ours with names in it, on one line."""
    return plain(text, lines=False)[: 5 * NAME]


def untrusted(app: Towline, rules: Rules, job: Job[Any]) -> dict[str, str]:
    """The texts of a job that the rules show, its secrets hidden, together in the room there is."""
    found: dict[str, Any] = {}
    if "payloads" in rules.show:
        progress = job.progress
        found = {
            "arguments": views.shown_arguments(app, job),
            "output": views.shown_output(app, job),
            "label": job.label,
            "key": job.key,
            "lane": job.lane,
            "progress": None if progress is None else progress.text,
        }
    if "errors" in rules.show:
        found["error"] = job.error
    given = {name: _text(value) for name, value in found.items() if value is not None}
    secrets = _secrets(app, job)
    room = MOST // max(1, len(given))
    return {name: _cut(_masked(plain(text), secrets), room) for name, text in given.items()}


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


def _secrets(app: Towline, job: Job[Any]) -> Sequence[str]:
    """Values that are hidden, which an error may repeat; the longest first."""
    both = (
        (views.stored(job.arguments), views.shown_arguments(app, job)),
        (views.stored(views.output_of(job)), views.shown_output(app, job)),
    )
    found = {text for value, shown in both for text in _differing(value, shown)}
    return sorted((text for text in found if len(text) >= SHORTEST), key=len, reverse=True)


def _differing(value: Any, shown: Any) -> Iterator[str]:
    """The texts in a value that are not in what is shown of it."""
    if shown == HIDDEN and value != HIDDEN:
        yield from _leaves(value)
    elif isinstance(value, dict) and isinstance(shown, dict):
        for key, inner in value.items():
            yield from _differing(inner, shown.get(key))
    elif isinstance(value, list) and isinstance(shown, list):
        for inner, other in zip(value, shown, strict=False):
            yield from _differing(inner, other)


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif value is not None:
        yield str(value)


def _masked(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(plain(secret), HIDDEN)
    return text
