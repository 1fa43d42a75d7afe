"""This tree beside another revision of it: is what people do all day still as fast?

    python -m bench.revisions 8b38e9d --engine sqlite
    python -m bench.revisions HEAD~1 --engine postgres --rounds 7

Each figure is taken in a process of its own, on a database of its own, the two revisions in turn
and the one that begins changing with every round; what is printed last is the ratio of the medians
(above 1: this tree is faster). Wall time tells what users see, and the processor's time of the
process, with that of process slots, which a noisy machine disturbs less, what the library itself
costs. `drain call` has handlers that make a system call, and so give the interpreter away. Calls
are timed in twenty parts: the median of their wall times, the least of their processor's.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.servers import quiet_server

HERE = Path(__file__).resolve().parents[1]

# Runs in either revision: only what both have always had. Process slots import it once more.
SCRIPT = """
import os, sys, time
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from towline import Towline

kind, url, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
app = Towline(url)

@app.task
def plain(n: int) -> int:
    return n

NOWHERE = os.open(os.devnull, os.O_WRONLY)

@app.task
def calling(n: int) -> int:
    os.write(NOWHERE, b"n")
    return n

@app.task
async def awaiting(n: int) -> int:
    return n

@app.task(run_in="process")
def apart(n: int) -> int:
    return n

def enqueue():
    for n in range(count):
        plain.enqueue(n)

def read():
    for _ in range(count):
        app.job(job.id)

def processor():
    used = [getrusage(who) for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)

def timed(work):
    used, wall = processor(), time.perf_counter()
    work()
    return (time.perf_counter() - wall) / count * 1e6, (processor() - used) / count * 1e6

if __name__ == "__main__":
    app.migrate()
    if kind.startswith("drain"):
        kinds = {"call": calling, "async": awaiting, "process": apart}
        task = kinds.get(kind.removeprefix("drain "), plain)
        app.enqueue_many([task.call(n) for n in range(count)])
        worker = app.worker(concurrency=2 if task is apart else 8, drain=True)
        wall, cpu = timed(worker.run)
    else:  # the least disturbed of twenty parts
        for n in range(50):
            job = plain.enqueue(n)
        count //= 20
        taken = [timed(enqueue if kind == "enqueue" else read) for _ in range(20)]
        wall = sorted(wall for wall, _ in taken)[10]
        cpu = min(cpu for _, cpu in taken)
    print(wall, cpu)
"""

COUNTS = {
    "sqlite": {
        "enqueue": 3_000, "read": 20_000, "drain": 20_000, "drain call": 20_000,
        "drain async": 20_000, "drain process": 10_000,
    },
    "postgres": {
        "enqueue": 1_500, "read": 5_000, "drain": 15_000, "drain call": 15_000,
        "drain async": 15_000, "drain process": 10_000,
    },
}  # fmt: skip


def measure(script: Path, root: Path, kind: str, url: str, count: int) -> tuple[float, float]:
    ran = subprocess.run(
        [sys.executable, str(script), kind, url, str(count)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise SystemExit(f"{kind} in {root} ended with {ran.returncode}:\n{ran.stderr}")
    wall, cpu = ran.stdout.split()
    return float(wall), float(cpu)


@contextmanager
def databases(engine: str, folder: Path) -> Iterator[Callable[[], str]]:
    """Gives a URL of a new, empty database each time it is called."""
    made = 0
    if engine == "sqlite":

        def file() -> str:
            nonlocal made
            made += 1
            return f"sqlite:///{folder}/{made}.db"

        yield file
        return
    with quiet_server() as server:
        yield server.create


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("revision", help="what this tree is compared with, as git names it")
    parser.add_argument("--engine", choices=COUNTS, default="sqlite")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=COUNTS["sqlite"], action="append")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="towline-revisions-") as name:
        folder = Path(name)
        script, other = folder / "script.py", folder / "other"
        script.write_text(SCRIPT)
        subprocess.run(["git", "clone", "-q", str(HERE), str(other)], check=True)
        subprocess.run(["git", "checkout", "-q", options.revision], cwd=other, check=True)
        with databases(options.engine, folder) as database:
            for kind, count in COUNTS[options.engine].items():
                if options.only and kind not in options.only:
                    continue
                taken: dict[Path, list[tuple[float, float]]] = {HERE: [], other: []}
                for round_ in range(options.rounds):
                    for root in (HERE, other) if round_ % 2 else (other, HERE):
                        taken[root].append(measure(script, root, kind, database(), count))
                for index, what in enumerate(("wall", "cpu")):
                    before, now = (
                        [figures[index] for figures in taken[root]] for root in (other, HERE)
                    )
                    print(
                        f"{kind:13} {what:5} µs each"
                        f"  {options.revision}: {' '.join(f'{x:.1f}' for x in before)}"
                        f"  now: {' '.join(f'{x:.1f}' for x in now)}"
                        f"  ratio {statistics.median(before) / statistics.median(now):.2f}"
                        f" best {min(before) / min(now):.2f}",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
