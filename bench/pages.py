"""How many pages of the write-ahead log does a job cost?

Pages are what SQLite writes, syncs and copies into the database; their number is the same on every
run. They are counted from the log, which starts empty for each measurement, and told apart by the
table or index they belong to.

    python -m bench.pages                    # a quarter of a minute
    python -m bench.pages --quick            # fewer jobs
"""

from __future__ import annotations

import argparse
import sqlite3
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from msgspec.structs import replace

from bench.seed import OUTPUT, Numbers, new_job, queue_names, register, seed
from towline import Towline
from towline.model import Claimed, Ending, NewJob, Outcome

HEADER = 32
FRAME_HEADER = 24
PAGE = 4096
BACKLOG = 20_000
# An earlier study of the layout counted these on a prototype: a chain row, no roll-up.
STUDY = {"enqueue": "4.62 (5.75)", 1: "4.70 + 1.0", 10: "0.97 + 0.10", 100: "0.27 + 0.01"}


class Meter:
    """A database whose log is emptied before, and counted after, each measurement."""

    def __init__(self, path: Path, backlog: int) -> None:
        self.path = path
        self.log = path.with_name(path.name + "-wal")
        seed(path, Numbers(pending=backlog))
        self.app = Towline(f"sqlite:///{path}", durable=False)
        self.app.migrate()
        self.worker = register(self.app)
        self.held: list[Claimed] = []

    def frames(self, work: Callable[[], int]) -> tuple[float, dict[str, float]]:
        """Pages per job, and of which table or index; `work` says how many jobs it did."""
        self._empty_log()
        jobs = work()
        text = self.log.read_bytes()
        pages = [
            struct.unpack_from(">I", text, at)[0]
            for at in range(HEADER, len(text), FRAME_HEADER + PAGE)
        ]
        assert len(text) == HEADER + len(pages) * (FRAME_HEADER + PAGE)
        names = self._names()
        counted = Counter(names.get(page, "free, or the file's own") for page in pages)
        return len(pages) / jobs, {name: n / jobs for name, n in counted.most_common()}

    def _empty_log(self) -> None:
        connection = sqlite3.connect(self.path)
        try:
            busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            assert not busy
        finally:
            connection.close()
        assert self.log.stat().st_size == 0

    def _names(self) -> dict[int, str]:
        """Page by page, whose it is; nothing where SQLite was built without dbstat."""
        connection = sqlite3.connect(self.path)
        try:
            rows = connection.execute("SELECT pageno, name FROM dbstat").fetchall()
        except sqlite3.OperationalError:
            return {}
        finally:
            connection.close()
        return {page: name.removeprefix("towline_") for page, name in rows}

    def enqueue(self, jobs: int, keyed: int) -> int:
        for number in range(jobs):
            self.app.runner.run(self.app.runner.store.enqueue([job(number, keyed)]))
        return jobs

    def turns(self, size: int, number: int) -> int:
        """Finish as many as were claimed the turn before, and claim again."""
        store, queues = self.app.runner.store, queue_names(1)
        for _ in range(number):
            endings = [Ending(held, Outcome.COMPLETED, output=OUTPUT) for held in self.held]
            self.held = self.app.runner.run(
                store.turn(self.worker, "bench", queues, size, endings)
            ).claimed
            assert len(self.held) == size
        return number * size


def job(number: int, keyed: int) -> NewJob:
    """One in `keyed` jobs has a key; 0 for none."""
    plain = new_job(number)
    return replace(plain, key=f"key {number}") if keyed and number % keyed == 0 else plain


def main() -> None:
    parser = argparse.ArgumentParser(description="Pages of the log per job.")
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    singles = 400 if quick else 1500
    print(f"Pages per job; {BACKLOG:,} jobs pending, 250 B of arguments, 100 B of output.\n")
    print("| what | here | the study, + roll-up | most of them |\n|---|---|---|---|")

    def show(what: str, study: str, measured: tuple[float, dict[str, float]]) -> None:
        pages, names = measured
        most = ", ".join(f"{name} {share:.2f}" for name, share in list(names.items())[:7])
        print(f"| {what} | **{pages:.2f}** | {study} | {most} |", flush=True)

    with tempfile.TemporaryDirectory(prefix="towline-") as name:
        meter = Meter(Path(name) / "pages.db", BACKLOG)
        for keyed, what in ((0, "single enqueue"), (10, "single enqueue, one in ten with a key")):
            show(what, STUDY["enqueue"], meter.frames(lambda k=keyed: meter.enqueue(singles, k)))  # type: ignore[misc]
        for size, number in ((1, singles), (10, singles // 5), (100, singles // 20)):
            meter.turns(size, 1)
            measured = meter.frames(lambda k=size, n=number: meter.turns(k, n))  # type: ignore[misc]
            show(f"turn of {size}", STUDY[size], measured)
        meter.app.close()


if __name__ == "__main__":
    main()
