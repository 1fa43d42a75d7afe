"""reference/api.md: every public name, and what methods give."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pkgutil import iter_modules

import towline
import towline.testing
from tests.docs.reference import shown
from tests.shape.source import PACKAGE

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
        ("task.context", "INJECTED"),
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
    "The dashboard": [
        ("dashboard", "asgi"), ("dashboard", "Viewer"), ("dashboard", "Permission"),
        ("dashboard", "ALL"), ("dashboard", "TOKEN_VARIABLE"),
    ],
    "Agents": [
        ("agent", "server"), ("agent", "asgi"), ("agent", "Viewer"), ("agent", "Allow"),
        ("agent", "Show"),
    ],
    "Logs, metrics, spans": [
        ("logs", "InAttempt"), ("logs", "FIELDS"), ("prometheus", "Metrics"),
        ("otel", "instrument"), ("otel", "uninstrument"), ("otel", "FollowLinks"),
        ("integrations.opentelemetry", "TowlineInstrumentor"),
    ],
    "Frameworks and services": [
        ("integrations.asgi", "lifespan"), ("integrations.flask", "init_app"),
        ("integrations.flask", "towline_of"), ("integrations.django", "Backend"),
        ("integrations.django", "task"), ("integrations.django", "app"),
        ("integrations.alembic", "upgrade"), ("integrations.alembic", "not_ours"),
        ("integrations.structlog", "bind"), ("integrations.sentry", "report"),
    ],
    "Tests": [("testing", name) for name in towline.testing.__all__],
}  # fmt: skip
# What is neither a class nor a function of its own.
SAID = {
    ("task.context", "INJECTED"): "The default of a parameter that a worker fills in: a `Context`, "
    "or the output of the blocker of the parameter's name.",
    ("dashboard", "Permission"): f"A word: {shown.literals('access', 'Permission')}.",
    ("dashboard", "ALL"): "Every permission.",
    ("dashboard", "TOKEN_VARIABLE"): "The name of the variable of the environment that a token is "
    f"read from: `{shown.value('dashboard', 'TOKEN_VARIABLE')}`.",
    ("agent", "Viewer"): "That of the dashboard.",
    ("agent", "Allow"): f"A word: {shown.literals('agent.rules', 'Allow')}.",
    ("agent", "Show"): f"A word: {shown.literals('agent.rules', 'Show')}.",
    ("logs", "FIELDS"): "The names of the [log fields](log-fields.md).",
    ("integrations.django", "app"): "The `Towline` of the project: of the alias `default` of "
    "TASKS, or of the only one that is ours.",
}
# Doors beside `towline` itself: modules whose public names have a place here.
DOORS = [
    "agent", "dashboard", "logs", "otel", "prometheus", "testing",
    *(f"integrations.{found.name}" for found in iter_modules([str(PACKAGE / "integrations")])),
]  # fmt: skip
# Public names of doors that are for the package's own use.
OURS_ALONE = {
    ("integrations.flask", "InContext"), ("integrations.structlog", "attempt_bound"),
    ("integrations.sentry", "Reporter"),
}  # fmt: skip
# Classes whose methods somebody else's library calls.
FOR_OTHERS = {"Backend", "FollowLinks", "InAttempt", "TowlineInstrumentor"}
MADE_BY_USERS = {"Retry", "Snooze", "Cancel", "Fail", "Clock", "Metrics", "FollowLinks"}
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


def names() -> set[tuple[str, str]]:
    """What stands on the page, by its door; errors have a page of their own."""
    return {each for part in PARTS.values() for each in part}


def _parts() -> Iterator[str]:
    for title, members in PARTS.items():
        yield f"## {title}\n"
        for module, name in members:
            yield from _entry(module, name)
    yield "### Fixtures of pytest\n"
    yield "They come with the package; [settings](settings.md#pytest) say which app and where.\n"
    yield from _fixtures()


def _entry(module: str, name: str) -> Iterator[str]:
    yield f"### {name}\n"
    if name not in towline.__all__:
        yield f"`towline.{module}`\n"
    if (module, name) in SAID:
        yield f"{SAID[module, name]}\n"
        return
    module = shown.home(module, name)
    node = shown.definition(module, name)
    if not isinstance(node, ast.ClassDef):
        yield f"**`{shown.signature(node)}`**\n"
        yield f"{shown.said(node)}\n"
    else:
        yield f"{shown.said(node)}\n"
        yield from _app() if name == "Towline" else _class(module, node)


def _app() -> Iterator[str]:
    for title, where, which in OF_THE_APP:
        yield f"#### {title}\n"
        inner = shown.definition(where, which)
        assert isinstance(inner, ast.ClassDef)
        yield from _methods(inner)


def _class(module: str, node: ast.ClassDef) -> Iterator[str]:
    made = shown.constructor(node)
    if made and node.name in MADE_BY_USERS:
        yield f"**`{made}`**\n"
    if node.name in FOR_OTHERS:
        return
    yield from _fields(module, node)
    yield from _methods(node)
    if "ConfiguredTask" in _bases(node):
        inner = shown.definition("task", "ConfiguredTask")
        assert isinstance(inner, ast.ClassDef)
        yield from _methods(inner, but=[method.name for method, _ in shown.methods(node)])
    if "TaskJobsWhere" in _bases(node):
        yield "And the filters of `TaskJobsWhere`, which come next.\n"


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


def fixtures() -> dict[str, ast.FunctionDef]:
    """The fixtures that the plugin for pytest brings."""
    return {
        node.name: node
        for node in shown.source("pytest_plugin")[0].body
        if isinstance(node, ast.FunctionDef) and shown.is_decorated(node, "fixture")
    }


def _fixtures() -> Iterator[str]:
    for name, node in fixtures().items():
        kind = ast.unparse(node.returns) if node.returns else ""
        kind = re.sub(r"^Iterator\[(.+)\]$", r"\1", kind)
        yield f"- `{name}`: `{kind}`. {shown.said(node)}"
    yield ""
