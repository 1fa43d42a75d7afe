"""The event log of the fault proofs: what handlers did, kept outside of the database.

One line per event, one write per line, appended: it survives any kill of its writers, and shares
no fate with the tables it is compared with.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.races.logs import read_logs
from towline.records import Claimed

VARIABLE = "TOWLINE_FAULTS_DIARY"
NAME = "event_log.jsonl"

Key = tuple[int, int]
"""A job and the number of an attempt."""


def write(event: str, **facts: Any) -> None:
    """Append one event to the event log that the environment names."""
    line = json.dumps({"e": event, **facts}).encode() + b"\n"
    file = os.open(os.environ[VARIABLE], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, line)
    finally:
        os.close(file)


def stamp_of(job: int, attempt: int, claimed_at: int) -> str:
    """What an attempt returns: its fencing token as text, which no other attempt can return."""
    return f"{job}/{attempt}/{claimed_at}"


def write_start(held: Claimed) -> None:
    write("start", job=held.job_id, attempt=held.attempt, stamp=_stamp(held), pid=os.getpid())


def write_end(held: Claimed, how: str = "value") -> None:
    write("end", job=held.job_id, attempt=held.attempt, stamp=_stamp(held), how=how)


def write_new(ids: Iterable[int]) -> None:
    """The library has said that these jobs are stored."""
    write("new", jobs=sorted(ids))


def _stamp(held: Claimed) -> str:
    return stamp_of(held.job_id, held.attempt, held.claimed_at)


@dataclass
class EventLog:
    """What is in an event log.

    start      a handler was called, under this stamp      end    it ended: "value" or an exception
    new        jobs that were acknowledged                 gone   jobs that may be deleted from now
    cancelled  jobs whose cancellation was acknowledged
    """

    starts: Counter[Key] = field(default_factory=Counter)
    ends: dict[Key, str] = field(default_factory=dict)
    stamps: dict[Key, str] = field(default_factory=dict)
    new: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    cancelled: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, folder: Path) -> EventLog:
        log = cls()
        for event in read_logs(folder):
            match event["e"]:
                case "start":
                    log.starts[event["job"], event["attempt"]] += 1
                    log.stamps[event["job"], event["attempt"]] = event["stamp"]
                case "end":
                    log.ends[event["job"], event["attempt"]] = event["how"]
                case "new":
                    log.new.update(event["jobs"])
                case "gone":
                    log.gone.update(event["jobs"])
                case "cancelled":
                    log.cancelled.update(event["jobs"])
                case unknown:
                    raise ValueError(f"an event log has an event of kind {unknown!r}")
        return log

    @property
    def twice(self) -> int:
        """How many times a handler ran to its end after it had done so before, for the same job."""
        whole = Counter(job for (job, _), how in self.ends.items() if how == "value")
        return sum(number - 1 for number in whole.values())
