"""Audit: what people did to jobs and queues, written in the transaction that does it.

A line says who, what, when, and to how many. It is left only where a name is given: who gives none
pays no statement. An action on many leaves a line for each page that it commits, which counts, and
one without a number for each job of that page, so that the job's own history has it, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from msgspec.structs import asdict

from ..model import storable
from ..operation import Row, Steps
from ..records import JobRecord
from ..times import to_datetime
from . import read
from .ground import FOREVER, Ground
from .listing import JobFilter

NAME = 200  # characters of who did it
TIMES = ("since", "until", "ended_since", "ended_until")
LINE = ("at", "done_by", "action", "job_id", "queue", "number", "chosen")


class AuditRecord(NamedTuple):
    """One line; `number` is None where another line counts the job, as one of many."""

    id: int
    at: int
    done_by: str
    action: str
    job_id: int | None
    queue: str | None
    number: int | None
    chosen: str | None  # what an action on many was about, in JSON


class AuditPage(NamedTuple):
    """Some lines, newest first, and the cursor that goes on after them (None at the end)."""

    records: list[AuditRecord]
    cursor: int | None


def note(
    store: Ground, by: str | None, action: str, *, job_id: int | None = None,
    queue: str | None = None, number: int = 1, chosen: str | None = None, each: Iterable[int] = (),
) -> Steps[None]:  # fmt: skip
    """Leave a line, if it is known by whom; `each`: the jobs of many that were changed."""
    who = brief(by)
    if who is None:
        return
    now = yield from store.now()
    lines: list[Row] = [(now, who, action, id, None, None, None) for id in each]
    lines.append((now, who, action, job_id, queue, number, chosen))
    yield store.sql.insert_audit.many(LINE, lines)


def noted(
    store: Ground, by: str | None, action: str, do: Callable[..., Steps[JobRecord]], *given: Any
) -> Steps[JobRecord]:
    """Do something to one job, and leave its line."""
    record = yield from do(store, *given)
    yield from note(store, by, action, job_id=record.id)
    return record


def seen(store: Ground, job_id: int, action: str, by: str) -> Steps[None]:
    """A line about something that changes nothing of a job."""
    record = yield from read.job(store, job_id)
    yield from note(store, by, action, job_id=record.id)


def lines(
    store: Ground, job_id: int | None, queue: str | None, limit: int, cursor: int | None
) -> Steps[AuditPage]:
    before = FOREVER if cursor is None else cursor
    if job_id is not None:
        rows = yield store.sql.list_audit_of_job(job_id=job_id, cursor=before, limit=limit)
    elif queue is not None:
        rows = yield store.sql.list_audit_of_queue(queue=queue, cursor=before, limit=limit)
    else:
        rows = yield store.sql.list_audit(cursor=before, limit=limit)
    found = [AuditRecord._make(row) for row in rows]
    return AuditPage(found, found[-1].id if len(found) == limit else None)


def described(filter: JobFilter) -> str | None:
    """A filter as lines keep it. The ids are not kept: each of those jobs has its own line."""
    said = {name: value for name, value in asdict(filter).items() if value is not None}
    said.pop("ids", None)
    for name, value in said.items():
        if name in TIMES:
            said[name] = to_datetime(value).isoformat()
        elif isinstance(value, frozenset):
            said[name] = sorted(value)
    return json.dumps(said) if said else None


def brief(by: str | None) -> str | None:
    """Who did it, as far as there is room for it."""
    text = storable(by)
    return text if text is None else text[:NAME]
