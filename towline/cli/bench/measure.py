"""What `towline bench` measures: each figure for a share of the time, with the CPU time of this
process beside it. What they mean is in `limits`."""

from __future__ import annotations

import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from statistics import quantiles
from typing import NamedTuple

import click
from msgspec import Struct

from ...app import Towline
from ...errors import StoreUnavailable
from ...exit_codes import FAILED
from ...operation import Op, Query, Steps
from .tables import OWNER, table

THREADS = 8  # that enqueue at a time
SLOTS = 8  # handlers of the worker at a time
BATCH = 1000  # jobs of one bulk enqueue
FEW = 500  # jobs of the first drain, which says how many the second may have
PAGES, PAGE = 4, 4096  # that one enqueue writes, and their bytes
PAUSE = (0.015, 0.035)  # seconds between jobs, so that the worker is idle again
PATIENCE = 60.0  # seconds without a sign of life
CALLS = 10_000
ROUNDS = 3


class Stuck(click.ClickException):
    """A worker that should work does not."""

    exit_code = FAILED


class Figure(Struct, frozen=True, kw_only=True):
    """So many operations in so many seconds, and the CPU seconds of this process meanwhile."""

    count: int
    seconds: float
    cpu: float
    p50: float | None = None  # seconds
    p99: float | None = None

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def each(self) -> float:
        """Seconds per operation; where there are percentiles, of the middle one."""
        return self.seconds / self.count if self.p50 is None else self.p50

    @property
    def cpu_each(self) -> float:
        return self.cpu / self.seconds * self.each

    def __add__(self, more: Figure) -> Figure:
        """Both rounds together."""
        return Figure(
            count=self.count + more.count,
            seconds=self.seconds + more.seconds,
            cpu=self.cpu + more.cpu,
        )


class Step(NamedTuple):
    """One thing to measure, and the share of the time it has."""

    name: str
    what: str
    share: float
    measure: Callable[[float], Figure]
    rounds: int = 1


class Proof(Struct, frozen=True, kw_only=True):
    """What the database says of all that was enqueued and run."""

    enqueued: int
    stored: int
    handed: int  # to the worker
    ran: int  # calls of handlers
    completed: int  # jobs
    attempts: int

    @property
    def holds(self) -> bool:
        once = self.handed == self.ran == self.completed == self.attempts
        return once and self.enqueued == self.stored


def timed(work: Callable[[], int], seconds: float) -> Figure:
    """Do it again and again, at least once; it says how many operations it was."""
    count = 0
    cpu, began = time.process_time(), time.perf_counter()
    while True:
        count += work()
        now = time.perf_counter()
        if now - began >= seconds:
            return Figure(count=count, seconds=now - began, cpu=time.process_time() - cpu)


class Bench:
    """Measures one database with an app that has tables of its own there."""

    def __init__(self, app: Towline) -> None:
        self.app = app
        self.is_file = app.runner.engine.name == "sqlite"
        self.durable = app.settings.engine.durable
        self._ran: list[tuple[int, float]] = []  # calls of handlers: their number, and when
        self._began = threading.Event()
        self._enqueued = self._handed = 0
        self._bulk_rate = 1.0
        self._keep = app.task(queue="kept", name="keep")(_number)  # which nobody works on

        def note(number: int) -> None:
            self._ran.append((number, time.perf_counter()))
            self._began.set()

        self._drained = app.task(queue="drained", name="drained")(note)
        self._started = app.task(queue="started", name="started")(note)

    # ---- the list

    def steps(self) -> Iterator[Step]:
        """Everything that is measured, in order; the limits first. All shares add up to 1."""
        yield Step("cpu", "Python function calls", 0.04, calls, ROUNDS)
        if self.is_file:
            yield Step("sync", "sync of the disk", 0.08, self._syncs, ROUNDS)
        else:
            yield Step("round_trip", "round trip, SELECT 1", 0.04, self._round_trips, ROUNDS)
            yield Step("sync", "commit of one row", 0.06, self._commits, ROUNDS)
        yield Step("enqueue", "enqueue, 1 thread", 0.15, self._enqueue, ROUNDS)
        if self.durable:
            yield Step(
                "enqueue_not_durable", "enqueue, durable=False", 0.08, self._not_durable, ROUNDS
            )
        yield Step(
            "enqueue_threads", f"enqueue, {THREADS} threads", 0.15, self._enqueue_threads, ROUNDS
        )
        yield Step("bulk", f"enqueue_many of {BATCH:,}", 0.12, self._bulk)
        yield Step("drain", "drain, one worker", 0.24, self._drain)
        yield Step("start", "enqueue → start, idle", 0.14, self._start)

    # ---- the limits

    def _syncs(self, seconds: float) -> Figure:
        """Write to the end of a file beside the database and sync it, as a commit does with the
        log while that grows."""
        folder = os.path.dirname(self.app.runner.engine.place)
        try:
            return self._syncs_in(folder, seconds)
        except OSError as error:
            raise StoreUnavailable(f"{folder} cannot be written to: {error.strerror}") from error

    def _syncs_in(self, folder: str, seconds: float) -> Figure:
        pages = os.urandom(PAGES * PAGE)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".towline-bench-") as file:
            descriptor = file.fileno()

            def sync() -> int:
                os.write(descriptor, pages)
                os.fsync(descriptor)
                return 1

            sync()  # the file has a place
            return timed(sync, seconds)

    def _round_trips(self, seconds: float) -> Figure:
        return timed(self._statement("ping", "SELECT 1"), seconds)

    def _commits(self, seconds: float) -> Figure:
        text = f"UPDATE {table(self.app, OWNER)} SET beats = beats + 1"
        return timed(self._statement("beat", text), seconds)

    def _statement(self, name: str, text: str) -> Callable[[], int]:
        """Run one statement, which commits by itself."""
        query, engine = Query(name, text), self.app.runner.engine

        def steps() -> Steps[int]:
            yield query()
            return 1

        op = Op(name, steps, single=True)
        engine.run(op)  # the connection is opened, the statement is known
        return lambda: engine.run(op)

    # ---- enqueueing

    def _one(self) -> int:
        self._keep.enqueue(0)
        return 1

    def _enqueue(self, seconds: float) -> Figure:
        self._one()
        self._enqueued += 1
        figure = timed(self._one, seconds)
        self._enqueued += figure.count
        return figure

    def _not_durable(self, seconds: float) -> Figure:
        self.app.use(self.app.url, durable=False)
        try:
            return self._enqueue(seconds)
        finally:
            self.app.use(self.app.url, durable=True)

    def _enqueue_threads(self, seconds: float) -> Figure:
        """Several threads at once; who is interrupted waits for them."""
        stop, ready = threading.Event(), threading.Barrier(THREADS + 1)
        counts, errors = [0] * THREADS, list[BaseException]()

        def work(number: int) -> None:
            try:
                counts[number] += self._one()
                ready.wait(PATIENCE)
                while not stop.is_set():
                    counts[number] += self._one()
            except threading.BrokenBarrierError:
                pass  # it is over, or another thread says why
            except BaseException as error:
                errors.append(error)
                ready.abort()

        threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(THREADS)]
        try:
            for thread in threads:
                thread.start()
            try:
                ready.wait(PATIENCE)
            except threading.BrokenBarrierError:
                pass  # the error of the thread is raised below
            first, cpu, began = sum(counts), time.process_time(), time.perf_counter()
            stop.wait(seconds)
            while sum(counts) == first and not errors:
                stop.wait(0.001)
            count = sum(counts) - first
            took, used = time.perf_counter() - began, time.process_time() - cpu
        finally:
            stop.set()
            ready.abort()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        self._enqueued += sum(counts)
        if errors:
            raise errors[0]
        return Figure(count=count, seconds=took, cpu=used)

    def _bulk(self, seconds: float) -> Figure:
        def batch() -> int:
            return len(self.app.enqueue_many([self._keep.call(0) for _ in range(BATCH)]))

        figure = timed(batch, seconds)
        self._enqueued += figure.count
        self._bulk_rate = figure.rate
        return figure

    # ---- working

    def _drain(self, seconds: float) -> Figure:
        """As many jobs as fit into the time, which a first few say."""
        rate = self._drain_of(FEW if seconds > 1 else FEW // 5).rate
        number = round(seconds / (1 / self._bulk_rate + 1 / rate))
        return self._drain_of(min(max(number, FEW // 5), 1_000_000))

    def _drain_of(self, number: int) -> Figure:
        """Run so many jobs; the time is that from the first start to the last."""
        for first in range(0, number, BATCH):
            few = range(first, min(first + BATCH, number))
            self.app.enqueue_many([self._drained.call(n) for n in few])
        self._enqueued += number
        self._handed += number
        before, cpu = len(self._ran), time.process_time()
        with self.app.worker(queues=["drained"], concurrency=SLOTS):
            self._wait_for(before + number)
            used = time.process_time() - cpu
        times = [at for _, at in self._ran[before:]]
        took = max(max(times) - min(times), 1e-6)
        return Figure(count=number, seconds=took, cpu=min(used, took * (os.cpu_count() or 1)))

    def _wait_for(self, number: int) -> None:
        seen, since = -1, time.monotonic()
        while (ran := len(self._ran)) < number:
            if ran != seen:
                seen, since = ran, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                raise Stuck(f"{number - ran} jobs do not start: no sign of life for {PATIENCE:g} s")
            time.sleep(0.005)

    def _start(self, seconds: float) -> Figure:
        """One job after the other: from the call of enqueue to the call of its handler."""
        taken: list[float] = []
        with self.app.worker(queues=["started"], concurrency=SLOTS):
            self._start_one()  # its threads are there
            cpu = 0.0
            end = time.perf_counter() + seconds
            while len(taken) < 3 or time.perf_counter() < end:
                time.sleep(random.uniform(*PAUSE))
                before = time.process_time()
                taken.append(self._start_one())
                cpu += time.process_time() - before
        cuts = quantiles(taken, n=100, method="inclusive")
        return Figure(count=len(taken), seconds=sum(taken), cpu=cpu, p50=cuts[49], p99=cuts[98])

    def _start_one(self) -> float:
        self._began.clear()
        self._enqueued += 1
        self._handed += 1
        began = time.perf_counter()
        self._started.enqueue(self._handed)
        if not self._began.wait(PATIENCE):
            raise Stuck(f"a job did not start within {PATIENCE:g} s")
        return self._ran[-1][1] - began

    # ---- the proof

    def proof(self) -> Proof:
        """Count what is stored, and how often each job ran."""
        jobs, attempts = (table(self.app, f"towline_bench_{name}") for name in ("job", "attempts"))
        counted = Query("count", f"SELECT count(*) FROM {jobs}")
        ended = Query(
            "ended",
            "SELECT count(*), count(DISTINCT CASE WHEN outcome = 'completed' THEN job_id END) "
            f"FROM {attempts}",
        )

        def steps() -> Steps[tuple[int, int, int]]:
            ((stored,),) = yield counted()
            ((all_of_them, completed),) = yield ended()
            assert isinstance(stored, int)
            assert isinstance(all_of_them, int)
            assert isinstance(completed, int)
            return stored, all_of_them, completed

        stored, all_of_them, completed = self.app.runner.run(Op("proof", steps, reads=True))
        return Proof(
            enqueued=self._enqueued, stored=stored, handed=self._handed, ran=len(self._ran),
            completed=completed, attempts=all_of_them,
        )  # fmt: skip


def _number(number: int) -> None:
    """Does nothing."""


def calls(seconds: float) -> Figure:
    """Calls of a Python function that does nothing: how fast this CPU is."""

    def some() -> int:
        for number in range(CALLS):
            _number(number)
        return CALLS

    return timed(some, seconds)
