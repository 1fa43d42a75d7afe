"""What a GigQ file has pending becomes jobs of the app; only `towline import` loads this."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from ..app import Towline
from ..engine import FILE
from ..errors import InvalidArguments
from ..task import Call, Task
from .ending import CommandError
from .filters import shown

PATIENCE = 30.0  # seconds to wait for GigQ's own workers

PENDING = """
SELECT id, name, function_module || '.' || function_name, params, priority, dependencies,
    retry_after
FROM jobs WHERE status = 'pending' ORDER BY created_at
"""
TAKEN = "UPDATE jobs SET status = 'cancelled', error = 'taken over by Towline' WHERE id = ?"


class Row(Struct, frozen=True):
    """A pending job of GigQ."""

    id: str
    name: str
    path: str
    params: dict[str, Any]
    priority: int
    parents: Sequence[str]
    at: datetime | None


class Taken(Struct, frozen=True):
    """Jobs of the app by GigQ's ids, none in a preview; how many there are; what stays there."""

    jobs: dict[str, int]
    number: int
    left: list[str]


def take_over(app: Towline, file: str, pairs: Sequence[str], preview: bool) -> Taken:
    """Store what the file has pending, and cancel it there."""
    tasks = mapped(app, pairs)
    with closing(opened(file)) as connection:
        rows = pending(connection, file)
        if unknown := sorted({row.path for row in rows} - tasks.keys()):
            raise CommandError(f"--map does not say what becomes of {', '.join(unknown)}")
        calls = calls_of(rows, tasks)
        left = [row.id for row in rows if row.id not in calls]
        if preview:
            return Taken({}, len(calls), left)
        # In one file it is one transaction. In two the jobs come first, and their keys are
        # known when a crash in between makes it begin again.
        on = connection if is_file_of(app, file) else None
        stored = app.enqueue_many([*calls.values()], on=on)
        connection.executemany(TAKEN, [(id,) for id in calls])
        connection.execute("COMMIT")
    return Taken({id: job.id for id, job in zip(calls, stored, strict=True)}, len(calls), left)


def mapped(app: Towline, pairs: Sequence[str]) -> dict[str, Task[..., Any, Any]]:
    """The app's tasks by the paths that GigQ stored."""
    found = {}
    for pair in pairs:
        path, equals, name = pair.rpartition("=")
        if not equals or not path:
            raise click.BadParameter(f"--map {shown(pair)} is not PATH=TASK")
        if name not in app.registry:
            raise CommandError(f"the app has no task {shown(name)}: `towline tasks` lists them")
        found[path] = app.registry[name]
    return found


def opened(file: str) -> sqlite3.Connection:
    """The file, which must be there, inside a transaction in which nobody else writes."""
    path = Path(file).absolute()
    if not path.is_file():
        raise CommandError(f"there is no file {shown(file)}")
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", uri=True, timeout=PATIENCE, isolation_level=None
    )
    try:
        connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        connection.close()
        raise CommandError(f"{shown(file)} cannot be used: {error}") from error
    return connection


def pending(connection: sqlite3.Connection, file: str) -> list[Row]:
    try:
        rows = connection.execute(PENDING).fetchall()
    except sqlite3.Error as error:
        raise CommandError(f"{shown(file)} is no file of GigQ 0.5: {error}") from error
    return [
        Row(
            id,
            name,
            path,
            json.loads(params or "{}"),
            priority or 0,
            json.loads(parents or "[]"),
            # GigQ's times are those of its machine's zone, and do not say so.
            datetime.fromisoformat(after).astimezone() if after else None,
        )
        for id, name, path, params, priority, parents, after in rows
    ]


def calls_of(rows: Sequence[Row], tasks: Mapping[str, Task[..., Any, Any]]) -> dict[str, Call[Any]]:
    """A call for each row whose parents are taken over with it, parents first."""
    known = {row.id: row for row in rows}
    try:
        order = [*TopologicalSorter({row.id: row.parents for row in rows}).static_order()]
    except CycleError as error:
        raise CommandError(f"these wait for each other: {', '.join(error.args[1])}") from None
    calls: dict[str, Call[Any]] = {}
    for row in (known[id] for id in order if id in known):
        if all(parent in calls for parent in row.parents):
            names = [known[parent].name for parent in row.parents]
            calls[row.id] = call_of(row, tasks[row.path], names, [calls[id] for id in row.parents])
    return calls


def call_of(
    row: Row, task: Task[..., Any, Any], names: Sequence[str], parents: Sequence[Call[Any]]
) -> Call[Any]:
    """Behind its parents, by the names of their jobs if these tell them apart."""
    named = len({*names}) == len(names)
    after = dict(zip(names, parents, strict=True)) if named else parents
    configured = task.using(
        key=f"gigq {row.id}", scope="any", priority=row.priority, at=row.at, after=after
    )
    try:
        args, kwargs = task.signature.read([], row.params)
        return configured.call(*args, **kwargs)
    except InvalidArguments as error:
        raise CommandError(f"GigQ's job {row.id}: {error}") from error


def is_file_of(app: Towline, file: str) -> bool:
    """Whether the app's own tables lie in the same file."""
    own = app.url.removeprefix(FILE)
    return app.url.startswith(FILE) and os.path.exists(own) and os.path.samefile(own, file)
