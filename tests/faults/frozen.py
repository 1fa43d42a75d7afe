"""A worker that is frozen between two statements of a turn, for ever: its jobs are taken over.

    python -m tests.faults.frozen                 # after each statement of a turn
    python -m tests.faults.frozen settle_jobs     # after this one

A paused machine or the cgroup freezer stops a process wherever it stands, and the server keeps the
rows of its open transaction (finding P4). The worker stops itself by SIGSTOP right after the named
statement, with jobs in its hands; another one stands by. Said is how long until it was
swept, and until every job had ended: a lost job runs again after a pause. Exit code 1 if one did
not.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.faults.fresh import places
from tests.faults.workers import ROOT, wait
from towline import Towline
from towline.operation import Row, Statement

LEASE = 2.0
POINTS = (
    "promote_due", "hold_ending", "settle_jobs", "claim_pending",
    "renew_worker", "find_running_of", "list_workers",
)  # fmt: skip
JOBS = 6


def make_app(url: str) -> tuple[Towline, Any]:
    app = Towline(url)

    @app.task
    def nap(seconds: float) -> None:
        time.sleep(seconds)

    return app, nap


def be_frozen(url: str, point: str, gate: str) -> None:
    """In a process of its own: work, and stop after the statement once jobs are in our hands."""
    from towline.postgres.transaction import Transaction

    execute = Transaction.execute

    def stopping(self: Transaction, statement: Statement) -> list[Row]:
        rows = execute(self, statement)
        if statement.query.name == point and os.path.exists(gate):
            os.kill(os.getpid(), signal.SIGSTOP)
        return rows

    setattr(Transaction, "execute", stopping)  # noqa: B010
    app, _ = make_app(url)
    app.worker(concurrency=JOBS, lease=LEASE, name="frozen").run()


def names(app: Towline) -> set[str]:
    return {worker.name for worker in app.runner.run(app.runner.store.workers())}


def is_frozen(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def freeze(url: str, folder: Path, point: str) -> tuple[float, float] | None:
    """Seconds from the freeze until it was swept, and until everything had ended.

    None if it never came to the point.
    """
    gate = folder / f"gate-{point}"
    app, nap = make_app(url)
    app.migrate()
    command = [sys.executable, "-m", "tests.faults.frozen", "--be", url, point, str(gate)]
    worker = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        jobs = [nap.enqueue(0.7) for _ in range(JOBS)]
        wait("they run", lambda: all(job.refresh().state != "pending" for job in jobs))
        jobs += [nap.using(after=[jobs[0]]).enqueue(0.0), nap.using(delay=0.5).enqueue(0.0)]
        jobs += [nap.enqueue(0.0) for _ in range(JOBS)]
        gate.touch()
        try:
            wait(f"it is frozen after {point}", lambda: is_frozen(worker.pid), 10)
        except TimeoutError:
            return None
        began = time.monotonic()
        with app.worker(lease=LEASE, name="other"):
            wait("it is swept", lambda: "frozen" not in names(app), 45)
            swept = time.monotonic() - began
            open_states = ("pending", "running", "scheduled", "blocked")
            wait(
                "all is taken over and ended",
                lambda: not [1 for job in jobs if job.refresh().state in open_states], 45,
            )  # fmt: skip
        return swept, time.monotonic() - began
    finally:
        worker.kill()
        worker.wait()
        app.close()


def main(arguments: Sequence[str]) -> int:
    stuck = 0
    for point in arguments or POINTS:
        with tempfile.TemporaryDirectory(prefix="frozen-") as folder:
            with places("postgres", Path(folder)) as place:
                try:
                    seconds = freeze(place.url, Path(folder), point)
                    said = "never came there"
                    if seconds is not None:
                        said = f"swept after {seconds[0]:.1f} s, all ended {seconds[1]:.1f} s"
                except TimeoutError as error:
                    said = str(error)
                    stuck += 1
        print(f"frozen after {point}, lease {LEASE:g} s: {said}", flush=True)
    return 1 if stuck else 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--be"]:
        be_frozen(*sys.argv[2:])
    else:
        sys.exit(main(sys.argv[1:]))
