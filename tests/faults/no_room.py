"""No room: a worker of a user who may have no more threads or processes for a while (finding A6).

    python -m tests.faults.no_room            as root: it becomes the user nobody

The kernel refuses (RLIMIT_NPROC counts threads too, and root is never refused). Jobs on threads, on
the loop and in processes are stored meanwhile; when there is room again all must complete, none
with an attempt used, and the stop must end. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import threading
import time
from collections import Counter

from towline import Towline

LIMIT = 60.0

app = Towline()


@app.task
def blocking(n: int) -> int:
    time.sleep(0.05)
    return n


@app.task
async def awaiting(n: int) -> int:
    return n


@app.task(run_in="process")
def apart(n: int) -> int:
    return n


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="without room")
    parser.add_argument("--jobs", type=int, default=6, help="of each kind")
    options = parser.parse_args()
    if os.getuid() == 0:
        # It may still read what only root may, such as an interpreter in root's home.
        keep = "-all,+dac_read_search"
        who = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        who += [f"--inh-caps={keep}", f"--ambient-caps={keep}", sys.executable]
        os.execvp("setpriv", [*who, "-m", "tests.faults.no_room", *sys.argv[1:]])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TOWLINE_URL"] = f"sqlite:///{folder}/jobs.db"
        app.use(os.environ["TOWLINE_URL"])
        return judge(options.seconds, options.jobs)


def judge(seconds: float, number: int) -> int:
    most = resource.getrlimit(resource.RLIMIT_NPROC)
    worker = app.worker(concurrency=4, grace=2).start()
    tasks = (blocking, awaiting, apart)
    blocking.enqueue(0).result(LIMIT)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, most[1]))
    jobs = [task.enqueue(n) for n in range(number) for task in tasks]
    time.sleep(seconds)
    meanwhile = Counter(str(app.job(job.id).state) for job in jobs)
    resource.setrlimit(resource.RLIMIT_NPROC, most)
    began = time.monotonic()
    wrong = 0
    for job in jobs:
        job.result(LIMIT)
        wrong += [str(one.outcome) for one in app.attempts(job.id)] != ["completed"]
    needed = time.monotonic() - began
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    stopping.join(LIMIT)
    stuck = stopping.is_alive()
    print(
        f"{len(jobs)} jobs, {seconds:g} s without room: {dict(meanwhile)}; then all completed in "
        f"{needed:.1f} s, {wrong} with an attempt used; the stop {'hangs' if stuck else 'ended'}"
    )
    app.close()
    sys.stdout.flush()
    return 1 if wrong or stuck else 0


if __name__ == "__main__":
    os._exit(main())
