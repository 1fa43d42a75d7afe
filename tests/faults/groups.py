"""A group in a storm: members that fail, are lost, retried and cancelled, and killed workers.

    python -m tests.faults.groups --engine postgres --members 5000

Its last job runs once, after the last job of every member (F1). Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.faults import tasks
from tests.faults.fresh import Place, places
from tests.faults.workers import at, number, open_jobs, rows, wait
from tests.races.logs import Finding
from towline.errors import InvalidState

LIMIT = 600.0
WORKERS = 3


def storm(place: Place, members: int, kills: int, seed: int) -> list[Finding]:
    """So many members, of every kind, and so many workers killed while they run."""
    draw = random.Random(seed)
    kinds = [
        tasks.plain.call(0.005),
        tasks.awaiting.call(0.005),
        tasks.first.call(),
        tasks.fails.call(),
    ]
    calls = [kinds[n % len(kinds)] for n in range(members - 1)]
    with at(place) as start:
        group = tasks.app.enqueue_group(
            [*calls, tasks.splits.call(10)],
            then=tasks.silent.using(on_blocker_failure="run", max_attempts=20).call(),
        )
        ids = [blocker.chain_id for blocker in tasks.app.blockers(group.id)]
        workers = [start(f"w{n}", "--concurrency=4", "--lease=2") for n in range(WORKERS)]
        for kill in range(kills):
            part = (kill + 1) * members // (kills + 2)
            wait("members end", lambda: tasks.app.group(group.id).ended >= part, LIMIT)  # noqa: B023
            workers.pop(0).kill()
            workers.append(start(f"w{WORKERS + kill}", "--concurrency=4", "--lease=2"))
            for id in draw.sample(ids, 5):
                try:
                    tasks.app.cancel(id)
                    tasks.app.retry(id)
                except InvalidState:
                    pass  # it has ended
        wait("nothing is left to do", lambda: not open_jobs(place), LIMIT)
        found = tasks.app.group(group.id)
        attempts = tasks.app.attempts(group.id)
    findings = []
    if (found.state, found.ended) != ("completed", members):
        findings.append(Finding("group", f"it is left as {found!r}"))
    ran = [attempt for attempt in attempts if attempt.outcome in ("completed", "failed")]
    if len(ran) != 1:
        findings.append(Finding("twice", f"its last job ended {len(ran)} times"))
    early = f"""SELECT count(*) FROM towline_blocker AS b
                  JOIN towline_chain AS c ON c.id = b.chain_id
                  JOIN towline_attempt AS a ON a.job_id = b.job_id
                 WHERE b.job_id = {group.id} AND c.ended_at > a.started_at"""
    if early_ones := number(place, early):
        findings.append(Finding("early", f"it began before {early_ones} of its members had ended"))
    for state, count in rows(
        place, "SELECT state, count(*) FROM towline_chain WHERE state = 0 GROUP BY state"
    ):
        findings.append(Finding("open", f"{count} chains are {state}"))
    return findings


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--members", type=int, default=2000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="groups-") as folder:
        with places(chosen.engine, Path(folder)) as place:
            findings = storm(place, chosen.members, chosen.kills, chosen.seed)
    print(
        f"{chosen.engine}: {chosen.members} members, {chosen.kills} kills, {len(findings)} findings"
    )
    for finding in findings:
        print(f"  {finding.kind}: {finding.text}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
