"""`drain`: run what can run now, one job after another, in the thread of the test.

It claims and finishes as a worker does, under a registration of its own. What a handler's value or
error means is said by `worker/ending.py`, here as there. It cannot do what needs a second thread:
nothing interrupts a handler, so timeouts and cancellation while it runs are for a real worker.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from ..app import Towline
from ..app.handles import Job
from ..errors import InvalidSetting, InvalidState, InvalidTask, StoreError, TowlineError
from ..model import ChainState, Claimed, Ending, Outcome
from ..operation import Loss, Op
from ..store.turn import promote, unpark
from ..task.retry import Signal
from ..times import MICRO
from ..worker.attempt import Attempt
from ..worker.ending import released
from ..worker.identity import identity_of
from .clock import Clock
from .crash import NAME, Crash

LIMIT = 10_000
LEASE = 10 * 365 * 24 * 3600 * MICRO  # a test moves its clock as it likes
TRIES, PAUSE = 250, 0.02  # to record an ending that touches locked rows


def drain(
    app: Towline,
    *,
    raising: bool = True,
    until: Job[Any] | None = None,
    advance: bool = False,
    limit: int = LIMIT,
) -> int:
    """Run jobs until nothing is left that could run now; return how many attempts that took.

    Continuations, freed dependents and what handlers enqueue are run too; what is due later is not,
    unless `advance` moves the app's `Clock` to it. An exception of a handler is recorded as always
    and then raised here, with its own traceback; `raising=False` only records it. `Retry`,
    `Snooze`, `Cancel` and `Fail` are no errors. `until` stops when the chain of that job has ended,
    and fails if it does not. More than `limit` attempts are taken for a circle.
    """
    # The runner opens a loop with the first handler that awaits.
    with Drain(app, raising, until, advance, limit) as line, closing(asyncio.Runner()) as runner:
        for attempt in line.attempts():
            awaits = inspect.iscoroutinefunction(attempt.task.function)
            if awaits:
                _refuse_beside_a_loop(attempt)
            attempt.begin()
            line.record(attempt, runner.run(attempt.arun()) if awaits else attempt.run())
        return line.number


async def adrain(
    app: Towline,
    *,
    raising: bool = True,
    until: Job[Any] | None = None,
    advance: bool = False,
    limit: int = LIMIT,
) -> int:
    """`drain` inside a running event loop: awaiting handlers run on it, blocking ones block it."""
    with Drain(app, raising, until, advance, limit) as line:
        for attempt in line.attempts():
            attempt.begin()
            if inspect.iscoroutinefunction(attempt.task.function):
                line.record(attempt, await attempt.arun())
            else:
                line.record(attempt, attempt.run())
        return line.number


class Drain:
    """A worker without threads: gives out attempts one by one and records how each ended."""

    def __init__(
        self, app: Towline, raising: bool, until: Job[Any] | None, advance: bool, limit: int
    ) -> None:
        self._app = app
        self._run = app.runner.run
        self._store = app.runner.store
        self._raising = raising
        self._until = until
        self._clock = _clock_of(app) if advance else None
        self._limit = limit
        self._name = f"{NAME}-{os.getpid()}-{os.urandom(3).hex()}"
        self._worker = 0
        self._open: Attempt | None = None  # given out, and not recorded yet
        self._error: BaseException | None = None  # of its handler
        self.number = 0

    def __enter__(self) -> Drain:
        self._worker = self._run(
            self._store.register(
                self._name, host=socket.gethostname(), pid=os.getpid(),
                birth=identity_of(os.getpid()), version="test", queues=[], concurrency=1,
                lease=LEASE,
            )
        )  # fmt: skip
        tasks, queues = sorted(self._app.registry), sorted(self._app.counts())
        op = Op("unpark", unpark, self._store, tasks, queues, loss=Loss.WITH_WORKERS)
        while self._run(op):
            pass
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Crash):  # who dies does not sign off
            return
        if self._open is not None:
            self._run(self._store.finish([released(self._open)], self._name))
        self._run(self._store.unregister(self._worker))

    def attempts(self) -> Iterator[Attempt]:
        """Claimed attempts, each to be run and recorded before the next is asked for."""
        while not self._is_reached():
            attempt = self._open = self._claim()
            if attempt is None:
                self._complain_if_open()
                return
            if self.number >= self._limit:
                raise AssertionError(
                    f"there is still work after {self._limit} attempts, next {attempt}: "
                    "does a job start itself again and again? limit= allows more"
                )
            yield attempt

    def record(self, attempt: Attempt, ending: Ending | None) -> None:
        """Store how it ended, then raise what the handler raised. A crash stores nothing."""
        if isinstance(self._error, Crash):
            raise self._error
        self._open = None
        self.number += 1
        if attempt.progress is not None:
            self._run(self._store.progress([(attempt.held, *attempt.progress)]))
        if ending is not None:
            self._finish(attempt, ending)
        error = self._error
        if error is None or isinstance(error, Signal):
            return
        put_back = ending is not None and ending.outcome is Outcome.SNOOZED
        if isinstance(error, KeyboardInterrupt) or (self._raising and not put_back):
            held = attempt.held
            error.add_note(f"in attempt {held.attempt} of job {held.job_id} ({held.task})")
            raise error

    # ---- inside

    def _claim(self) -> Attempt | None:
        """The next attempt; None when nothing can run any more."""
        app, run, store = self._app, self._run, self._store
        while True:
            while run(Op("promote", promote, store, loss=Loss.WITH_WORKERS)):
                pass
            claimed = run(store.claim(self._worker, sorted(app.counts()), 1, self._name))
            if not claimed:
                if self._clock is None or (due := run(store.peek(())).next_due) is None:
                    return None
                self._clock.advance_to(due)
                continue
            (held,) = claimed
            if held.task in app.registry:
                blockers = run(store.blockers([held.job_id])).get(held.job_id, ())
                self._error = None
                return Attempt(
                    app, app.registry[held.task], held, blockers,
                    worker=self._name, on_error=self._note_error,
                )  # fmt: skip
            self._park(held)

    def _note_error(self, error: BaseException) -> None:
        self._error = error

    def _park(self, held: Claimed) -> None:
        self._run(self._store.park([held]))
        if self._raising:
            raise InvalidTask(
                f"job {held.job_id} is for task {held.task}, which this app does not have: "
                "is the module that defines it imported?"
            )

    def _finish(self, attempt: Attempt, ending: Ending) -> None:
        try:
            for _ in range(TRIES):
                op = self._store.finish([ending], self._name, self._worker)
                if not self._run(op).postponed:
                    return
                time.sleep(PAUSE)
        except StoreError:
            raise
        except TowlineError as problem:  # a continuation that cannot be stored
            self._error = problem
            self._finish(attempt, ending.refused(problem))
            return
        raise InvalidState(
            f"the end of {attempt} cannot be stored: another transaction holds what it touches; "
            "commit what the test has open"
        )

    def _is_reached(self) -> bool:
        until = self._until
        return until is not None and self._app.chain(until.chain_id).state is not ChainState.OPEN

    def _complain_if_open(self) -> None:
        if self._until is None:
            return
        last = self._app.chain(self._until.chain_id).last
        where = "" if last is None else f"; job {last.id} ({last.task}) is {last.state}"
        if last is not None and last.run_at is not None and last.state == "scheduled":
            where += f" until {last.run_at.isoformat()}"
        raise AssertionError(
            f"nothing more can run, and chain {self._until.chain_id} has not ended{where}"
        )


def _clock_of(app: Towline) -> Clock:
    clock = app.runner.store.clock
    if not isinstance(clock, Clock):
        raise InvalidSetting(
            "advance=True moves the test's clock: use isolated(app, clock=Clock())"
        )
    return clock


def _refuse_beside_a_loop(attempt: Attempt) -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise InvalidState(
        f"task {attempt.task.name} awaits, and an event loop runs here already: "
        "say `await adrain(app)`"
    )
