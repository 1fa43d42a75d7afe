"""reference/api.md: every public name, and what methods give."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

import towline
import towline.testing
from tests.docs.reference import shown

HEAD = """# Python API

`from towline import …` offers the names of this page that have no module beside them; what else
is named here is what they give, or lives in the module that is said. A method whose name has an
awaiting twin is otherwise the same: `app.cancel(17)`, `await app.acancel(17)`. What `**where`
takes is in [filters](#filters). `on=` is your own connection or session ([your
transaction](../guides/with/transactions.md)), `by=` is who is written into the audit. Settings
with their defaults are in [settings](settings.md).
"""

# Title of a part; its classes and functions with their module; whether `towline` itself has them.
PARTS: dict[str, list[tuple[str, str]]] = {
    "The app": [("app", "Towline")],
    "Tasks and calls": [
        ("task", "Task"), ("task.tasks", "Tasks"), ("task", "Call"), ("task", "Next"),
        ("app.named", "NamedTask"),
    ],
    "In a handler": [
        ("task.context", "Context"), ("task.context", "Blockers"), ("task.context", "Failure"),
        ("task.context", "Previous"), ("task.context", "Token"), ("task.context", "context"),
        ("task.retry", "Retry"), ("task.retry", "Snooze"), ("task.retry", "Cancel"),
        ("task.retry", "Fail"), ("task.retry", "Backoff"), ("task.retry", "Defaults"),
        ("worker.transaction", "JobTransaction"),
    ],
    "What is stored": [
        ("app.handles", "Job"), ("app.handles", "Chain"), ("app.group", "Group"),
        ("app.answers", "Page"), ("app.answers", "Progress"), ("app.answers", "AttemptInfo"),
        ("app.answers", "WorkerInfo"), ("app.answers", "AuditLine"),
        ("model", "State"), ("model", "ChainState"), ("model", "Outcome"), ("secret", "Secret"),
    ],
    "Filters": [
        ("app.filters", "JobsWhere"), ("app.filters", "TaskJobsWhere"),
        ("app.filters", "ChainsWhere"), ("app.filters", "StatsWhere"),
    ],
    "Schedules and limits": [
        ("cron", "Cron"), ("app.schedules", "Schedule"), ("app.limits", "Limit"),
        ("app.limits", "Lane"),
    ],
    "The worker": [("worker", "Worker")],
    "The dashboard": [("dashboard", "asgi"), ("dashboard", "Viewer")],
    "Tests": [("testing", name) for name in towline.testing.__all__],
}  # fmt: skip
# Where the methods of an app are written, in the order of a reader's need.
OF_THE_APP = [
    ("Enqueue, work, schema", "app", "Towline"),
    ("Groups", "app.groups", "Groups"),
    ("Read", "app.reading", "Reading"),
    ("Wait", "app.waits", "Waits"),
    ("Act on jobs and queues", "app.management", "Management"),
    ("Change and run again", "app.changes", "Changes"),
    ("Schedules", "app.schedules", "Schedules"),
    ("Limits", "app.limits", "Limits"),
    ("Declare tasks", "task.tasks", "Tasks"),
]
# For the package's own use, although they have no underscore.
INNER = {
    "known_tasks", "decode_output", "declared_schedules", "refuse_declared_twice", "declarations",
    "new_job", "check_unbound", "bind", "of", "record", "signature", "slots", "serves", "target",
}  # fmt: skip
ERRORS = "errors"


def page() -> str:
    return "\n".join([HEAD, *_parts()])


def names() -> set[str]:
    """The names that stand on the page; errors have a page of their own."""
    return {name for part in PARTS.values() for _, name in part} | {"INJECTED"}


def _parts() -> Iterator[str]:
    for title, members in PARTS.items():
        yield f"## {title}\n"
        for module, name in members:
            yield from _entry(module, name)


def _entry(module: str, name: str) -> Iterator[str]:
    node = shown.definition(shown.home(module, name), name)
    home = "towline" if name in towline.__all__ else f"towline.{module}"
    module = shown.home(module, name)
    yield f"### {name}\n"
    if home != "towline":
        yield f"`{home}`\n"
    if not isinstance(node, ast.ClassDef):
        yield f"**`{shown.signature(node)}`**\n"
        yield f"{shown.said(node)}\n"
    elif name == "Towline":
        yield f"{shown.said(node)}\n"
        for title, where, which in OF_THE_APP:
            yield f"#### {title}\n"
            inner = shown.definition(where, which)
            assert isinstance(inner, ast.ClassDef)
            yield from _methods(inner)
    else:
        yield f"{shown.said(node)}\n"
        made = shown.constructor(node)
        if made and _is_made_by_users(name):
            yield f"**`{made}`**\n"
        yield from _fields(module, node)
        yield from _methods(node)
        if "ConfiguredTask" in _bases(node):
            inner = shown.definition("task", "ConfiguredTask")
            assert isinstance(inner, ast.ClassDef)
            yield from _methods(inner, but=[method.name for method, _ in shown.methods(node)])
        if "TaskJobsWhere" in _bases(node):
            yield "And the filters of `TaskJobsWhere`, which come next.\n"
    if name == "context":
        yield "### INJECTED\n"
        yield (
            "The default of a parameter that a worker fills in: a `Context`, or the output of the "
            "blocker of the parameter's name.\n"
        )


def _is_made_by_users(name: str) -> bool:
    return name in {"Retry", "Snooze", "Cancel", "Fail", "Clock"}


def _bases(node: ast.ClassDef) -> list[str]:
    return [ast.unparse(base).partition("[")[0] for base in node.bases]


def _fields(module: str, node: ast.ClassDef) -> Iterator[str]:
    found = [each for each in shown.fields(module, node) if each[0] not in INNER]
    if found:
        for name, kind, text in found:
            yield f"- `{name}`: `{kind}`{f'. {text}' if text else ''}"
        yield ""


def _methods(node: ast.ClassDef, but: Collection[str] = ()) -> Iterator[str]:
    for method, twin in shown.methods(node):
        if method.name in INNER or method.name in but:
            continue
        awaits = isinstance(method, ast.AsyncFunctionDef)
        yield f"**`{'await ' if awaits else ''}{shown.signature(method)}`**" + (
            f" · awaiting: `{twin}`\n" if twin else "\n"
        )
        if text := shown.said(method):
            yield f"{text}\n"
