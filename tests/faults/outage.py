"""An outage of the server: how long until everybody works again (finding P5).

    python -m tests.faults.outage          # 70 and 140 seconds without a server
    python -m tests.faults.outage 20

One thread enqueues all the time and a worker works; the server is stopped for so long. Said is how
many seconds after its return the first enqueue was stored and the first job had run, and how many
connections there are then. Exit code 1 if one of them takes longer than five seconds.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence

import psycopg

from tests import servers
from tests.faults.workers import wait
from towline import Towline
from towline.errors import StoreError

LONGEST = 5.0
COUNT = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'towline'"


def outage(server: servers.DurableServer, seconds: float) -> tuple[float, float, Counter[str]]:
    """Seconds until an enqueue was stored, and until a worker had run a job; errors meanwhile."""
    app = Towline(server.url, connections=2, lock_timeout=1)
    stop = threading.Event()
    stored: list[float] = []
    ran: list[float] = []
    errors: Counter[str] = Counter()

    @app.task
    def note() -> None:
        ran.append(time.monotonic())

    def enqueue() -> None:
        while not stop.wait(0.02):
            try:
                note.enqueue()
                stored.append(time.monotonic())
            except StoreError as error:
                errors[f"{type(error).__name__}: {str(error)[:60]}"] += 1

    thread = threading.Thread(target=enqueue)
    with app.worker(concurrency=2):
        thread.start()
        try:
            wait("it works", lambda: len(ran) > 10)
            server.stop("fast")
            time.sleep(seconds)
            server.start()
            back = time.monotonic()
            wait("an enqueue is stored", lambda: stored[-1] > back)
            wait("a job is run", lambda: ran[-1] > back)
        finally:
            stop.set()
            thread.join()
    with psycopg.connect(server.url) as connection:
        found = connection.execute(COUNT).fetchone()
    errors["connections at the end"] = 0 if found is None else found[0]
    app.close()
    return (
        next(at for at in stored if at > back) - back,
        next(at for at in ran if at > back) - back,
        errors,
    )


def main(arguments: Sequence[str]) -> int:
    logging.getLogger().addHandler(logging.NullHandler())
    slow = 0
    with servers.durable_server(servers.startable()[-1]) as server:
        for seconds in map(float, arguments or ("70", "140")):
            enqueuer, worker, errors = outage(server, seconds)
            print(f"server away for {seconds:g} s: an enqueue is stored {enqueuer:.1f} s after")
            print(f"  its return, a job has run {worker:.1f} s after; {dict(errors)}", flush=True)
            slow += max(enqueuer, worker) > LONGEST
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
