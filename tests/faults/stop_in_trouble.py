"""SIGTERM to a worker whose PostgreSQL server is in trouble: finding P11.

    python -m tests.faults.stop_in_trouble

refuses   the server is gone while a handler runs; what it returns cannot be written
silent    its processes are stopped: connections stand, and nobody answers
held      a caller's open transaction holds the ending of a job back
away      the server is gone, and nothing is unwritten

Prints seconds from the signal to the end, and the exit code: 4 when an ending was lost, which the
lease makes good. Exit code 1 when one took longer than its grace and 17 s.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import psycopg

from tests import servers
from tests.database import _furnish_postgres
from tests.faults import tasks
from tests.faults.fresh import Place
from tests.faults.workers import at, number, registered, wait
from tests.servers import DurableServer

GRACE = 5.0
BEYOND = 17.0  # seconds
SCENES = ("refuses", "silent", "held", "away")
RUNNING = "SELECT count(*) FROM towline_live WHERE started_at IS NOT NULL"


def stop_in_trouble(scene: str, server: DurableServer, place: Place) -> tuple[float, int]:
    """Seconds from the signal to the end of the worker, and its exit code."""
    stopped: list[int] = []
    with at(place) as start:
        tasks.app.migrate()
        worker = start("leaving", f"--grace={GRACE}", "--lease=30")
        wait("it is there", lambda: registered(place) == 1)
        with psycopg.connect(place.url) as caller:
            job = None
            if scene != "away":
                job = tasks.nap.enqueue(3.0)
                wait("it runs", lambda: number(place, RUNNING) == 1)
            if scene == "held" and job is not None:
                tasks.silent.using(after=[job], on=caller).enqueue()  # not committed
            elif scene == "silent":
                stopped = backends(server)
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
            tasks.app.close()
            if scene in ("refuses", "away"):
                server.stop("immediate")
            began = time.monotonic()
            worker.signal(signal.SIGTERM)
            try:
                code = worker.process.wait(GRACE + 100)
            finally:
                took = time.monotonic() - began
                for pid in stopped:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
                if scene in ("refuses", "away"):
                    server.start()
            with suppress(psycopg.Error):
                caller.rollback()
    return took, code


def backends(server: DurableServer) -> list[int]:
    """The server's processes: those of connections, and the one that takes new ones."""
    postmaster = server.pid
    assert postmaster is not None
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text()
    return [postmaster, *map(int, children.split())]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("scenes", nargs="*", default=SCENES, help=", ".join(SCENES))
    chosen = parser.parse_args(arguments)
    late = 0
    for scene in chosen.scenes:
        with servers.durable_server(servers.startable()[-1]) as server:
            url = server.create()
            _furnish_postgres(url)
            with tempfile.TemporaryDirectory(prefix="trouble-") as folder:
                place = Place(url, Path(folder))
                took, code = stop_in_trouble(scene, server, place)
                (said, *_) = (place.folder / "leaving.txt").read_text().splitlines()[-2:]
        late += took > GRACE + BEYOND or code not in (0, 4)
        print(f"{scene}: {took:.1f} s after the signal (grace {GRACE:g}), exit code {code}")
        print(f"    {said}", flush=True)
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
