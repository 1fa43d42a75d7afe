"""What the demo shows, act by act; each raises when something is not as promised."""

from __future__ import annotations

import time

from towline import Outcome, State

from .crew import Crew
from .ledger import ORDERS, Figures, Ledger, connect, expect
from .screen import Screen
from .shop import CROWD, add, app, charge, count_stock, publish, resize, send_receipt

PATIENCE = 60.0  # seconds for what takes a moment
PICTURES = 8
BATCH = 500
BACKLOG = 2000  # the producer pauses while so many wait


class Acts:
    """The acts share a crew of workers and a screen, and count what they ask for."""

    def __init__(self, crew: Crew, screen: Screen, ledger: Ledger) -> None:
        self._crew = crew
        self._screen = screen
        self._ledger = ledger
        self.figures = Figures()

    def chain(self) -> None:
        """A chain of three jobs whose first one fails at first."""
        self._screen.act("A chain with a retry")
        job = charge.enqueue(1)
        output = job.result(timeout=PATIENCE)
        first = app.attempts(job.id)[0]
        expect(first.outcome is Outcome.FAILED, f"attempt 1 ended {first.outcome}, not failed")
        reason = (first.error or "").splitlines()[-1].rpartition(".")[2]
        self._screen.line(f"charge, attempt 1: {reason}")
        self._screen.line(
            "charge, attempt 2 → pack → ship: a step's end and the next job, one commit"
        )
        self._screen.line(output, mark="good")
        self.figures.enqueued += 1
        self.figures.continued += 2
        self.figures.retries += 1

    def fan_in(self) -> None:
        """Many jobs, and one that waits for all of them and gets their outputs."""
        self._screen.act("A job that waits for others")
        calls = [resize.call(picture) for picture in range(PICTURES)]
        *_, job = app.enqueue_many([*calls, publish.using(after=calls).call("summer")])
        self._screen.line(f"{PICTURES} × resize, and publish behind them: {job.state}")
        output = job.result(timeout=PATIENCE)
        wanted = f"summer: {PICTURES} pictures, {sum(map(resize, range(PICTURES)))} KB"
        expect(output == wanted, f"publish said {output!r}, not {wanted!r}")
        self._screen.line(output, mark="good")
        self.figures.enqueued += PICTURES + 1

    def rollback(self) -> None:
        """An order and its job in one transaction of the application's own connection."""
        self._screen.act("Your row and its job in one transaction")
        connection = connect(app.url)
        try:
            connection.execute(f"INSERT INTO {ORDERS} (item) VALUES ('kettle')")
            send_receipt.using(on=connection).enqueue(2)
            connection.rollback()
            orders, jobs = self._ledger.orders(), self._ledger.jobs("task = 'send_receipt'")
            expect(orders == jobs == 0, f"a rollback left {orders} orders and {jobs} jobs")
            self._screen.line(f"INSERT, enqueue, ROLLBACK: {orders} orders, {jobs} jobs")
            connection.execute(f"INSERT INTO {ORDERS} (item) VALUES ('kettle')")
            job = send_receipt.using(on=connection).enqueue(2)
            connection.commit()
        finally:
            connection.close()
        output = job.result(timeout=PATIENCE)
        orders, jobs = self._ledger.orders(), self._ledger.jobs("task = 'send_receipt'")
        self._screen.line(
            f"INSERT, enqueue, COMMIT: {orders} order, {jobs} job: {output}", mark="good"
        )
        self.figures.enqueued += 1
        self.figures.orders += 1

    def kill(self) -> int:
        """A worker dies in the middle of a job. Returns the job: it comes back a little later."""
        self._screen.act("A worker killed with -9")
        job = count_stock.enqueue()
        end = time.monotonic() + PATIENCE
        while job.refresh().progress is None:  # a handler that has not begun loses nothing
            _wait(end, "the job did not begin")
        victim = job.worker or ""
        pid = self._crew.kill(victim)
        self._screen.line(f"job {job.id} runs in {victim}: kill -9 {pid}")
        self._crew.start("worker-3")  # what a supervisor does
        while app.attempts(job.id)[0].outcome is not Outcome.LOST:
            _wait(end, "nobody noticed that the worker is gone")
        self._screen.line("another worker noticed: attempt 1 is lost, the job comes back soon")
        self.figures.enqueued += 1
        self.figures.killed += 1
        return job.id

    def crowd(self, seconds: float) -> None:
        """As many small jobs as the workers can do in the time, each commit safe on disk."""
        self._screen.act(f"Many jobs for {seconds:g} s on {len(self._crew)} worker processes")
        done, asked, base = 0, 0, _crowd_done()
        began = moved_at = time.monotonic()
        with self._screen.progress() as rate:
            while done < asked or time.monotonic() < began + seconds:
                if asked - done < BACKLOG and time.monotonic() < began + seconds:
                    app.enqueue_many([add.call(n, 1) for n in range(asked, asked + BATCH)])
                    asked += BATCH
                else:
                    time.sleep(0.02)
                before, done = done, _crowd_done() - base
                moved_at = time.monotonic() if done > before else moved_at
                _check(moved_at + PATIENCE, f"{asked - done} jobs do not move")
                rate.show(done, asked)
        took = time.monotonic() - began
        self._screen.line(f"{asked:,} jobs in {took:.1f} s: {asked / took:,.0f}/s", mark="good")
        self.figures.enqueued += asked
        self.figures.crowd, self.figures.crowd_seconds = asked, took

    def takeover(self, id: int) -> None:
        """The job of the killed worker ends well in another one."""
        self._screen.act("The job of the killed worker")
        job = app.job(id)
        if job.state.open:
            self._screen.line("still waits for its back-off: jobs that died together spread out")
        output = job.result(timeout=PATIENCE)
        self._screen.line(f"job {id} ran in {job.refresh().worker}: {output}", mark="good")


def _crowd_done() -> int:
    """How many of the small jobs have completed, by the roll-up."""
    return int(app.counts().get(CROWD, {}).get(State.COMPLETED, 0))


def _wait(end: float, problem: str) -> None:
    _check(end, problem)
    time.sleep(0.02)


def _check(end: float, problem: str) -> None:
    expect(time.monotonic() < end, f"{problem}, for {PATIENCE:g} s")
