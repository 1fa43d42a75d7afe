"""Threads and processes that begin at the same moment, and workers that leave nothing behind."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psycopg

from tests.forked import CONTEXT
from towline import Towline
from towline.operation import Op, Steps
from towline.records import BlockerRecord, Claimed, Ending
from towline.store.finish import Finished

T = TypeVar("T")

PATIENCE = 30.0  # seconds to wait for the writer, and for each other

Decide = Callable[[Claimed], Ending]


class Run(NamedTuple):
    """One attempt a worker was handed, with what its blockers had ended with by then."""

    job_id: int
    attempt: int
    task: str
    states: tuple[str, ...]
    outputs: tuple[str | None, ...]


def with_app(url: str, work: Callable[[Towline], T]) -> T:
    """Do something with an app of one's own."""
    with closing(Towline(url, durable=False, lock_timeout=PATIENCE)) as app:
        return work(app)


def own_connection(url: str, *, autocommit: bool = False) -> Any:
    """A connection of the application's own, by the database's usual driver; as patient as ours."""
    if not url.startswith("sqlite"):
        return psycopg.connect(url, autocommit=autocommit)
    path = url.removeprefix("sqlite:///")
    connection = sqlite3.connect(
        path, timeout=PATIENCE, isolation_level=None if autocommit else "DEFERRED"
    )
    # An automatic checkpoint of older SQLite can race a writer and spoil the file.
    connection.execute("PRAGMA wal_autocheckpoint = 0")
    return connection


def begin(connection: Any) -> None:
    """Begin a transaction on it that will write. psycopg does so by itself, at any statement."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("BEGIN IMMEDIATE")
    else:
        connection.execute("SELECT 1")


def in_threads(number: int, work: Callable[[int], T]) -> list[T]:
    """Run `work(0)`, `work(1)`, … in threads that begin at the same moment."""
    barrier = threading.Barrier(number)

    def begin(index: int) -> T:
        barrier.wait(PATIENCE)
        return work(index)

    with ThreadPoolExecutor(number) as pool:
        return list(pool.map(begin, range(number)))


def in_processes(number: int, gate: Path, work: Callable[[str, int], T], url: str) -> list[T]:
    """Run `work(url, 0)`, `work(url, 1)`, … in new processes that begin at the same moment.

    They meet in the folder `gate`, which is made for it.
    """
    gate.mkdir()
    with ProcessPoolExecutor(number, mp_context=CONTEXT) as pool:
        futures = [pool.submit(_begin, gate, number, work, url, n) for n in range(number)]
        return [future.result(timeout=2 * PATIENCE) for future in futures]


def _begin(gate: Path, number: int, work: Callable[[str, int], T], url: str, index: int) -> T:
    (gate / str(index)).touch()
    deadline = time.monotonic() + PATIENCE
    while len(os.listdir(gate)) < number:
        assert time.monotonic() < deadline, "the other processes did not come"
        time.sleep(0.0005)
    return work(url, index)


def work_off(
    app: Towline,
    name: str,
    decide: Decide,
    *,
    room: int = 4,
    until: Callable[[], bool] = lambda: True,
) -> list[Run]:
    """Be a worker until nothing is left that could be claimed, and nobody will add to it.

    What it holds is ended in any order, some of it a turn later. Nothing becomes pending without
    a worker at work, so whoever leaves because nothing is due leaves nothing behind.
    """
    store = app.runner.store
    dice = random.Random(name)
    worker = app.runner.run(
        store.register(
            name, host="here", pid=os.getpid(), birth=None, version="0", queues=["default"],
            concurrency=room, lease=10**9,
        )
    )  # fmt: skip
    runs: list[Run] = []
    held: list[Claimed] = []
    owed: list[Ending] = []
    while True:
        dice.shuffle(held)
        some = dice.randint(0, len(held)) if len(held) < room else len(held)
        endings, held = [*owed, *(decide(job) for job in held[:some])], held[some:]
        turn = app.runner.run(store.turn(worker, name, ["default"], room - len(held), endings))
        assert turn.finished.refused == []
        owed = still_owed(endings, turn.finished)
        held += turn.claimed
        runs += [run_of(job, turn.blockers.get(job.job_id, [])) for job in turn.claimed]
        if not held and not owed and until() and not waiting(app, 0, 1, 3):
            return runs


def still_owed(endings: Sequence[Ending], finished: Finished) -> list[Ending]:
    """Endings that touched what somebody else held: a worker keeps them and tries again."""
    postponed = set(finished.postponed)
    return [ending for ending in endings if ending.held.job_id in postponed]


def finish_all_of(app: Towline, endings: Sequence[Ending], worker: str | None = None) -> Finished:
    """Finish, and again what was postponed, until each ending was accepted or refused."""
    total = Finished()
    owed = list(endings)
    while owed:
        finished = app.runner.run(app.runner.store.finish(owed, worker))
        total.accepted += finished.accepted
        total.refused += finished.refused
        owed = still_owed(owed, finished)
        if owed:
            time.sleep(0.0005)  # whoever holds it is about to commit
    return total


def run_of(job: Claimed, blockers: Sequence[BlockerRecord]) -> Run:
    states = tuple(str(blocker.state) for blocker in blockers)
    return Run(job.job_id, job.attempt, job.task, states, tuple(b.output for b in blockers))


def waiting(app: Towline, *states: int, queue: str = "default") -> int:
    """How many jobs of a queue are in these states of `live`."""

    def steps() -> Steps[int]:
        number = 0
        for state in states:
            ((found,),) = yield app.runner.store.sql.count_strip(
                state=state, queue=queue, limit=10**6
            )
            assert isinstance(found, int)
            number += found
        return number

    return app.runner.run(Op("waiting", steps, reads=True))
