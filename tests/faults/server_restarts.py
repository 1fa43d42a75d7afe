"""Restarts of PostgreSQL under load: workers come back without help, and nothing is lost.

    python -m tests.faults.server_restarts --restarts 20

An immediate stop is a crash: the server recovers from its log. Applications go on to enqueue,
workers go on to work; what was acknowledged is in the event log. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg

from tests import servers
from tests.faults import event_log, tasks
from tests.faults.audit import Audit, judge
from tests.faults.fresh import Place, heal, run
from tests.faults.kills import graph
from tests.faults.workers import at, open_jobs, registered, wait
from tests.races.auditor import open_reader
from tests.races.logs import Finding
from towline import Towline
from towline.errors import StoreError

LEASE = 5.0
WORKERS = 3
CONCURRENCY = 4
BETWEEN = (0.3, 1.5)  # seconds from one recovery to the next crash
MORE = 20  # jobs at least that were acknowledged, and handlers that ended, between two crashes
LONG = 600.0


class Customers:
    """An application that enqueues all the time, and takes a refusal for what it is."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._enqueue)
        self.acknowledged = 0
        self.refused = 0

    def _enqueue(self) -> None:
        while not self._stop.is_set():
            try:
                jobs = tasks.app.enqueue_many(graph(self._dice))
            except StoreError:
                self.refused += 1
            else:
                event_log.write_new(job.id for job in jobs)
                self.acknowledged += len(jobs)
            self._stop.wait(0.03)

    def __enter__(self) -> Customers:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()


def restart_again_and_again(folder: Path, server: str, restarts: int, seed: int = 0) -> Audit:
    """Crash the server under load, again and again; then let the workers do the rest, and judge."""
    dice = random.Random(seed)
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    with servers.durable_server(server) as cluster, furnished(cluster, folder) as place:
        with at(place) as start:
            options = (f"--lease={LEASE}", f"--concurrency={CONCURRENCY}")
            workers = [start(f"w{number}", *options) for number in range(WORKERS)]
            wait("all workers are there", lambda: registered(place) == WORKERS)
            with Customers(seed) as customers:
                for _ in range(restarts):
                    stored, ended = customers.acknowledged, ends(place)
                    wait("jobs are stored", lambda: customers.acknowledged > stored + MORE)  # noqa: B023
                    wait("jobs end", lambda: ends(place) > ended + MORE)  # noqa: B023
                    time.sleep(dice.uniform(*BETWEEN))
                    cluster.stop("immediate")
                    cluster.start()
            wait("nothing is left to do", lambda: not open_jobs(place), LONG)
            died = [worker.name for worker in workers if worker.process.poll() is not None]
            wait("all workers are back", lambda: registered(place) >= WORKERS - len(died))
            codes = [worker.stop() for worker in workers]
        run(heal, place)
        most = restarts * WORKERS * CONCURRENCY * 2  # in hand, and ended but not recorded
        with closing(open_reader(place.url)) as reader:
            audit = judge(reader, place.folder, most)
    audit.findings += [Finding("worker", f"{name} did not survive") for name in died]
    audit.findings += [Finding("exit", f"exit code {code}") for code in codes if code]
    audit.figures["restarts"] = restarts
    audit.figures["acknowledged"] = customers.acknowledged
    audit.figures["refused"] = customers.refused
    audit.figures["workers back"] = WORKERS - len(died)
    return audit


def ends(place: Place) -> int:
    return (place.folder / event_log.NAME).read_bytes().count(b'"e": "end"')


@contextmanager
def furnished(cluster: servers.DurableServer, folder: Path) -> Iterator[Place]:
    """A database there with our tables and `mine`, and a folder for the event log."""
    url = cluster.create()
    with closing(Towline(url)) as app:
        app.migrate()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE mine (id bigint PRIMARY KEY)")
    book = folder / "event log"
    book.mkdir()
    (book / event_log.NAME).touch()
    yield Place(url, book)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--restarts", type=int, default=20)
    parser.add_argument("--server", default=servers.startable()[-1])
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="restarts-") as folder:
        audit = restart_again_and_again(Path(folder), chosen.server, chosen.restarts, chosen.seed)
    return 1 if audit.say(chosen.server) else 0


if __name__ == "__main__":
    sys.exit(main())
