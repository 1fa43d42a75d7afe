"""Chunks in a worker: claimed jobs of a chunk task are gathered, and one slot runs them together.

    claimed ──► gathering ──(size, or wait)──► one call of the handler ──► each item ends by itself
        ├── failed before ──► a chunk of its own
        └── lost before ──► a chunk of its own, no other such item beside it in this worker

Each item is an attempt like any other: it is held, renewed, cancelled and ended alone. What a slot
has is the chunk, which takes as much room as one attempt.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec import field

from ..errors import InvalidArguments, OutputError
from ..records import Claimed, Ending
from ..secret import HIDDEN, without
from ..store.expiry import expiry
from ..task import Task
from ..times import MICRO
from .attempt import Attempt, Report
from .duty import NEVER
from .ending import of_value, put_off
from .last_try import WAIT_FOR_OTHERS
from .middleware import MiddlewareStack
from .own_commit import awrite, is_large, write


def hide_secrets(reports: Sequence[Report]) -> None:
    """What one error says of all items is stored with each: without the secrets of any, since who
    is shown one of these jobs does not know those of the others."""
    texts = {ending.error for _, ending in reports if ending is not None and ending.error}
    if not texts:
        return
    known = [item.secrets() for item, _ in reports]
    ways = {way for each in known for way in each or () if any(way in text for text in texts)}
    secrets = sorted(ways, key=len, reverse=True)
    told = {text: HIDDEN if None in known else without(text, secrets) for text in texts}
    for _, ending in reports:
        if ending is not None and ending.error:
            ending.error = told[ending.error]


class ChunkRun(Attempt, eq=False):
    """The items of one call of a handler, as their slot sees them: one attempt. Its context, which
    middleware gets, is that of the first."""

    items: list[Attempt] = field(default_factory=list)
    left: int = 0  # of the items, those that are not over
    _ends: list[Report] | None = None

    @classmethod
    def of(cls, first: Attempt) -> ChunkRun:
        run = cls(first.app, first.task, first.held, worker=first.worker, claimed=first.claimed)
        run.join(first)
        return run

    def join(self, item: Attempt) -> None:
        item.chunk = self
        self.items.append(item)
        self.left += 1

    def drop_over(self) -> bool:
        """Leave out what has gone back or is not ours any more; whether something is left."""
        self.items = [item for item in self.items if not (item.withdrawn or item.over)]
        return bool(self.items)

    # ---- what its slot calls

    def begin(self, at: float | None = None) -> bool:
        with self._mutex:
            if self.withdrawn or self.begun is not None:
                return not self.withdrawn
            self.items = [item for item in self.items if item.begin(at)]
            if not self.items:
                self.withdrawn = True
                return False
            self.begun = self.items[0].begun
            times = [item.deadline for item in self.items if item.deadline is not None]
            for item in self.items if times else ():
                item.deadline = min(times)
            return True

    def withdraw(self) -> bool:
        withdrawn = [item.withdraw() for item in self.items]
        self.withdrawn = all(withdrawn)
        return self.withdrawn

    def reports(self, ending: Ending | None) -> Sequence[Report]:
        if self._ends is not None:
            return self._ends
        return [(item, put_off(item)) for item in self.items]  # it was handed back

    def cut_short(self, ending: Ending | None) -> None:
        self._ends = [(item, item.cut_short(each)) for item, each in self._ends or ()]

    def run(self) -> None:
        self._enter_spans()
        around = self._around()
        ready, values = self._read()
        try:
            if around is not None:
                around.begin(self.context)
            results = self.task.function(values) if ready else []
            if around is not None:
                around.succeed(results)
            for item, ending in self._judge(ready, results):
                large = ending is not None and ending.next is not None and is_large(ending.next)
                self._note(item, write(item, ending) if ending is not None and large else ending)
        except BaseException as error:
            self._fail(ready, error, around)
        finally:
            self._leave_span()

    async def arun(self) -> None:
        self._enter_spans()
        around = self._around()
        ready, values = self._read()
        try:
            if around is not None:
                around.begin(self.context)
            results = await self.task.function(values) if ready else []
            if around is not None:
                around.succeed(results)
            for item, ending in self._judge(ready, results):
                large = ending is not None and ending.next is not None and is_large(ending.next)
                done = await awrite(item, ending) if ending is not None and large else ending
                self._note(item, done)
        except BaseException as error:
            self._fail(ready, error, around)
        finally:
            self._leave_span()

    # ---- inside

    def _enter_spans(self) -> None:
        """Each item has its own, all begun now; what the handler does belongs to the first's."""
        tracing = self.app.tracing
        if tracing is not None and self.items:
            for item in self.items:
                item.span = None if item.late else tracing.started(item)
            self.span = self.items[0].span
            if self.span is not None:
                self.span.enter()

    def _leave_span(self) -> None:
        if self.span is not None:
            self.span.leave()

    def _read(self) -> tuple[list[Attempt], list[Any]]:
        """The items whose arguments fit, and those; each of the others fails alone, or has come
        too late."""
        ready: list[Attempt] = []
        values: list[Any] = []
        self._ends = []
        for item in self.items:
            if item.late:
                self._note(item, expiry(item.held))
                continue
            try:
                args, kwargs = self.task.signature.decode(item.held.arguments)
            except BaseException as error:  # its types are the application's: they raise anything
                item.misfit = error if isinstance(error, InvalidArguments) else None
                self._note(item, item._raised(error, None))
            else:
                values.extend((*args, *kwargs.values()))
                ready.append(item)
        return ready, values

    def _judge(self, ready: list[Attempt], results: Any) -> Iterator[Report]:
        """What the handler's value means for each item."""
        number = len(ready)
        problem: OutputError | None = None
        if results is None:
            results = [None] * number
        elif not isinstance(results, list | tuple):
            what = type(results).__name__
            problem = OutputError(f"a chunk returns None or a list of results, not {what}")
        elif len(results) != number:
            text = f"a chunk of {number} items returned {len(results)} results: one for each item"
            problem = OutputError(text)
        if problem is not None:
            for item in ready:
                item.unstorable = problem  # the work is done: it is not run again
            raise problem
        for item, value in zip(ready, results, strict=True):
            if isinstance(value, BaseException):
                yield item, item._raised(value, None)
            else:
                yield item, of_value(item, value)

    def _fail(
        self, ready: list[Attempt], error: BaseException, around: MiddlewareStack | None
    ) -> None:
        """What the handler raised is raised for every item that has no end yet."""
        if around is not None:
            try:
                around.fail(error)
            except BaseException as problem:
                error = problem
        ended = {id(item) for item, _ in self._ends or ()}
        left = [item for item in ready if id(item) not in ended]
        reports = [(item, item._raised(error, None)) for item in left]
        if len(reports) > 1:
            hide_secrets(reports)
        for item, ending in reports:
            self._note(item, ending)

    def _note(self, item: Attempt, ending: Ending | None) -> None:
        assert self._ends is not None
        self._ends.append((item, ending))


def may_share(held: Claimed) -> bool:
    """Whether a claimed item may share a chunk: one that failed before would fail the others."""
    return not (held.used or held.lost)


class Chunks:
    """Chunks that are being gathered, one for each task. Used by the pump's thread only."""

    def __init__(self) -> None:
        self._open: dict[Task[..., Any], ChunkRun] = {}
        self.at = NEVER  # when the first of them has waited long enough
        self.extra = 0  # items held beyond the one that each chunk counts for
        self.space = 0  # items that the open ones can still take

    def add(self, attempt: Attempt) -> ChunkRun | None:
        """Gather one more; the chunk, if it is full with it."""
        task = attempt.task
        assert task.chunk is not None
        run = self._open.get(task)
        if run is None:
            run = self._open[task] = ChunkRun.of(attempt)
            self.space += task.chunk.size - 1
            self.at = min(self.at, attempt.claimed + task.chunk.wait / MICRO)
        else:
            if run.left:  # else the chunk counts for this one again
                self.extra += 1
            run.join(attempt)
            self.space -= 1
        if len(run.items) < task.chunk.size:
            return None
        self._close(task)
        return run

    def due(self, now: float) -> list[ChunkRun]:
        """Those that have waited long enough."""
        if now < self.at:
            return []
        found = []
        for task, run in list(self._open.items()):
            if task.chunk is not None and now >= run.claimed + task.chunk.wait / MICRO:
                self._close(task)
                found.append(run)
        return found

    def over(self, run: Attempt) -> None:
        """One of its items is over."""
        assert isinstance(run, ChunkRun)
        run.left -= 1
        if run.left:
            self.extra -= 1

    def _close(self, task: Task[..., Any]) -> None:
        run = self._open.pop(task)
        assert task.chunk is not None
        self.space -= task.chunk.size - len(run.items)
        waits = [
            run.claimed + task.chunk.wait / MICRO for task, run in self._open.items() if task.chunk
        ]
        self.at = min(waits, default=NEVER)


class LostItems:
    """Items that were lost with their worker: one of them may have killed it, and would kill the
    others once more if they ran beside it. So they run one after another."""

    def __init__(self) -> None:
        self._line: deque[Attempt] = deque()
        self._running: Attempt | None = None
        self.at = NEVER  # when the next can start, or has waited too long for the one before it

    def add(self, item: Attempt) -> None:
        self._line.append(item)
        self._look()

    def over(self, item: Attempt) -> None:
        if item is self._running:
            self._running = None
        elif item in self._line:
            self._line.remove(item)
        self._look()

    def next(self) -> Attempt | None:
        """The one to start now, if none of them runs."""
        if self._running is not None or not self._line:
            return None
        self._running = self._line.popleft()
        self._look()
        return self._running

    def waiting_too_long(self, now: float) -> list[Attempt]:
        """Those that other workers should have."""
        return [item for item in self._line if now >= item.claimed + WAIT_FOR_OTHERS]

    def _look(self) -> None:
        self.at = NEVER
        if self._line:
            busy = self._running is not None
            self.at = self._line[0].claimed + WAIT_FOR_OTHERS if busy else 0.0
