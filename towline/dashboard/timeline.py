"""Jobs over time, as bars of a drawing 1000 wide: when each waited, ran and held back.

A bar before an attempt is what it waited: "back-off" after one that failed, else "waited". How long
of a back-off was meant and how long no worker was free is not recorded, so it is one bar.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from .page import Data

WIDTH = 1000
THINNEST = 3.0  # what is shorter is drawn so wide, or it could not be seen
FAILED = ("failed", "timeout")


def timeline(jobs: list[Data], now: str) -> Data:
    """The bars of jobs on one axis: from the first job's creation to the last end, or to now."""
    start = min((job["created_at"] for job in jobs), default=now)
    ends = [job["ended_at"] or now for job in jobs]
    end = max(ends, default=now)
    span = max(_seconds(end) - _seconds(start), 0.001)

    def place(bar: Data) -> Data:
        left = WIDTH * (_seconds(bar["start"]) - _seconds(start)) / span
        width = max(WIDTH * bar["seconds"] / span, THINNEST)
        return {**bar, "x": round(min(left, WIDTH - width), 2), "width": round(width, 2)}

    rows = [
        {"job": job["id"], "task": job["task"], "bars": [place(bar) for bar in _bars(job, now)]}
        for job in jobs
    ]
    return {"start": start, "end": end, "seconds": round(span, 6), "rows": rows}


def _bars(job: Data, now: str) -> Iterator[Data]:
    since, kind = job["created_at"], "waited"
    for attempt in job["attempts"]:
        number, outcome = attempt["number"], attempt["outcome"]
        ended = attempt["ended_at"] or now
        begun = attempt["started_at"] or ended
        yield _bar(kind, since, begun, number)
        yield _bar(outcome or "running", begun, ended, number)
        since, kind = ended, "back-off" if outcome in FAILED else "waited"
    if job["ended_at"] is None and job["state"] != "running":
        yield _bar(kind, since, now, None)


def _bar(kind: str, start: str, end: str, number: int | None) -> Data:
    """What it was, and for which attempt; None for one that is still to come."""
    seconds = max(_seconds(end) - _seconds(start), 0.0)
    return {"kind": kind, "start": start, "seconds": round(seconds, 6), "attempt": number}


def _seconds(time: str) -> float:
    return datetime.fromisoformat(time).timestamp()
