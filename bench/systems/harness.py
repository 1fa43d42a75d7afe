"""What every adapter needs; of the standard library only, since it runs in each peer's environment.

A handler that ran is 24 bytes in a journal: the number of its job, the time by a clock that all
processes of a machine share, and which worker it was. A journal is appended to by one write for
each job, so that workers may share it, and whatever dies loses nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Params = Mapping[str, Any]
Role = Callable[[Params], Mapping[str, Any] | None]

ENTRY = struct.Struct("<qqq")
TEXT = "x" * 100  # what a job carries beside its number
WARM = 50  # enqueues before the clock starts: connections, prepared statements, imports
PAUSE = (0.03, 0.08)  # seconds of silence before each job of a pulse
PATIENCE = 15.0  # seconds that a pulse waits for one job


class Journal:
    """Where handlers write that they ran."""

    def __init__(self, path: str, worker: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        self._worker = worker

    def ran(self, number: int) -> None:
        os.write(self._file, ENTRY.pack(number, time.monotonic_ns(), self._worker))


_journal: Journal | None = None


def ran(number: int) -> None:
    """A job's whole work: note that it ran. The journal is named by the worker's environment."""
    global _journal
    if _journal is None:
        _journal = Journal(os.environ["BENCH_JOURNAL"], int(os.environ.get("BENCH_WORKER", "0")))
    _journal.ran(number)


def main(roles: Mapping[str, Role]) -> None:
    """Run the role that the command line names and print what it returns."""
    name, params = sys.argv[1], json.loads(sys.argv[2])
    if "journal" in params:
        os.environ["BENCH_JOURNAL"] = params["journal"]
        os.environ["BENCH_WORKER"] = str(params.get("worker", 0))
    if name not in roles:
        raise SystemExit(f"no role {name} here")
    answer = roles[name](params)
    print(json.dumps(dict(answer or {})), flush=True)


def gate() -> None:
    """Say that everything is loaded, and wait: workers start together, and what is looked at from
    outside is looked at now."""
    print("ready", flush=True)
    sys.stdin.readline()


def wait_for_stop() -> None:
    """For workers that run beside the main thread: wait for SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    stop.wait()


def written() -> int:
    """Bytes that this process has handed to write calls."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return 0
    return int(dict(line.split(": ") for line in text.splitlines())["wchar"])


def timed(count: int, work: Callable[[], object]) -> dict[str, Any]:
    """Run it once, as soon as it may, and say what it took."""
    gate()
    wrote, cpu, wall = written(), time.process_time(), time.perf_counter()
    work()
    seconds = time.perf_counter() - wall
    return {
        "count": count,
        "seconds": seconds,
        "cpu": time.process_time() - cpu,
        "written": written() - wrote,
    }


def one_by_one(params: Params, one: Callable[[int], object]) -> dict[str, Any]:
    """`one(number)` for each number, from one thread or several that begin together."""
    count, threads = int(params["count"]), int(params.get("threads", 1))
    for number in range(WARM):
        one(-number - 1)
    if threads == 1:

        def alone() -> None:
            for number in range(count):
                one(number)

        return timed(count, alone)
    share = count // threads
    ready = threading.Barrier(threads + 1)

    def part(first: int) -> None:
        one(-first - 1)  # a connection for each thread, before the clock starts
        ready.wait()
        for number in range(first, first + share):
            one(number)

    running = [threading.Thread(target=part, args=(n * share,)) for n in range(threads)]
    for thread in running:
        thread.start()

    def all_of_them() -> None:
        ready.wait()
        for thread in running:
            thread.join()

    return timed(share * threads, all_of_them)


def pause(params: Params) -> float:
    """Seconds of silence before a job: long enough to meet a poll at any moment of its beat."""
    return random.uniform(PAUSE[0], max(PAUSE[1], params.get("poll", 0)))


def size(params: Params) -> int:
    return os.stat(params["journal"]).st_size


def pulse(params: Params, one: Callable[[int], object]) -> dict[str, Any]:
    """Store one job at a time, each when the one before has run, and note when its commit had
    returned."""
    returned = []
    for number in range(int(params["count"])):
        time.sleep(pause(params))
        before = size(params)
        one(number)
        returned.append((number, time.monotonic_ns()))
        deadline = time.monotonic() + PATIENCE
        while size(params) == before and time.monotonic() < deadline:
            time.sleep(0.005)
    return {"returned": returned}
