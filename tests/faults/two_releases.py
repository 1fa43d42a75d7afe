"""Two releases on one queue: an old worker that does not know the new task, and one that does.

    python -m tests.faults.two_releases --engine sqlite --jobs 200

Both idle, with the default lease of 30 s. Jobs of the new task come one by one; each runs at once,
in the new worker (finding S3). Prints how long they took. Exit code 1 if any took a second.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.faults.fresh import Place, places
from tests.faults.workers import ROOT, registered, wait
from towline import Towline

LONG = 1.0  # seconds that no job takes
PROGRAM = """
import sys
from towline import Towline
app = Towline(sys.argv[1])

@app.task
def a(number: int) -> int:
    return number

if sys.argv[2] == "new":
    @app.task
    def b(number: int) -> int:
        return number

app.worker(name=sys.argv[2]).run()
"""


def two_releases(place: Place, jobs: int) -> list[float]:
    """Seconds from before the enqueue to the known end of each job."""
    program = place.folder / "release.py"
    program.write_text(PROGRAM)
    workers: list[subprocess.Popen[bytes]] = []
    took = []
    try:
        for number, release in enumerate(("old", "new"), start=1):
            command = [sys.executable, str(program), place.url, release]
            workers.append(
                subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
            )
            wait(f"{release} is there", lambda: registered(place) == number)  # noqa: B023
        with closing(Towline(place.url)) as app:

            @app.task
            def b(number: int) -> int:
                return number

            for number in range(jobs):
                time.sleep(0.02)
                began = time.monotonic()
                job = b.enqueue(number)
                assert job.result(timeout=120) == number
                took.append(time.monotonic() - began)
                assert job.refresh().worker == "new"
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return sorted(took)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=200)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="releases-") as folder:
        with places(chosen.engine, Path(folder)) as place:
            took = two_releases(place, chosen.jobs)
    late = sum(seconds > LONG for seconds in took)
    print(
        f"{chosen.engine}: {len(took)} jobs, p50 {took[len(took) // 2] * 1000:.0f} ms, "
        f"worst {took[-1] * 1000:.0f} ms, over {LONG:g} s: {late}"
    )
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
