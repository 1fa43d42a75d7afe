"""The audit: what clean workers left behind, compared with the event log.

lost        acknowledged and not there, or never brought to its end
stale       an ending recorded of an attempt after another had begun, or a value nobody computed
concurrent  an attempt that was begun twice: two handlers under one lease
twice       handlers that ran to their end though one had done so before: allowed once per kill
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.event_log import EventLog
from tests.faults.tasks import ANYHOW, BORN, ENDS, OWN, USUALLY
from tests.races.auditor import Reader, ask, audit_tables
from tests.races.logs import Finding

STATES = {1: "completed", 2: "completed", 3: "failed", 4: "failed", 6: "cancelled", 7: "failed"}
COMPLETED, LOST = 1, 7
SHOWN = ("lost", "stale", "concurrent")


@dataclass
class Audit:
    """What was found, and figures for people."""

    findings: list[Finding] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        counted = Counter(finding.kind for finding in self.findings)
        other = sum(counted[kind] for kind in counted if kind not in SHOWN)
        shown = [f"{name} {number}" for name, number in self.figures.items()]
        shown += [f"{kind} {counted[kind]}" for kind in SHOWN]
        return ", ".join([*shown, f"other findings {other}"])

    def say(self, about: str) -> int:
        """Print it; return how many findings there are."""
        print(f"{about}: {self.line()}")
        for finding in self.findings[:20]:
            print(f"  {finding.kind}: {finding.text}")
        sys.stdout.flush()
        return len(self.findings)


def judge(reader: Reader, folder: Path, again: int, *, at_limit: int = 0) -> Audit:
    """Compare tables and event log when nothing is left to do.

    `again`: so many handlers may have run to their end once more, one for each kill, say.
    `at_limit`: so many jobs may have met so many kills that they failed as jobs that kill.
    """
    log = EventLog.read(folder)
    audit = Audit(audit_tables(reader, healed=True))
    audit.findings += _lost(reader, log)
    audit.findings += _stale(reader, log)
    audit.findings += _concurrent(log)
    ended = list(_wrong_ends(reader, log))
    unlucky = [finding for finding in ended if finding.kind == "crash limit"]
    audit.findings += [finding for finding in ended if finding not in unlucky]
    audit.findings += unlucky[at_limit:]
    audit.findings += _own_rows(reader)
    audit.findings += _without_a_parent(reader)
    if log.twice > again:
        text = f"{log.twice} handlers ran to their end once more; {again} may"
        audit.findings.append(Finding("twice", text))
    audit.figures.update(
        {
            "jobs": ask(reader, "SELECT count(*) FROM towline_job")[0][0],
            "starts": log.starts.total(),
            "cut short": len(log.starts.keys() - log.ends.keys()),
            "run twice": log.twice,
        }
    )
    if at_limit:
        audit.figures["at the crash limit"] = len(unlucky)
    return audit


def _lost(reader: Reader, log: EventLog) -> Iterator[Finding]:
    stored = {id for (id,) in ask(reader, "SELECT id FROM towline_job")}
    for id in sorted(log.new - stored - log.gone):
        yield Finding("lost", f"job {id} was acknowledged and is gone")


def _stale(reader: Reader, log: EventLog) -> Iterator[Finding]:
    begun: dict[int, int] = {}
    for job, attempt in log.starts:
        begun[job] = max(begun.get(job, 0), attempt)
    rows = ask(reader, "SELECT job_id, number, outcome, final, output FROM towline_attempt")
    for job, number, outcome, final, output in rows:
        if outcome == COMPLETED and json.loads(output) != log.stamps.get((job, number)):
            yield Finding("stale", f"attempt {number} of job {job} has the output {output}")
        if final and outcome != LOST and begun.get(job, 0) > number:
            yield Finding("stale", f"job {job} ended with {number} after {begun[job]} had begun")


def _concurrent(log: EventLog) -> Iterator[Finding]:
    for (job, attempt), number in log.starts.items():
        if number > 1:
            yield Finding("concurrent", f"attempt {attempt} of job {job} was begun {number} times")


def _wrong_ends(reader: Reader, log: EventLog) -> Iterator[Finding]:
    text = """SELECT j.id, j.chain_id, j.task, j.label, a.outcome, a.error, a.blocker
                FROM towline_job AS j JOIN towline_attempt AS a
                  ON a.job_id = j.id AND a.final = 1"""
    rows = ask(reader, text)
    behind = [(chain, blocker) for _, chain, *_, blocker in rows if blocker is not None]
    unlucky = {chain for _, chain, _, _, outcome, *_ in rows if outcome == LOST}
    while more := {chain for chain, blocker in behind if blocker in unlucky} - unlucky:
        unlucky |= more
    for job, chain, task, label, outcome, error, _ in rows:
        state = STATES[outcome]
        may = {state} if label == ANYHOW else ENDS.get(task, USUALLY)
        if job in log.cancelled:
            may = {"cancelled"}
        if outcome == LOST:
            yield Finding("crash limit", f"job {job} ({task}): {error}")
        elif state not in may and chain not in unlucky:
            yield Finding("end", f"job {job} ({task}) is {state}: {error}")


def _own_rows(reader: Reader) -> Iterator[Finding]:
    """The application's rows stand or fall with the jobs they were written with (O1)."""
    rows = {id for (id,) in ask(reader, "SELECT id FROM mine")}
    text = f"""SELECT j.id FROM towline_job AS j LEFT JOIN towline_attempt AS a
                 ON a.job_id = j.id AND a.outcome = 1
               WHERE j.label = '{OWN}' OR j.task = 'books' AND a.job_id IS NOT NULL"""
    jobs = {id for (id,) in ask(reader, text)}
    for id in sorted(rows ^ jobs):
        yield Finding("own row", f"job {id} and the row written with it are not both there")


def _without_a_parent(reader: Reader) -> Iterator[Finding]:
    """What a continuation brought along is there with it, or not at all (F4)."""
    text = f"""SELECT j.id FROM towline_job AS j LEFT JOIN towline_blocker AS b ON b.chain_id = j.id
                WHERE j.label = '{BORN}' AND b.job_id IS NULL"""
    for (id,) in ask(reader, text):
        yield Finding("child", f"job {id} was born with a continuation that is not there")
