"""Jobs that a worker has claimed ahead, when slow ones follow quick ones: finding A4.

    python -m tests.faults.claimed_ahead --engine sqlite

A. One worker of concurrency 4 has done 4,000 quick jobs; 40 of 5 s follow, and twelve more such
   workers come: seconds until 40 of their slots are busy.
B. 30 workers of concurrency 1 have done 10,000 quick jobs; 60 naps of 1 s follow: seconds until
   all have ended. Two rounds would be 2.
C. Two workers of concurrency 1 have done 1,500 quick jobs; a handler waits for a job that it has
   enqueued, ten times: seconds for the slowest.

It prints figures, and exits with 1 when nothing was shared: more than 5 s for any of them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.faults import tasks
from tests.faults.fresh import Place, places
from tests.faults.workers import at, number, open_jobs, registered, wait

RUNNING = "SELECT count(*) FROM towline_live WHERE started_at IS NOT NULL"
ENDED = "SELECT count(*) FROM towline_attempt WHERE outcome = 1"
MOST = "SELECT max(number) FROM towline_attempt"
LIMIT = 5.0  # seconds


def quickly(place: Place, jobs: int) -> None:
    tasks.app.enqueue_many([tasks.silent.call() for _ in range(jobs)])
    wait("the quick ones have ended", lambda: not open_jobs(place))


def slow_after_quick(place: Place) -> float:
    """A: how long until all that could run does."""
    with at(place) as start:
        start("w0", "--concurrency=4", "--log-level=warning")
        wait("it is there", lambda: registered(place) == 1)
        quickly(place, 4000)
        tasks.app.enqueue_many([tasks.nap.call(5.0) for _ in range(40)])
        wait("it works on the slow ones", lambda: number(place, RUNNING) > 0)
        for worker in range(1, 13):
            start(f"w{worker}", "--concurrency=4", "--log-level=warning")
        wait("all are there", lambda: registered(place) == 13)
        began = time.monotonic()
        before = number(place, ENDED)
        wait(
            "all run, or have",
            lambda: number(place, RUNNING) + number(place, ENDED) - before >= 40,
        )
        took = time.monotonic() - began
        wait("all have ended", lambda: not open_jobs(place))
    return took


def naps_after_quick(place: Place, workers: int = 30) -> float:
    """B: how long many single slots take for twice as many naps."""
    with at(place) as start:
        for worker in range(workers):
            start(f"w{worker}", "--concurrency=1", "--log-level=warning")
        wait("all are there", lambda: registered(place) == workers)
        quickly(place, 10_000)
        began = time.monotonic()
        tasks.app.enqueue_many([tasks.nap.call(1.0) for _ in range(2 * workers)])
        wait("all have ended", lambda: not open_jobs(place))
        return time.monotonic() - began


def waits_for_its_child(place: Place) -> float:
    """C: a handler waits for a job that its own worker could have claimed behind it."""
    worst = 0.0
    with at(place) as start:
        for worker in range(2):
            start(f"w{worker}", "--concurrency=1", "--log-level=warning")
        wait("both are there", lambda: registered(place) == 2)
        for _ in range(10):
            quickly(place, 1500)
            began = time.monotonic()
            tasks.parent.enqueue().result(timeout=120)
            worst = max(worst, time.monotonic() - began)
    return worst


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    chosen = parser.parse_args(arguments)
    scenes: dict[str, Callable[[Place], float]] = {
        "A, 40 of 5 s on 13 x 4 slots, all busy": slow_after_quick,
        "B, 60 naps of 1 s on 30 x 1 slots": naps_after_quick,
        "C, a handler waits for its own job": waits_for_its_child,
    }
    late = 0
    for name, scene in scenes.items():
        with tempfile.TemporaryDirectory(prefix="ahead-") as folder:
            with places(chosen.engine, Path(folder)) as place:
                took = scene(place)
                most = number(place, MOST)
        late += took > LIMIT
        print(f"{chosen.engine}, {name}: {took:.1f} s, highest attempt {most}", flush=True)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
