"""Jobs, chains and pages of them as a notebook shows them: HTML tables, all text escaped.

Arguments and outputs are left away: they may be long, and secret.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from html import escape
from typing import Any

from ..text import gist, plain, shortened
from .handles import Chain, Job
from .shown import Mask, chain_error

MOST_ROWS = 100
MOST_TEXT = 200  # characters of an error

Cells = dict[str, object]


def table_of(items: Sequence[object], more: bool = False) -> str:
    """A row for each; `more`: there are others, which are not on this page."""
    rows = [_cells(item) for item in items[:MOST_ROWS]]
    heads = list(dict.fromkeys(head for row in rows for head in row))
    lines = [_row("th", heads), *(_row("td", [row.get(head) for head in heads]) for row in rows)]
    left = len(items) - len(rows)
    notes = [f"{left} more on this page"] * bool(left) + ["more behind its cursor"] * more
    note = f"<p>{'; '.join(notes)}</p>" if notes else ""
    return f"<table>{''.join(lines)}</table>{note}" if rows else f"<p>none</p>{note}"


def _cells(item: object) -> Cells:
    if isinstance(item, Job):
        return _job(item)
    if isinstance(item, Chain):
        return _chain(item)
    return {"": repr(item)}


def _job(job: Job[Any]) -> Cells:
    return {
        "job": job.id,
        "task": job.task,
        "state": job.state,
        "queue": job.queue,
        "label": job.label,
        "attempt": job.attempt or None,
        "created": job.created_at,
        "due": job.run_at,
        "ended": job.ended_at,
        "error": gist(Mask(job)(job.error)),
    }


def _chain(chain: Chain) -> Cells:
    return {
        "chain": chain.id,
        "task": chain.task,
        "state": chain.state,
        "label": chain.label,
        "created": chain.created_at,
        "ended": chain.ended_at,
        "error": gist(chain_error(chain)),
    }


def _row(tag: str, values: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{_shown(value)}</{tag}>' for value in values)}</tr>"


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return escape(plain(shortened(str(value), MOST_TEXT), lines=False))
