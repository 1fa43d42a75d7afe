"""reference/events.md: every event and its fields."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.docs.reference import shown
from towline.events import kinds

HEAD = """# Events

What happened, told after the commit it tells of. Each event has `name` and `at`, in seconds since
1970. Arguments, outputs, keys and labels of jobs are never in one; `error_type` is the class of
an error, not its text.
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
            yield f"- `{field}`: `{type_}`{f'. {text}' if text else ''}"
        yield ""
