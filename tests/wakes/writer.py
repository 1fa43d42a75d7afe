"""Another process, which commits and tells as it is ordered: `python -m tests.wakes.writer URL`.

Each line is an order, answered with a line when it is done. Every order that writes to a database
stores one thing more: a row in `mine` or a job.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from subprocess import PIPE, Popen
from typing import Any

from tests.kit import new
from tests.races.together import begin, own_connection
from tests.sqlite.processes import ROOT, OtherProcess
from towline import Towline
from towline.wakes import open_wake

STORED = "SELECT (SELECT count(*) FROM mine) + (SELECT count(*) FROM towline_job)"
LARGE = 3_000_000  # bytes, more than SQLite keeps in memory before it writes to the log


@contextmanager
def writer(url: str) -> Iterator[OtherProcess]:
    """Run it beside us; it is gone at the end."""
    command = [sys.executable, "-W", "error", "-m", "tests.wakes.writer", url]
    with Popen(command, cwd=ROOT, stdin=PIPE, stdout=PIPE, text=True) as process:
        try:
            yield OtherProcess(process)
        finally:
            process.kill()


class Writer:
    """What can be ordered; the words after the first are arguments."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._apps: dict[bool, Towline] = {}
        self._own: Any = None

    def insert(self, level: str = "FULL") -> None:
        """A row by plain SQL, as an application does that knows nothing of us."""
        own = self._connection(level)
        begin(own)
        own.execute("INSERT INTO mine DEFAULT VALUES")
        own.commit()

    def large(self, level: str = "FULL") -> None:
        """The same in a transaction that is written to the log before it is committed."""
        own = self._connection(level)
        self._fill(own)
        own.execute("INSERT INTO mine DEFAULT VALUES")
        own.commit()

    def undone(self) -> None:
        """Written to the log, and taken back: nothing is stored."""
        own = self._connection("FULL")
        self._fill(own)
        own.rollback()

    def many(self, number: str, level: str = "NORMAL") -> None:
        for _ in range(int(number)):
            self.insert(level)

    def truncate(self) -> None:
        """Begin the log anew."""
        ((busy, *_),) = self._connection("FULL").execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert not busy

    def enqueue(self, durable: str = "FULL", queue: str = "default") -> None:
        """A job in a transaction of ours."""
        app = self._app(durable == "FULL")
        app.runner.run(app.runner.store.enqueue([new(queue=queue)]))

    def caller(self, queue: str = "default") -> None:
        """A job in a transaction of the application's own."""
        own = self._connection("FULL")
        begin(own)
        app = self._app(True)
        app.runner.run(app.runner.store.enqueue([new(queue=queue)]), on=own)
        own.commit()

    def silent(self) -> None:
        """A job that is announced to nobody."""
        with closing(Towline(self._url, notify=False)) as app:
            app.runner.run(app.runner.store.enqueue([new()]))

    def tell(self, url: str, channel: str, *queues: str) -> None:
        with closing_wake(url, channel) as wake:
            wake.tell(queues)

    def _app(self, durable: bool) -> Towline:
        if durable not in self._apps:
            self._apps[durable] = Towline(self._url, durable=durable)
        return self._apps[durable]

    def _connection(self, level: str) -> Any:
        if self._own is None:
            self._own = own_connection(self._url)
        if self._url.startswith("sqlite"):
            self._own.execute(f"PRAGMA synchronous = {level}")
        return self._own

    def _fill(self, own: Any) -> None:
        own.execute("PRAGMA cache_size = 10")
        begin(own)
        own.execute("CREATE TABLE IF NOT EXISTS large (content BLOB)")
        own.execute("INSERT INTO large VALUES (zeroblob(?))", [LARGE])


@contextmanager
def closing_wake(url: str, channel: str) -> Iterator[Any]:
    wake = open_wake(url, channel)
    try:
        yield wake
    finally:
        wake.stop()


def main() -> None:
    each = Writer(sys.argv[1])
    for line in sys.stdin:
        order, *words = line.split()
        getattr(each, order)(*words)
        print("done", flush=True)


if __name__ == "__main__":
    main()
