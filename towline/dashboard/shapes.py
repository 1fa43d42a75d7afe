"""What answers of the API look like, in a short form that the description is made of.

A shape is a word, a list of one shape, or an object of shapes by name. A word with `?` may be null.
Words that are not plain values name a shape that several pages share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shape = str | list[Any] | Mapping[str, Any]

PLAIN: dict[str, dict[str, Any]] = {
    "text": {"type": "string"},
    "id": {"type": "integer"},
    "number": {"type": "number"},
    "flag": {"type": "boolean"},
    "time": {"type": "string", "format": "date-time"},
    "object": {"type": "object"},
    "any": {},
}

COUNTS: dict[str, Shape] = {
    "blocked": "number", "scheduled": "number", "pending": "number", "running": "number",
    "completed": "number", "failed": "number", "cancelled": "number", "at_least": ["text"],
}  # fmt: skip
ENDED: dict[str, Shape] = {
    "ended": "number", "failed": "number", "failure_rate": "number?", "run": "times",
    "wait": "times",
}  # fmt: skip
JOB: dict[str, Shape] = {
    "id": "id", "chain_id": "id", "position": "number", "task": "text", "label": "text?",
    "queue": "text", "priority": "number", "lane": "text?", "weight": "number?", "key": "text?",
    "state": "text", "reason": "text?",
    "attempt": "number", "max_attempts": "number", "outcome": "text?", "open_blockers": "number",
    "continued_by": "id?", "created_at": "time", "run_at": "time?", "expires_at": "time?",
    "started_at": "time?",
    "ended_at": "time?", "worker": "text?", "ended_by": "text?", "progress": "progress?",
    "error": "text?", "schedule": "text?", "tick": "time?",
}  # fmt: skip
WORKER: dict[str, Shape] = {
    "id": "id", "name": "text", "host": "text", "pid": "number", "version": "text",
    "queues": ["text"], "concurrency": "number", "running": "number", "started_at": "time",
    "seen_at": "time", "lease_until": "time", "expired": "flag",
}  # fmt: skip
SCHEDULE: dict[str, Shape] = {
    "name": "text", "task": "text", "queue": "text", "declared": "flag", "edited": "flag",
    "paused": "flag", "paused_at": "time?", "paused_by": "text?", "next_at": "time?",
    "last_tick": "time?", "last_job": "id?", "ticks": "number", "skipped": "number",
    "missed": "number", "reason": "text?", "arguments": "any", "cron": "text?",
    "every": "number?", "tz": "text", "start": "time?", "end": "time?", "jitter": "number",
    "catch_up": "number", "overlap": "text", "explained": "text", "upcoming": ["time"],
}  # fmt: skip

SHARED: dict[str, dict[str, Shape]] = {
    "counts": COUNTS,
    "ended": ENDED,
    "times": {"p50": "number?", "p95": "number?", "p99": "number?"},
    "job": JOB,
    "full_job": {
        **JOB, "why": "text", "description": "text?", "arguments": "any", "output": "any",
        "attempts": ["attempt"], "blockers": ["blocker"], "audit": ["audit_line"],
    },
    "progress": {"fraction": "any", "text": "text?"},
    "chain": {
        "id": "id", "task": "text", "state": "text", "label": "text?", "key": "text?",
        "created_at": "time", "ended_at": "time?", "output": "any", "error": "text?",
    },
    "attempt": {
        "number": "number", "outcome": "text?", "worker": "text?", "started_at": "time?",
        "ended_at": "time?", "ended_by": "text?", "progress": "progress?", "error": "text?",
        "error_type": "text?",
    },
    "blocker": {
        "chain_id": "id", "name": "text?", "state": "text", "task": "text", "error": "text?",
    },
    "group": {
        "id": "id", "task": "text", "queue": "text", "state": "text", "total": "number",
        "ended": "number", "created_at": "time", "failed": "number", "why": "text",
        "members": [{
            "position": "number", "chain_id": "id", "name": "text?", "state": "text",
            "task": "text", "error": "text?",
        }],
    },
    "limit": {
        "queue": "text", "lane": "text?", "concurrency": "number?", "rate": "number?",
        "per": "number?", "running": "number?", "began": "number", "opens_at": "time?",
        "declared": "flag", "edited": "flag", "changed_at": "time?", "changed_by": "text?",
    },
    "lane": {
        "queue": "text", "lane": "text", "state": "text", "waiting": "number", "running": "number",
        "served_at": "time?", "opens_at": "time?", "concurrency": "number?", "rate": "number?",
        "per": "number?", "began": "number",
    },
    "dependent": {"job_id": "id", "chain_id": "id", "task": "text", "name": "text?"},
    "worker": WORKER,
    "audit_line": {
        "at": "time", "by": "text", "action": "text", "job_id": "id?", "queue": "text?",
        "number": "number?", "chosen": "any", "done": "text",
    },
    "failure": {
        "task": "text", "outcome": "text", "error_type": "text?", "number": "number",
        "first_at": "time", "last_at": "time", "job_id": "id",
    },
    "task": {
        "name": "text", "signature": "text", "queue": "text", "priority": "number",
        "max_attempts": "number", "timeout": "number?", "backoff": "object", "run_in": "text",
        "slots": "text", "description": "text?",
    },
    "timeline": {
        "start": "time", "end": "time", "seconds": "number",
        "rows": [{"job": "id", "task": "text", "bars": ["bar"]}],
    },
    "bar": {
        "kind": "text", "start": "time", "seconds": "number", "attempt": "number?", "x": "number",
        "width": "number",
    },
    "heat": {
        "columns": "number", "rows": ["text"],
        "cells": [{
            "at": "time", "column": "number", "row": "number", "jobs": "number", "share": "number",
        }],
    },
    "value": {"name": "text", "type": "text", "value": "any"},
    "oldest": {"id": "id", "task": "text", "created_at": "time"},
    "refusal": {"error": "text"},
}  # fmt: skip


def schema(shape: Shape) -> dict[str, Any]:
    """A shape as JSON Schema."""
    if isinstance(shape, list):
        return {"type": "array", "items": schema(shape[0])}
    if isinstance(shape, Mapping):
        properties = {name: schema(inner) for name, inner in shape.items()}
        return {"type": "object", "properties": properties, "required": list(shape)}
    if shape.endswith("?"):
        return {"anyOf": [schema(shape[:-1]), {"type": "null"}]}
    if shape in PLAIN:
        return PLAIN[shape]
    if shape not in SHARED:
        raise LookupError(f"{shape!r} is no shape")
    return {"$ref": f"#/components/schemas/{shape}"}


def shared() -> dict[str, Any]:
    """The schemas that others refer to."""
    return {name: schema(shape) for name, shape in SHARED.items()}
