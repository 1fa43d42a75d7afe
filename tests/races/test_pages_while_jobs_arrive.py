"""Pages are read while jobs arrive at one and the same time: cursors lose and repeat nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from tests.kit import Clock, claim, completed, new
from towline import Towline
from towline.operation import Op

THERE = 300


class Arrivals:
    """A thread that keeps storing jobs, and ends some of its own, until it is told to stop."""

    def __init__(self, app: Towline) -> None:
        self.app = app
        self.stored = 0
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Arrivals:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        store = self.app.runner.store
        try:
            while not self._stop.is_set():
                self.app.runner.run(
                    store.enqueue([new("a", queue=q, priority=5) for q in ("x", "y")])
                )
                held = self.app.runner.run(Op("claim", lambda: claim(store, 1, queues=["x"])))
                self.app.runner.run(store.finish([completed(job) for job in held]))
                self.stored += 2
        except BaseException as error:
            self.errors.append(error)


def walk(read: Callable[..., Any], arrivals: Arrivals, **where: Any) -> Iterator[int]:
    """Every id, page by page; between pages at least two more jobs arrive."""
    cursor: str | None = None
    while True:
        page = read(limit=25, cursor=cursor, **where)
        yield from (item.id for item in page)
        cursor = page.cursor
        if cursor is None:
            return
        before = arrivals.stored
        while arrivals.stored < before + 2 and not arrivals.errors:
            threading.Event().wait(0.0005)


def test_R1_newest_first_pages_hold_every_job_once_while_others_arrive(
    app: Towline, clock: Clock
) -> None:
    queues = ["x", "y", "z"]
    there = app.runner.run(
        app.runner.store.enqueue(
            [new("ab"[i % 2], queue=queues[i % 3], label="l") for i in range(THERE)]
        )
    )
    ids = [record.id for record, _ in there]
    with Arrivals(app) as arrivals:
        walks = [
            (ids, list(walk(app.jobs, arrivals))),
            (ids, list(walk(app.chains, arrivals))),
            (ids, list(walk(app.jobs, arrivals, label="l"))),
            (ids[::2], list(walk(app.jobs, arrivals, task="a"))),
            (ids[1::3], list(walk(app.jobs, arrivals, queue="y"))),
            (ids[2::3], list(walk(app.jobs, arrivals, state="pending", queue="z"))),
            (ids, list(walk(app.chains, arrivals, state="open"))),
        ]
    assert arrivals.errors == []
    for expected, seen in walks:
        assert seen == sorted(set(seen), reverse=True)
        assert sorted(id for id in seen if id <= THERE) == expected


def test_R1_oldest_first_pages_catch_up_with_what_arrives(app: Towline, clock: Clock) -> None:
    app.runner.run(app.runner.store.enqueue([new("a", queue="x") for _ in range(THERE)]))
    with Arrivals(app) as arrivals:
        pages = walk(app.jobs, arrivals, newest=False)
        seen = [next(pages) for _ in range(THERE + 20)]
    assert arrivals.errors == []
    assert seen == list(range(1, THERE + 21))
