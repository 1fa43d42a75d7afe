"""How many bytes of write-ahead log does a job cost on PostgreSQL?

Bytes are what the server writes, syncs and sends to its replicas; their number is nearly the same
on every run. Read from the log's own position, with full_page_writes off: what a checkpoint makes
the server write again depends on when it comes.

    python -m bench.postgres_wal                     # a quarter of a minute
    python -m bench.postgres_wal --server "postgres 16"
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg
from msgspec.structs import replace

from bench._server import add_option, quiet_server, run_sql, version
from bench.seed import OUTPUT, Numbers, new_job, queue_names, register, seed_postgres
from towline import Towline
from towline.model import Claimed, Ending, Outcome

BACKLOG = 20_000
# An earlier study of the layout measured these on a prototype without a chain row and roll-up; the
# chain row was then found to add about 24 %.
STUDY = {"enqueue": 984, 1: 771, 10: 703, 100: 710}


class Meter:
    """A database whose log's position is read before and after each measurement."""

    def __init__(self, url: str) -> None:
        seed_postgres(url, Numbers(pending=BACKLOG))
        run_sql(url, b"VACUUM (ANALYZE)", b"CHECKPOINT")
        self.raw = psycopg.connect(url, autocommit=True)
        self.app = Towline(url, notify=False)
        self.worker = register(self.app)
        self.held: list[Claimed] = []

    def position(self) -> int:
        ((at,),) = self.raw.execute("SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint")
        assert isinstance(at, int)
        return at

    def bytes(self, work: Callable[[], int]) -> float:
        """Per job; `work` says how many jobs it did."""
        before = self.position()
        jobs = work()
        return (self.position() - before) / jobs

    def enqueue(self, jobs: int, keyed: bool = False) -> int:
        for number in range(jobs):
            job = new_job(number)
            if keyed:
                job = replace(job, key=f"key {number}")
            self.app.runner.run(self.app.runner.store.enqueue([job]))
        return jobs

    def enqueue_many(self, jobs: int) -> int:
        self.app.runner.run(
            self.app.runner.store.enqueue([new_job(number) for number in range(jobs)])
        )
        return jobs

    def turns(self, size: int, number: int) -> int:
        """Finish as many as were claimed the turn before, and claim again."""
        for _ in range(number):
            endings = [Ending(held, Outcome.COMPLETED, output=OUTPUT) for held in self.held]
            turn = self.app.runner.store.turn(self.worker, "bench", queue_names(1), size, endings)
            self.held = self.app.runner.run(turn).claimed
            assert len(self.held) == size
        return number * size


def main() -> None:
    parser = argparse.ArgumentParser(description="Bytes of the log per job.")
    add_option(parser)
    options = parser.parse_args()
    with quiet_server(options.server, full_page_writes="off") as server, server.database() as url:
        print(
            f"Bytes of log per job; {BACKLOG:,} jobs pending, 250 B of arguments, 100 B of output. "
            f"PostgreSQL {version(url)}.\n"
        )
        print("| what | here | the study | of it |\n|---|---|---|---|")

        def show(what: str, measured: float, study: int | None = None) -> None:
            compared = f"{study} | {measured / study:.2f}" if study else "| "
            print(f"| {what} | **{measured:.0f}** | {compared} |", flush=True)

        meter = Meter(url)
        with closing(meter.app), closing(meter.raw):
            show("single enqueue", meter.bytes(lambda: meter.enqueue(1000)), STUDY["enqueue"])
            show("single enqueue with a key", meter.bytes(lambda: meter.enqueue(1000, True)))
            show("enqueue of 100", meter.bytes(lambda: meter.enqueue_many(100)))
            show("enqueue of 5,000", meter.bytes(lambda: meter.enqueue_many(5000)))
            for size, number in ((1, 1000), (10, 200), (100, 50)):
                meter.turns(size, 1)
                measured = meter.bytes(lambda k=size, n=number: meter.turns(k, n))  # type: ignore[misc]
                show(f"turn of {size}", measured, STUDY[size])


if __name__ == "__main__":
    main()
