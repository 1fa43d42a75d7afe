"""What the processes of a storm wrote down: one line per event, before and after each call.

The files survive a kill; the auditor compares them with the tables.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple


class Finding(NamedTuple):
    """Something that must not be: lost, twice, stuck, early, key, integrity, row, chain, …"""

    kind: str
    text: str


Event = dict[str, Any]


def read_logs(folder: Path) -> Iterator[Event]:
    """Every event of every process; the torn last line of a killed one is passed over."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().splitlines(keepends=True):
            if line.endswith(b"\n"):
                yield json.loads(line)


@dataclass
class Logs:
    """What the processes say they did. A token names one stored job, or one ending of an attempt.

    new       token stored, with the id it was given      none      token certainly not stored
    maybe     token may have been stored                  claim     job and attempt handed out,
                                                                    by `until` at the latest
    ending    about to end a job so                       ended     that ending was accepted
    refused   it was not                                  leaving   chains about to be deleted
    left      chains deleted                              lease     a worker's lease, at least
    finding   the process itself saw something wrong      op        one operation and its answer
    postponed endings that were put off
    """

    new: list[tuple[str, int, int]] = field(default_factory=list)
    none: set[str] = field(default_factory=set)
    maybe: set[str] = field(default_factory=set)
    claims: list[tuple[int, int, int, int, str]] = field(default_factory=list)
    endings: dict[str, Event] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    leaving: set[int] = field(default_factory=set)
    left: set[int] = field(default_factory=set)
    leases: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    killed: set[str] = field(default_factory=set)
    postponed: int = 0
    findings: list[Finding] = field(default_factory=list)
    ops: Counter[tuple[str, str]] = field(default_factory=Counter)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Logs:
        logs = cls()
        for event in events:
            logs.add(event)
        return logs

    def add(self, event: Event) -> None:
        match event["e"]:
            case "maybe":
                self.maybe.update(event["tokens"])
            case "new":
                self.new += [(token, id, chain) for token, id, chain in event["jobs"]]
            case "none":
                self.none.update(event["tokens"])
            case "claim":
                until, by = event.get("until"), event["by"]
                self.claims += [(id, n, at, until or at, by) for id, n, at in event["jobs"]]
            case "ending":
                self.endings[event["token"]] = event
            case "ended":
                self.ended.update(event["tokens"])
            case "refused":
                self.refused.update(event["tokens"])
            case "leaving":
                self.leaving.update(event["chains"])
            case "left":
                self.left.update(event["chains"])
            case "lease":
                lease = event["since"], event["until"]
                self.leases.setdefault(event["worker"], []).append(lease)
            case "killed":
                self.killed.add(event["process"])
            case "finding":
                self.findings.append(Finding(event["kind"], event["text"]))
            case "postponed":
                self.postponed += event["number"]
            case "op":
                self.ops[event["op"], event["answer"]] += 1
            case unknown:
                raise ValueError(f"a log has an event of kind {unknown!r}")

    def process(self, name: str) -> str:
        """The process of a worker: names are process-thread."""
        return name.split("-")[0]
