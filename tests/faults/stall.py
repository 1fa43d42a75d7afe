"""Stalls: a worker that is stopped for three leases, and handlers that block for as long.

    python -m tests.faults.stall --engine sqlite

Stopped and continued, nothing of what it did is accepted; nor when one of its threads holds the
GIL for so long, and no job of another worker loses its lease by that. A handler that blocks its
thread, its event loop, or holds the GIL in a process slot costs no other job its lease. Exit code 1
otherwise.
"""

from __future__ import annotations

import argparse
import fcntl
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.database import connect
from tests.faults import event_log, tasks
from tests.faults.audit import Audit, judge
from tests.faults.fresh import Place, heal, places, run
from tests.faults.workers import at, open_jobs, registered, rows, running, wait
from tests.races.auditor import open_reader
from tests.races.logs import Finding
from towline import Job

LEASE = 1.0
LEASES = 3  # how long everything stalls
LOST = 7

ENDED = "SELECT job_id, number, outcome FROM towline_attempt ORDER BY job_id, number"


def stop_and_continue(place: Place, how: str, jobs: int = 4) -> Audit:
    """A worker stands still while its handlers run, another takes over what it has and works on
    jobs of its own; then it goes on, and all of its work is refused.

    It is `stopped` by SIGSTOP, or by a handler in a thread that holds the `gil`.
    """
    pause = LEASES * LEASE
    with at(place) as start, open(place.folder / "gil", "w") as gil:
        fcntl.flock(gil, fcntl.LOCK_EX)
        stored: list[Job[Any]] = [tasks.slow_at_first.enqueue(1.0) for _ in range(jobs - 1)]
        stored.append(tasks.books.enqueue(1.0))
        stalled = start("stalled", f"--lease={LEASE}", f"--concurrency={jobs + 1}")
        wait("all of its handlers run", lambda: running(place) == jobs)
        if how == "gil":
            stored.append(tasks.holds_gil_at_first.enqueue(gil.name))
            wait("it holds the GIL", lambda: running(place) == len(stored))
        else:
            with writer_held(place):
                stalled.signal(signal.SIGSTOP)
                wait("all of its threads have stopped", lambda: set(states(stalled.pid)) == {"T"})
        began = time.monotonic()
        others = [tasks.plain.enqueue(pause) for _ in range(4)]
        event_log.write_new(job.id for job in [*stored, *others])
        other = start("other", f"--lease={LEASE}", "--concurrency=12")
        its_own = {job.id for job in stored}
        wait("all of it is taken over", lambda: its_own <= {row[0] for row in rows(place, ENDED)})
        time.sleep(max(pause - (time.monotonic() - began), 0))
        stalled.signal(signal.SIGCONT)
        fcntl.flock(gil, fcntl.LOCK_UN)
        away = time.monotonic() - began
        first = {(job.id, 1) for job in stored}
        wait("its handlers end", lambda: first <= event_log.EventLog.read(place.folder).ends.keys())
        wait("nothing is left to do", lambda: not open_jobs(place))
        codes = [stalled.stop(), other.stop()]
    with closing(open_reader(place.url)) as reader:
        audit = judge(reader, place.folder, len(stored))
    first_ends = [row for row in rows(place, ENDED) if row[1] == 1]
    accepted = [row for row in first_ends if row[0] in its_own and row[2] != LOST]
    lost = [row for row in first_ends if row[0] not in its_own and row[2] == LOST]
    audit.findings += [
        Finding("stale", f"attempt {number} of job {job} of the stalled worker was accepted")
        for job, number, _ in accepted
    ]
    audit.findings += _lost_leases(lost)
    audit.findings += [Finding("exit", f"exit code {code}") for code in codes if code]
    audit.figures["seconds stopped"] = round(away)
    audit.figures["of its attempts accepted"] = len(accepted)
    audit.figures["leases others lost"] = len(lost)
    return audit


@contextmanager
def writer_held(place: Place) -> Iterator[None]:
    """On SQLite nobody else writes meanwhile: a process that is stopped inside a transaction would
    keep everybody from writing. A server ends the transaction of a client that stands still."""
    if not place.url.startswith("sqlite"):
        yield
        return
    with closing(connect(place.url)) as connection:
        connection.execute("PRAGMA busy_timeout = 60000")
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.rollback()


def states(pid: int) -> list[str]:
    """What the threads of a process do: R, S, T…"""
    stats = Path(f"/proc/{pid}/task").glob("*/stat")
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]


def block(place: Place, kind: str) -> Audit:
    """One handler blocks for three leases, others of the same worker run as long beside it, and
    another worker stands by to take over what seems lost."""
    blocking = {
        "thread": tasks.blocks_thread, "loop": tasks.blocks_loop, "gil": tasks.holds_gil_apart,
    }[kind]  # fmt: skip
    pause = LEASES * LEASE
    with at(place) as start:
        worker = start("busy", f"--lease={LEASE}", "--concurrency=12")
        wait("it is there", lambda: registered(place) == 1)
        warm = blocking.enqueue(0.0)  # its process, if it has one, begins now and not meanwhile
        wait("it was there before", lambda: not open_jobs(place))
        beside = [task.enqueue(pause) for task in (tasks.plain, tasks.awaiting) for _ in range(4)]
        wait("the others run", lambda: running(place) == len(beside))
        job = blocking.enqueue(pause)
        wait("it blocks", lambda: running(place) == len(beside) + 1)
        standby = start("standby", f"--lease={LEASE}")
        event_log.write_new(j.id for j in [warm, *beside, job])
        wait("nothing is left to do", lambda: not open_jobs(place))
        codes = [worker.stop(), standby.stop()]
    with closing(open_reader(place.url)) as reader:
        audit = judge(reader, place.folder, 0)
    lost = [row for row in rows(place, ENDED) if row[2] == LOST]
    audit.findings += _lost_leases(lost)
    audit.findings += [Finding("exit", f"exit code {code}") for code in codes if code]
    audit.figures["leases lost"] = len(lost)
    return audit


def _lost_leases(ends: Sequence[tuple[Any, ...]]) -> list[Finding]:
    return [Finding("lease", f"job {job} lost its lease") for job, *_ in ends]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    chosen = parser.parse_args(arguments)
    findings = 0
    scenes: list[tuple[Callable[[Place, str], Audit], str]] = [
        (stop_and_continue, "stopped"), (stop_and_continue, "gil"),
        (block, "thread"), (block, "loop"), (block, "gil"),
    ]  # fmt: skip
    for scene, name in scenes:
        with tempfile.TemporaryDirectory(prefix="stall-") as folder:
            with places(chosen.engine, Path(folder)) as place:
                audit = scene(place, name)
                run(heal, place)
        findings += audit.say(f"{chosen.engine}, {scene.__name__}, {name}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
