"""Shutdown: SIGTERM to a worker with 50 running jobs, some of which do not end in time.

    python -m tests.faults.shutdown --engine sqlite --jobs 50

All are finished or handed back without a used attempt, and the exit code is 0 (W1). Then clean
workers do the rest. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.faults import event_log, tasks
from tests.faults.audit import Audit, judge
from tests.faults.fresh import Place, heal, places, run
from tests.faults.workers import at, number, rows, running, wait
from tests.races.auditor import open_reader
from tests.races.logs import Finding

SHORT = 1.5  # seconds of a handler that ends within the grace time
LONG = 60.0  # and of one that does not

BACK = "SELECT job_id, state, used, lost FROM towline_live"
ENDED = "SELECT count(*) FROM towline_attempt WHERE final = 1 AND outcome = 1"


def shut_down(place: Place, jobs: int, *, grace: float, long: int) -> Audit:
    """Stop a worker while `jobs` handlers run in slots of every kind, `long` of them for a minute.

    The long ones do not listen: threads that sleep, a loop that awaits, processes.
    """
    kinds = [tasks.slow_at_first, tasks.slow_awaiting_at_first, tasks.slow_at_first]
    with at(place) as start:
        calls = [
            (tasks.slow_apart_at_first if n % 10 == 0 else kinds[n % 3]).call(
                LONG if n < long else SHORT
            )
            for n in range(jobs)
        ]
        worker = start("leaving", f"--concurrency={jobs}", f"--grace={grace}")
        # Processes take a while to begin: the short ones wait until all of them are there.
        tasks.hold(place.folder)
        event_log.write_new(job.id for job in tasks.app.enqueue_many(calls))
        wait("all of them run", lambda: running(place) == jobs)
        tasks.let_go(place.folder)
        began = time.monotonic()
        code = worker.stop()
        took = time.monotonic() - began
    audit = Audit()
    back = rows(place, BACK)
    finished = number(place, ENDED)
    if code:
        audit.findings.append(Finding("exit", f"exit code {code}"))
    if finished + len(back) != jobs:
        audit.findings.append(Finding("lost", f"{finished} finished, {len(back)} handed back"))
    for job, state, used, lost in back:
        if (state, used, lost) != (0, 0, 0):
            text = f"job {job} was left in live state {state}, {used} used and {lost} lost attempts"
            audit.findings.append(Finding("handed back", text))
    if finished < jobs - long:
        audit.findings.append(Finding("grace", f"only {finished} could end in the grace time"))
    run(heal, place)
    with closing(open_reader(place.url)) as reader:
        judged = judge(reader, place.folder, 0)
    audit.findings += judged.findings
    audit.figures.update(
        {"running": jobs, "finished": finished, "handed back": len(back), "exit code": code}
    )
    audit.figures["ms until it was gone"] = round(took * 1000)
    audit.figures["ms of grace"] = round(grace * 1000)
    return audit


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=50)
    chosen = parser.parse_args(arguments)
    findings = 0
    for name, grace, long in (("all end in time", 30.0, 0), ("half do not", 4.0, chosen.jobs // 2)):
        with tempfile.TemporaryDirectory(prefix="shutdown-") as folder:
            with places(chosen.engine, Path(folder)) as place:
                audit = shut_down(place, chosen.jobs, grace=grace, long=long)
        findings += audit.say(f"{chosen.engine}, {name}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
