"""reference/events.md: every event and its fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.docs.reference import shown
from towline.events import kinds

HEAD = """# Events

What happened, told after the commit it tells of; [how to hear of it](../guides/see/events.md). Each
event has `name` and `at`, in seconds since 1970; other times are seconds, too. Arguments, outputs,
keys and labels of jobs are never in one; `error_type` is the class of an error, not its text. What
is marked *label* has few values and may be a label of a metric; what is marked *log* is for
Towline's own log, and None for a function of yours.
"""


def page() -> str:
    return "\n".join([HEAD, *_entries()])


def _entries() -> Iterator[str]:
    for name, kind in kinds.EVENTS.items():
        node = shown.definition("events.kinds", kind.__name__)
        assert isinstance(node, ast.ClassDef)
        yield f"## {name}\n"
        yield f"{shown.said(node)}\n"
        for field, type_, text in shown.fields("events.kinds", node):
            mark = " · label" if field in kind.labels else " · log" * (field in kind.private)
            yield f"- `{field}`: `{type_}`{mark}{f'. {text}' if text else ''}"
        yield ""
