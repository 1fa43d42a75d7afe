"""What the demo shows, act by act; each raises when something is not as promised."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Any

from ..errors import WaitTimeout
from ..model import Outcome, State
from ..sqlite.file import path_of
from .crew import Crew
from .screen import Screen
from .shop import CROWD, PREFIX, add, app, charge, count_stock, publish, resize, send_receipt

PATIENCE = 60.0  # seconds for what takes a moment
PICTURES = 8
BATCH = 500
BACKLOG = 2000  # the producer pauses when so many wait


@dataclass
class Figures:
    """What was asked for, to compare with what is in the database at the end."""

    enqueued: int = 0  # by the demo itself
    continued: int = 0  # by the handlers
    crowd: int = 0
    crowd_seconds: float = 0.0
    retries: int = 0
    killed: int = 0
    orders: int = 0


class Acts:
    """The acts share a crew of workers, a screen, and the figures."""

    def __init__(self, crew: Crew, screen: Screen) -> None:
        self.crew = crew
        self.screen = screen
        self.figures = Figures()

    def chain(self) -> None:
        """A chain of three jobs whose first one fails at first."""
        self.screen.act("A chain with a retry")
        job = charge.enqueue(1)
        output = job.result(timeout=PATIENCE)
        first = app.attempts(job.id)[0]
        assert first.outcome is Outcome.FAILED, f"attempt 1 ended {first.outcome}"
        reason = (first.error or "").splitlines()[-1].rpartition(".")[2]
        self.screen.line(f"charge, attempt 1: {reason}")
        self.screen.line("charge, attempt 2 → pack → ship: each step commits with the next job")
        self.screen.line(output, mark="good")
        self.figures.enqueued += 1
        self.figures.continued += 2
        self.figures.retries += 1

    def fan_in(self) -> None:
        """Many jobs, and one that waits for all of them and gets their outputs."""
        self.screen.act("A job that waits for others")
        calls = [resize.call(picture) for picture in range(PICTURES)]
        album = publish.using(after=calls).call("summer")
        *_, job = app.enqueue_many([*calls, album])
        self.screen.line(f"{PICTURES} × resize, and publish, which is {job.state}")
        output = job.result(timeout=PATIENCE)
        assert output == f"summer: {PICTURES} pictures, {sum(map(resize, range(PICTURES)))} KB"
        self.screen.line(output, mark="good")
        self.figures.enqueued += PICTURES + 1

    def rollback(self) -> None:
        """An order and its job in one transaction of the application's own connection."""
        self.screen.act("One transaction: your row and the job")
        connection = connect(app.url)
        try:
            connection.execute(f"INSERT INTO {PREFIX}orders (item) VALUES ('kettle')")
            send_receipt.using(on=connection).enqueue(2)
            connection.rollback()
            left = [
                connection.execute(f"SELECT count(*) FROM {PREFIX}orders").fetchone()[0],
                len(app.jobs(task="send_receipt", since=None)),
            ]
            before = self.figures.orders
            assert left == [before, before], f"a rollback left {left} orders and jobs"
            self.screen.line("INSERT order, enqueue receipt, ROLLBACK: 0 orders, 0 jobs")
            connection.execute(f"INSERT INTO {PREFIX}orders (item) VALUES ('kettle')")
            job = send_receipt.using(on=connection).enqueue(2)
            connection.commit()
        finally:
            connection.close()
        output = job.result(timeout=PATIENCE)
        self.screen.line(f"the same and COMMIT: 1 order, 1 job: {output}", mark="good")
        self.figures.enqueued += 1
        self.figures.orders += 1

    def kill(self) -> int:
        """A worker dies in the middle of a job. Returns the job: it comes back a little later."""
        self.screen.act("A worker killed with -9")
        job = count_stock.enqueue()
        end = time.monotonic() + PATIENCE
        while job.refresh().state is not State.RUNNING:
            _wait(end, "the job was not claimed")
        victim = job.worker or ""
        self.screen.line(f"job {job.id} runs in {victim}: kill -9 {self.crew.kill(victim)}")
        self.crew.start("worker-3")  # what a supervisor does
        while not (lost := app.attempts(job.id)) or lost[0].outcome is not Outcome.LOST:
            _wait(end, "nobody noticed that the worker is gone")
        self.screen.line("noticed: attempt 1 is lost; the job comes back after a back-off")
        self.figures.enqueued += 1
        self.figures.killed += 1
        return job.id

    def crowd(self, seconds: float) -> None:
        """As many small jobs as the workers can do in the time, each commit safe on disk."""
        self.screen.act(f"Many jobs, for {seconds:g} s, on {len(self.crew)} worker processes")
        done, asked, began = 0, 0, time.monotonic()
        base = crowd_done()
        moved_at = began
        with self.screen.progress() as rate:
            while done < asked or time.monotonic() < began + seconds:
                if asked - done < BACKLOG and time.monotonic() < began + seconds:
                    app.enqueue_many([add.call(n, 1) for n in range(asked, asked + BATCH)])
                    asked += BATCH
                else:
                    time.sleep(0.02)
                before, done = done, crowd_done() - base
                moved_at = time.monotonic() if done > before else moved_at
                _check(moved_at + PATIENCE, f"{asked - done} jobs do not move")
                rate.show(done, asked)
        took = time.monotonic() - began
        self.screen.line(f"{asked:,} jobs in {took:.1f} s: {asked / took:,.0f}/s", mark="good")
        self.figures.enqueued += asked
        self.figures.crowd, self.figures.crowd_seconds = asked, took

    def takeover(self, id: int) -> None:
        """The job of the killed worker ends well in another one."""
        job = app.job(id)
        if job.state.open:
            self.screen.line(f"job {id} waits for the rest of its back-off …")
        output = job.result(timeout=PATIENCE)
        job.refresh()
        self.screen.line(f"job {id} was taken over by {job.worker}: {output}", mark="good")


def crowd_done() -> int:
    """How many of the small jobs have completed, by the roll-up."""
    return int(app.counts().get(CROWD, {}).get(State.COMPLETED, 0))


def connect(url: str) -> Any:
    """A connection as an application has one."""
    if app.engine.name == "sqlite":
        return sqlite3.connect(path_of(url), timeout=30)
    import psycopg

    return psycopg.connect(url)


def _wait(end: float, problem: str) -> None:
    _check(end, problem)
    time.sleep(0.02)


def _check(end: float, problem: str) -> None:
    if time.monotonic() > end:
        raise WaitTimeout(f"{problem} within {PATIENCE:g} s")
