"""Does retention keep up with a steady rate?

    python -m tests.faults.retention --minutes 5 --rate 600
    python -m tests.faults.retention --minutes 5 --rate 600 --server "postgres 18"

One process enqueues at the rate, a worker beside it runs the jobs and keeps ended ones for a
minute. Every fifteen seconds: jobs ended, chains kept, those older than kept and two rounds of
pruning allow, and the size of the database. The last column must stay at nothing, and the size must
stop growing.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.races.auditor import ask, open_reader
from tests.races.storm import opened
from towline import Towline

KEEP = 60.0
ALLOWED = KEEP + 90.0  # kept, and the time between two rounds


def run(url: str, minutes: float, rate: float) -> int:
    """Print the figures; return how many rows were overdue at the end."""
    app = Towline(url, keep_completed=KEEP, durable=False)

    @app.task
    def work(n: int) -> int:
        return n

    with closing(app), closing(open_reader(url)) as reader:
        app.migrate()
        until = time.monotonic() + minutes * 60
        stored = [0]

        def produce() -> None:
            began = time.monotonic()
            while time.monotonic() < until:
                behind = int((time.monotonic() - began) * rate) - stored[0]
                if behind > 0:
                    app.enqueue_many([work.call(n) for n in range(min(behind, 200))])
                    stored[0] += min(behind, 200)
                time.sleep(0.02)

        producer = threading.Thread(target=produce)
        print("    s    stored      kept   overdue       MB")
        began = time.monotonic()
        overdue = 0
        with app.worker(concurrency=4, name="retention"):
            producer.start()
            while producer.is_alive():
                producer.join(15)
                overdue = look(reader, began, stored[0])
        return overdue


def look(reader: Any, began: float, stored: int) -> int:
    ((kept,),) = ask(reader, "SELECT count(*) FROM towline_chain")
    limit = int((time.time() - ALLOWED) * 1e6)
    ((overdue,),) = ask(reader, f"SELECT count(*) FROM towline_chain WHERE ended_at < {limit}")
    print(
        f"{time.monotonic() - began:5.0f} {stored:9} {kept:9} {overdue:9} {size(reader):8.1f}",
        flush=True,
    )
    return int(overdue)


def size(reader: Any) -> float:
    try:
        ((bytes_,),) = ask(reader, "SELECT pg_database_size(current_database())")
    except Exception:
        ((bytes_,),) = ask(
            reader, "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()"
        )
    return float(bytes_) / 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--rate", type=float, default=600)
    parser.add_argument("--server", default="sqlite", metavar="NAME")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, opened(given.server, Path(folder)) as url:
        return 1 if run(url, given.minutes, given.rate) else 0


if __name__ == "__main__":
    raise SystemExit(main())
