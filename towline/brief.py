"""A job in a few words: what is worth knowing in its state, where many are listed.

From the data of `views`, so that command line and dashboard say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .model import State
from .text import gist
from .times import distance, length


def brief(job: Mapping[str, Any], now: datetime) -> str:
    """Its label, and why it waits, how far it is, how long it took or what went wrong."""
    state, words = job["state"], [job["label"]]
    if state == State.RUNNING:
        words.append(f"for {_took(job['started_at'], None, now)}")
        if job["progress"] is not None:
            words.append(progress_in_words(**job["progress"]))
    elif state == State.BLOCKED:
        words.append(f"waits for {job['open_blockers']}")
    elif state == State.SCHEDULED:
        words.append(distance(datetime.fromisoformat(job["run_at"]), now))
    elif state == State.PENDING:
        words.append(job["reason"] or (job["lane"] and f"in lane {job['lane']}"))
    elif state == State.COMPLETED:
        words.append(job["started_at"] and f"took {_took(job['started_at'], job['ended_at'], now)}")
        words.append(job["continued_by"] and f"continued by {job['continued_by']}")
    if state != State.COMPLETED:
        words.append(gist(job["error"]))
    return " · ".join(filter(None, words))


def progress_in_words(fraction: object, text: str | None) -> str:
    done = f"{fraction:.0%}" if isinstance(fraction, int | float) else ""  # or written by hand
    return " ".join(filter(None, (done, text)))


def _took(start: str | None, end: str | None, now: datetime) -> str:
    if start is None:
        return ""
    until = now if end is None else datetime.fromisoformat(end)
    return length(until - datetime.fromisoformat(start))
