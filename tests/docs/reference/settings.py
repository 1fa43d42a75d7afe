"""reference/settings.md: every setting and option. Types and defaults are the code's; the sentences
stand here, and one that is missing, or says something of nothing, is refused."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from unittest.mock import Mock

from tests.docs.reference import shown
from towline.pytest_plugin import pytest_addoption
from towline.telemetry.otel.context import MOST_BAGGAGE

HEAD = """# Settings and options

Seconds are a number or a `timedelta`. Everything is checked when it is said: `InvalidSetting`
names what makes no sense. Nothing is read from the environment but `TOWLINE_URL`, the default
URL, and what the command line reads.
"""

TOWLINE = {
    "url": "`sqlite:///relative.db`, `sqlite:////absolute/path.db`, "
    "`postgresql://user@host/database`; "
    "else `$TOWLINE_URL`, else `sqlite:///towline.db`. "
    "A relative file is fixed when the app is made",
    "prefix": "begins the name of every table: two apps share a database by it",
    "schema": "PostgreSQL: where the tables are",
    "lock_timeout": "how long an operation waits for another writer, a row or a connection",
    "migrate": "create or upgrade the tables on first use; False where the role must not",
    "durable": "one sync of the disk for each commit. False: a power cut may take the last "
    "commits, a kill never",
    "notify": "PostgreSQL: tell waiting workers of new jobs at once",
    "connections": "PostgreSQL: the most that this process opens for operations of its own",
    "pooler": "PostgreSQL: the URL leads to a pooler in transaction mode",
    "listen": "PostgreSQL: an address past the pooler, for the connection that hears of new jobs",
    "wake": "`redis://…` or `nats://…`: a server that carries hints of new work as well",
    "payload_limit": "bytes that arguments, or an output, may take as JSON",
    "keep_completed": "how long completed chains stay, with their history; None for ever",
    "keep_failed": "the same for failed ones",
    "keep_cancelled": "the same for cancelled ones",
    "secret_names": "names, or patterns, of arguments and fields that are shown as `***`",
    "defaults": "`Defaults(timeout, max_attempts, backoff)` of tasks that do not say their own",
    "clock": "for tests: gives the time in microseconds; SQLite only",
}
TASK = {
    "name": "what is stored in place of the function; its own name otherwise. Keep it when "
    "you rename the function",
    "queue": "where its jobs wait; `default`. A continuation keeps the queue of the job before"
    " it, unless its task says one",
    "priority": "the highest first, 0 otherwise; a continuation keeps it, too",
    "max_attempts": "failures after which a job has failed; 5, or what `Towline(defaults=…)` says. "
    "Lost workers do not count",
    "timeout": "seconds for one attempt",
    "backoff": "`Backoff(…)`, or a function that gives the seconds after so many failures",
    "run_in": '`"process"` for a killable process of its own',
    "cron": "a schedule named like the task: `Cron(…)` or its expression",
    "lane": "the parameter whose value names the lane of a job",
}
USING = {
    "delay": "from when on it may start, from now",
    "at": "the same as a moment, with a time zone",
    "expires": "not started after that: cancelled",
    "priority": "the highest first",
    "queue": "instead of the task's",
    "label": "a word for people and filters",
    "key": "what names the chains of a task that belong together: one open chain for each, "
    "by default",
    "scope": '`"any"`: ended chains, as long as they are kept, have the key, too',
    "window": 'with `scope="any"`: only chains created within it',
    "on_conflict": "what a call does when the key is taken",
    "after": "blockers: jobs, chains, calls or ids; a mapping gives them names",
    "on_blocker_failure": "when one of them fails: fail as well, if nothing is said, wait until "
    "it is retried, or run and see the `Failure`",
    "max_attempts": "instead of the task's",
    "timeout": "instead of the task's",
    "trace": "a W3C traceparent to store with the job",
    "lane": "instead of the one its task names",
    "weight": "as how many the job counts against limits",
    "on": "your own connection or session: the job is part of your transaction",
}
WORKER = {
    "queues": "the queues to work on: a list in order of preference, a mapping with slots, "
    '`"*"`, `"-slow"`',
    "concurrency": "attempts at a time",
    "lease": "seconds without a sign of life until its jobs are taken over; 1 at least",
    "grace": "seconds that handlers may go on after a stop",
    "health": "`HOST:PORT` where the worker says how it is; None: nowhere",
    "prefetch": "jobs claimed ahead of free slots; by measurement if not said, 0 for none",
    "drain": "stop when nothing is left to do",
    "max_jobs": "stop when so many attempts have run",
    "name": "how it is called in lists and in the history; host, process and some letters",
    "max_tasks_per_child": "process slots: attempts until a child is replaced",
    "memory_limit": "process slots: bytes that a child may take",
    "error_text": "log the first line of what errors say, too; it may be private",
}
BACKOFF = {
    "first": "seconds after the first failure",
    "factor": "by which each further delay grows",
    "cap": "the longest delay",
    "jitter": "the share of a delay that is drawn at random",
    "never": "exceptions that end the job at once",
    "per": "exceptions with a back-off of their own, or None for never",
    "by": "a function in place of all that",
}
CRON = {
    "expression": "five fields, or a name such as `@hourly`",
    "every": "in place of it: seconds",
    "tz": "the zone in which the expression is read",
    "start": "from when on, inclusive; `every` counts from it",
    "end": "until when, inclusive",
    "jitter": "each job starts up to so much later",
    "catch_up": "how many missed ticks are made good",
    "overlap": "what a tick does while the job of the one before has not ended",
}

INSTRUMENT = {
    "relation": "an attempt begins a new trace, with a link to what created its job (every retry "
    'links to the same), or is a `"child"` of it; a function of `(task, queue, attempt, position, '
    "waited)` says which",
    "metrics": "False: spans only",
    "baggage": f"keys that travel with jobs, together at most {MOST_BAGGAGE} bytes; no others do",
    "cluster": "metrics also of what the database knows of all workers, in one process of an "
    "installation",
    "tracer_provider": "another than the global one, which may also be set later",
    "meter_provider": "the same for metrics",
}
METRICS = {
    "registry": "another than the client's default one",
    "process": "what this process enqueues and runs",
    "cluster": "what the database knows of all workers, in one process of an installation",
}
DJANGO = {
    "database": "an alias of DATABASES, where the tables are and what a task commits with; "
    "`default`",
    "max_attempts": "of tasks that do not say their own; 1",
    "timeout": "the same; none",
    "modules": "modules that declare tasks, besides `tasks` of each app",
    "inline": "True: a task runs where it is enqueued, at once; for tests",
}
PROJECT = "integrations.django.project"


def page() -> str:
    return "\n".join([HEAD, *_parts()])


def _parts() -> Iterator[str]:
    app = shown.definition("app", "Towline")
    yield "## Towline\n\n`Towline(url, …)`; all but the URL by name.\n"
    yield from _table(_of_function(_method(app, "__init__")), TOWLINE)
    yield "## task\n\n`@app.task(…)`, `@tasks.task(…)`."
    yield "`@app.chunk(size=, wait=, …)` takes the same but `cron`.\n"
    task = _method(shown.definition("task", "Task"), "__init__")
    yield from _table({k: v for k, v in _of_function(task).items() if k != "function"}, TASK)
    yield "## using\n\n`task.using(…).enqueue(…)`, `.call(…)`, `.then(…)`."
    yield "See [calls](../guides/write/calls.md).\n"
    options = shown.definition("task.options", "Options")
    yield from _table(_of_class("task.options", options), USING)
    for name in ("OnConflict", "OnBlockerFailure", "Scope"):
        yield f"`{name}`: {shown.literals('task.options', name)}.\n"
    yield "## worker\n\n`app.worker(…)`; `towline worker` has them as options.\n"
    worker = shown.definition("worker.settings", "WorkerSettings")
    given = {name: (kind, _usual(name)) for name, (kind, _) in _of_class("", worker).items()}
    yield from _table(given, WORKER)
    yield "## Backoff\n\n`from towline import Backoff`; see [retry](../guides/write/retry.md).\n"
    yield from _table(_of_class("task.retry", shown.definition("task.retry", "Backoff")), BACKOFF)
    yield "## Cron\n\nSee [schedules](../guides/write/schedules.md).\n"
    cron = _of_class("cron", shown.definition("cron", "Cron"))
    yield from _table({"expression": ("str | None", "None"), **cron}, CRON)
    yield "## instrument\n\n`from towline.otel import instrument`; see"
    yield "[OpenTelemetry](../guides/see/opentelemetry.md).\n"
    function = shown.definition("telemetry.otel.instrument", "instrument")
    yield from _table(_of_function(function), INSTRUMENT)
    yield "## Metrics\n\n`from towline.prometheus import Metrics`; see"
    yield "[Prometheus](../guides/see/prometheus.md).\n"
    metrics = _method(shown.definition("telemetry.prometheus", "Metrics"), "__init__")
    yield from _table({k: v for k, v in _of_function(metrics).items() if k != "app"}, METRICS)
    yield "## Django\n\nIn `OPTIONS` of an entry of TASKS, beside what `Towline(…)` takes; see"
    yield "[Django](../guides/with/django.md).\n"
    shown.check("settings", DJANGO, ast.literal_eval(shown.value(PROJECT, "OURS")))
    yield from _plain_table(DJANGO)
    yield f"Not there, since DATABASES and migrations say it: {shown.words(_not_for_django())}.\n"
    yield "## pytest\n\nIn pytest's own configuration; see [testing](../guides/write/testing.md).\n"
    yield from _plain_table(of_pytest())
    yield "## In the environment\n"
    yield "| variable | read by | |\n|---|---|---|"
    yield "| `TOWLINE_URL` | `Towline()` without a URL, the command line | the database |"
    yield "| `TOWLINE_APP` | the command line | `module:app` |"
    yield "| `TOWLINE_DASHBOARD_TOKEN` | the dashboard | its token |\n"


Given = Mapping[str, tuple[str, str]]


def _table(given: Given, sentences: Mapping[str, str]) -> Iterator[str]:
    shown.check("settings", sentences, given)
    yield "| | type | default | |\n|---|---|---|---|"
    for name, (kind, default) in given.items():
        type_ = f"<code>{kind}</code>".replace("|", "&#124;")  # a bar would end the cell
        cells = [f"`{name}`", type_, f"`{default}`" if default else ""]
        yield f"| {' | '.join([*cells, sentences[name]])} |"
    yield ""


def _plain_table(sentences: Mapping[str, str]) -> Iterator[str]:
    yield "| | |\n|---|---|"
    for name, sentence in sentences.items():
        yield f"| `{name}` | {sentence} |"
    yield ""


def _not_for_django() -> tuple[str, ...]:
    found: tuple[str, ...] = ast.literal_eval(shown.value(PROJECT, "NOT_SAID_HERE"))
    return found


def of_pytest() -> dict[str, str]:
    """The settings that the plugin for pytest adds, in its own words."""
    parser = Mock()
    pytest_addoption(parser)
    return dict(call.args[:2] for call in parser.addini.mock_calls)


def _of_function(node: shown.Definition) -> dict[str, tuple[str, str]]:
    """Its parameters but the first, which is self or the app."""
    assert isinstance(node, ast.FunctionDef)
    found = {}
    placed = node.args.args[1:]
    defaults = [*[None] * (len(placed) - len(node.args.defaults)), *node.args.defaults]
    for each, default in [
        *zip(placed, defaults, strict=True),
        *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True),
    ]:
        kind = ast.unparse(each.annotation) if each.annotation else ""
        found[each.arg] = kind, ast.unparse(default) if default else ""
    return found


def _of_class(module: str, node: ast.AST) -> dict[str, tuple[str, str]]:
    assert isinstance(node, ast.ClassDef)
    found = {}
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            default = ast.unparse(each.value) if each.value else ""
            default = "{}" if "default_factory=dict" in default else default
            found[each.target.id] = ast.unparse(each.annotation), default
    return found


def _method(node: ast.AST, name: str) -> ast.FunctionDef:
    assert isinstance(node, ast.ClassDef)
    return next(
        each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == name
    )


def _usual(name: str) -> str:
    """The default of a worker's setting."""
    from towline.worker.settings import check_settings

    if name in ("queues", "name"):
        return ""
    return repr(getattr(check_settings(()), name))
