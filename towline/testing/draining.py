"""`drain`: run what can run now, one job after another, in the thread of the test.

It claims and finishes as a worker does, under a registration of its own. What a handler's value or
error means is said by `worker/ending.py`, here as there. It cannot do what needs a second thread:
nothing interrupts a handler, so timeouts and cancellation while it runs are for a real worker.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from ..app import Towline
from ..app.handles import Job
from ..errors import InvalidSetting, InvalidState, InvalidTask, StoreError, TowlineError
from ..model import ChainState, Outcome
from ..operation import Loss, Op
from ..records import BlockerRecord, Claimed, Ending
from ..store.turn import MOST_LOADED, promote, unpark
from ..task import Task
from ..task.retry import Signal
from ..times import MICRO
from ..worker.announcements import Announcements
from ..worker.attempt import Attempt
from ..worker.chunks import ChunkRun, may_share
from ..worker.ending import released
from ..worker.identity import identity_of
from ..worker.settings import check_settings
from .clock import Clock
from .crash import NAME, Crash
from .places import place_of

LIMIT = 10_000
LEASE = 10 * 365 * 24 * 3600 * MICRO  # a test moves its clock as it likes
MOST_IDLE = 1000  # times that the clock is moved in a row without a job that begins
TRIES, PAUSE = 250, 0.02  # to record an ending that touches locked rows


def drain(
    app: Towline,
    *,
    on: object = None,
    raising: bool = True,
    until: Job[Any] | None = None,
    advance: bool = False,
    limit: int = LIMIT,
) -> int:
    """Run jobs until nothing is left that could run now; return how many attempts that took.

    Continuations, freed dependents and what handlers enqueue are run too; what is due later is not,
    unless `advance` moves the app's `Clock` to it. What the code declares is stored first, and
    schedules tick as the test moves the clock; `advance` goes to no tick, since there is always
    another.

    An exception of a handler is recorded as always and then raised here, with its own traceback;
    `raising=False` only records it. `Retry`, `Snooze`, `Cancel` and `Fail` are no errors. `until`
    stops when the chain of that job has ended, and fails if it does not. More than `limit` attempts
    are taken for a circle.

    `on`, a connection or session of the test, is where all of it happens: also inside its open
    transaction, in a savepoint for each attempt. What handlers do without `on=` happens there too.
    """
    with place_of(app, on) as place, closing(asyncio.Runner()) as runner:
        # The runner opens a loop with the first handler that awaits.
        with Drain(app, raising, until, advance, limit) as line:
            for attempt in line.attempts():
                awaits = inspect.iscoroutinefunction(attempt.task.function)
                if awaits:
                    _refuse_beside_a_loop(attempt)
                attempt.begin()
                with place.around(attempt) as around:
                    around.ending = place.run(attempt, runner) if awaits else attempt.run()
                line.record(attempt, around.ending)
            return line.number


async def adrain(
    app: Towline,
    *,
    on: object = None,
    raising: bool = True,
    until: Job[Any] | None = None,
    advance: bool = False,
    limit: int = LIMIT,
) -> int:
    """`drain` inside a running event loop: awaiting handlers run on it, blocking ones block it."""
    with place_of(app, on) as place, Drain(app, raising, until, advance, limit) as line:
        for attempt in line.attempts():
            awaits = inspect.iscoroutinefunction(attempt.task.function)
            attempt.begin()
            with place.around(attempt) as around:
                around.ending = await attempt.arun() if awaits else attempt.run()
            line.record(attempt, around.ending)
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
        settings = check_settings((), name=self._name, concurrency=1, error_text=False)
        self._announce = Announcements(app, settings)

    def __enter__(self) -> Drain:
        # In the order of a count, not of the clock: a test gives the same each time.
        turns = itertools.count()
        vars(self._store)["draw"] = lambda now: next(turns)
        self._worker = self._run(
            self._store.register(
                self._name, host=socket.gethostname(), pid=os.getpid(),
                birth=identity_of(os.getpid()), version="test", queues=[], concurrency=1,
                lease=LEASE,
            )
        )  # fmt: skip
        tasks, queues = self._app.known_tasks, sorted(self._app.counts())
        declarations = self._app.declarations()
        if declarations.schedules:
            self._run(self._store.declare(declarations.schedules, tasks, declarations.digest))
        if declarations.limits:
            _, _, limits, known = declarations
            self._run(self._store.declare_limits(limits, known, declarations.digest))
        op = Op("unpark", unpark, self._store, tasks, queues, loss=Loss.WITH_WORKERS)
        while self._run(op):
            pass
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        vars(self._store).pop("draw", None)
        if isinstance(error, Crash):  # who dies does not sign off
            return
        if self._open is not None:
            left = [released(each) for each, _ in self._open.reports(None)]
            self._run(self._store.finish(left, self._name))
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
        for each, its_own in attempt.reports(ending):
            self.number += 1
            if each.progress is not None:
                self._run(self._store.progress([(each.held, *each.progress)]))
            if its_own is not None:
                self._announce.ended(each, its_own.outcome, its_own)
                self._finish(each, its_own)
                ending = its_own
            else:
                self._announce.ended(each, each.inside)
                self._end_span(each, None, True if each.completed_inside else None)
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
        idle = 0
        while True:
            self._fire()
            while run(Op("promote", promote, store, loss=Loss.WITH_WORKERS)):
                pass
            claimed = run(store.claim(self._worker, sorted(app.counts()), 1, self._name))
            if not claimed:
                queues = sorted(app.counts())
                if self._clock is None or (due := run(store.peek(queues)).next_due) is None:
                    return None
                if idle == MOST_IDLE:  # what a limit holds back never comes
                    return None
                idle += 1
                self._clock.advance_to(due)
                continue
            (held,) = claimed
            task = app.registry.get(held.task) or app.built_in.get(held.task)
            if task is not None:
                few = [held.job_id] if held.blockers <= MOST_LOADED else []
                blockers = run(store.blockers(few)).get(held.job_id, ())
                self._error = None
                attempt = self._attempt(task, held, blockers)
                return attempt if task.chunk is None else self._gathered(task.chunk.size, attempt)
            self._park(held)

    def _fire(self) -> None:
        """The jobs of ticks that have come by the clock."""
        tasks = self._app.known_tasks
        tick = self._run(self._store.peek((), 1, tasks)).next_tick
        while tick is not None and tick <= self._run(Op("now", self._store.now, reads=True)):
            fired = self._run(self._store.fire(tasks))
            tick = fired.next_tick if fired.jobs or not fired.postponed else None

    def _attempt(
        self, task: Task[..., Any], held: Claimed, blockers: Sequence[BlockerRecord] = ()
    ) -> Attempt:
        return Attempt(
            self._app, task, held, blockers, worker=self._name, on_error=self._note_error
        )  # fmt: skip

    def _gathered(self, size: int, first: Attempt) -> ChunkRun:
        """What a worker would run together: those of its task that are next, but none that has
        failed or was lost before."""
        run = ChunkRun.of(first)
        if size == 1 or not may_share(first.held):
            return run
        claim = self._store.claim(self._worker, sorted(self._app.counts()), size - 1, self._name)
        others: list[Ending] = []
        for held in self._run(claim):
            item = self._attempt(first.task, held)
            if held.task == first.held.task and may_share(held):
                run.join(item)
            else:
                others.append(released(item))
        self._run(self._store.finish(others, self._name))
        return run

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
                finished = self._run(op)
                if not finished.postponed:
                    self._announce.written([ending], finished)
                    self._end_span(attempt, ending, bool(finished.accepted))
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

    def _end_span(self, attempt: Attempt, ending: Ending | None, accepted: bool | None) -> None:
        if attempt.span is not None:
            outcome, kind = attempt.inside, None
            if ending is not None:
                outcome, kind = ending.outcome, ending.error_type
            attempt.span.over(time.time_ns(), str(outcome), accepted, kind)

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
