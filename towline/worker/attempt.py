"""One run of a claimed job: begin → middleware and handler → ending. Its slot calls it; what the
handler's value or exception means is `ending.py`'s to say.

    claimed ──► waits for a slot ──► begun ──► over
                  │  ⇅           │
                  │ sent ────────┘     sent: to a process, where it begins by itself (slots/process)
                  └── withdrawn ─────────────► over
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from ..errors import InvalidArguments, NotFound, TowlineError
from ..events import EACH_BEGIN
from ..events.kinds import AttemptStarted
from ..model import Outcome
from ..records import AttemptRecord, BlockerRecord, Claimed, Ending
from ..secret import hidden, repeated
from ..store.expiry import expiry
from ..store.lease import Report as Reported
from ..store.turn import MOST_LOADED
from ..task import Task
from ..task.context import Blockers, Context, Previous, StoppedFor, current
from ..times import MICRO, to_datetime, to_datetime_or_none
from .blocker_pages import BlockerPages
from .ending import MOST_SET_BACK, of_error, of_value, released, unreadable
from .middleware import MiddlewareStack
from .own_commit import awrite, is_large, write

if TYPE_CHECKING:
    from ..app import Towline  # noqa: TC004 (msgspec never looks at the types)
    from ..events.tracing import AttemptSpan  # noqa: TC004
    from .transaction import JobTransaction
    from .unwritten import Ledger  # noqa: TC004

Progress = tuple[float | None, str | None]
Key = tuple[int, int]  # job, attempt


class Sender(Protocol):
    """A slot that sends attempts to where they begin by themselves."""

    def take_back(self, attempt: Attempt) -> bool:
        """Take back all that has not begun there. False: this one has, as will be heard."""
        ...


class Attempt(Struct, eq=False, weakref=True):
    """A claimed job in this worker's hands: waiting for a slot, running, or over."""

    app: Towline
    task: Task[..., Any]
    held: Claimed
    blockers: Sequence[BlockerRecord] = ()
    worker: str = ""  # in whose name it runs
    ledger: Ledger | None = None  # where it is noted that it begins
    on_deadline: Callable[[], None] | None = None  # called when it has one
    on_progress: Callable[[], None] | None = None
    on_error: Callable[[BaseException], None] | None = None  # called with what its handler raised
    claimed: float = field(default_factory=time.monotonic)
    ahead: bool = False  # claimed though no slot was free for it
    sent_to: Sender | None = None  # where it may have begun, or begin at any moment
    begun: float | None = None  # when the handler was called, by the monotonic clock
    ended: float | None = None  # when its handler returned, or its slot reported its end
    started_at: int | None = None  # when it was called, by the database's clock
    deadline: float | None = None
    stopped_for: Outcome | None = None
    slot: Any = None
    withdrawn: bool = False  # handed back before it began
    late: bool = False  # it came too late to start: its handler is not called
    abandoned: bool = False  # its slot was given to others; what it says is not heard
    over: bool = False  # it has ended, or is not this worker's any more
    completed_inside: bool = False  # it has completed its job itself, in a transaction
    caller_commits: bool = False  # the same in one that is the application's to commit
    inside: Outcome = Outcome.COMPLETED  # how it did: CONTINUED, if that brought a next one
    misfit: Exception | None = None  # why its arguments do not fit the task as it is here
    unstorable: Exception | None = None  # why what it ended with cannot be stored
    # Why a transaction of its could not be begun, or its end not be written: nothing is kept.
    not_at_fault: Exception | None = None
    progress: Progress | None = None
    progress_written: Progress | None = None
    chunk: Attempt | None = None  # the chunk that it is an item of
    span: AttemptSpan | None = None  # where the app is traced
    elsewhere: bool = False  # its worker, which tells of it, is in another process
    _context: Context | None = None
    _stop: threading.Event | None = None  # made when the handler wants to wait for it
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    @property
    def key(self) -> Key:
        return self.held[:2]  # job, attempt

    @property
    def context(self) -> Context:
        """Made for handlers that ask for it."""
        if self._context is None:
            self._context = Context(self)
        return self._context

    @property
    def set_back(self) -> int:
        """How many attempts came to nothing, without a failure and without a loss."""
        return self.held.attempt - 1 - self.held.used - self.held.lost

    @property
    def now(self) -> int:
        """The time by the database's clock, as far as it is known here."""
        return self.held.claimed_at + round((time.monotonic() - self.claimed) * MICRO)

    @property
    def lasted(self) -> float:
        """For how many seconds its handler ran, or runs."""
        if self.begun is None:
            return 0.0
        return (time.monotonic() if self.ended is None else self.ended) - self.begun

    @property
    def waited(self) -> float:
        """For how many seconds its job could have run before it began, or came to nothing."""
        began = self.now if self.started_at is None else self.started_at
        return max(began - max(self.held.run_at, self.held.created_at), 0) / MICRO

    @property
    def reported(self) -> Reported:
        """Its progress, as it is written."""
        fraction, text = self.progress or (None, None)
        return self.held, fraction, text

    # ---- what its slot and the pump call

    def begin(self, at: float | None = None) -> bool:
        """Its handler is called, or was at that time by the monotonic clock; False when it was
        withdrawn meanwhile. A second call changes nothing."""
        with self._mutex:
            if self.withdrawn or self.begun is not None:
                return not self.withdrawn
            self.begun = begun = time.monotonic() if at is None else at
        held = self.held
        self.started_at = held.claimed_at + round((begun - self.claimed) * MICRO)
        if held.expires_at is not None and held.expires_at <= self.started_at:
            self.late = True
            return True
        if self.ledger is not None:
            self.ledger.begin(held.job_id, held.attempt, self.started_at)
        if AttemptStarted.name in self.app.runner.events.wanted and not self.elsewhere:
            self._announce_start()
        if held.timeout is not None:
            self.deadline = begun + held.timeout / MICRO
            if self.on_deadline is not None:
                self.on_deadline()
        return True

    def _announce_start(self) -> None:
        held, events = self.held, self.app.runner.events
        if events.begun is not None:
            events.begun.add([(held.task, held.queue, self.waited)], 1)
        if EACH_BEGIN not in events.wanted:
            return
        events.publish(
            AttemptStarted(
                task=held.task, queue=held.queue, slot=self.task.slots, job=held.job_id,
                chain=held.chain_id, position=held.position, attempt=held.attempt,
                worker=self.worker, waited=self.waited,
            )
        )  # fmt: skip

    def send(self, slot: Sender | None) -> bool:
        """It goes there, or comes back from where it was; False when it was withdrawn meanwhile."""
        with self._mutex:
            if not self.withdrawn:
                self.sent_to = slot
            return not self.withdrawn

    def withdraw(self) -> bool:
        """Take it back from its slot, if it has not begun."""
        while True:
            with self._mutex:
                slot = self.sent_to
                if slot is None or self.begun is not None:
                    self.withdrawn = self.begun is None
                    return self.withdrawn
            if not slot.take_back(self):
                return False

    def ask_to_stop(self, why: Outcome) -> None:
        """Ask the handler to stop."""
        with self._mutex:
            if self.stopped_for is None:
                self.stopped_for = why
            if self._stop is not None:
                self._stop.set()

    def secrets(self) -> Sequence[str] | None:
        """What of its arguments is secret, as a text may repeat it; None: that cannot be known."""
        names = self.task.signature.secrets.arguments
        try:
            arguments = json.loads(self.held.arguments)
            return repeated(arguments, hidden(arguments, names, self.app.settings.secret_names))
        except (ValueError, RecursionError):
            return None

    def reports(self, ending: Ending | None) -> Sequence[Report]:
        """What its slot says of its end, for each attempt that ran there."""
        return [(self, ending)]

    def cut_short(self, ending: Ending | None) -> Ending | None:
        """What its end comes to if the application has cancelled it. A failure is no fault of the
        job then; but not without end: a handler may also cancel itself."""
        failed = ending is not None and ending.outcome is Outcome.FAILED
        return released(self) if failed and self.set_back < MOST_SET_BACK else ending

    def run(self) -> Ending | None:
        """Call a blocking handler; None when there is nothing to record."""
        if self.late:
            return expiry(self.held)
        token = current.set(self)
        if self.app.tracing is not None:
            self._enter_span()
        around = self._around()
        try:
            if around is not None:
                around.begin(self.context)
            args, kwargs = self._arguments()
            value = self.task.function(*args, **kwargs)
            if around is not None:
                around.succeed(value)
            ending = of_value(self, value)
            large = ending is not None and ending.next is not None and is_large(ending.next)
            return write(self, ending) if ending is not None and large else ending
        except BaseException as error:
            return self._raised(error, around)
        finally:
            current.reset(token)
            if self.span is not None:
                self.span.leave()

    async def arun(self) -> Ending | None:
        """Call an awaiting handler."""
        if self.late:
            return expiry(self.held)
        token = current.set(self)
        if self.app.tracing is not None:
            self._enter_span()
        around = self._around()
        try:
            if around is not None:
                around.begin(self.context)
            args, kwargs = self._arguments()
            value = await self.task.function(*args, **kwargs)
            if around is not None:
                around.succeed(value)
            ending = of_value(self, value)
            large = ending is not None and ending.next is not None and is_large(ending.next)
            return await awrite(self, ending) if ending is not None and large else ending
        except BaseException as error:
            return self._raised(error, around)
        finally:
            try:
                current.reset(token)
                if self.span is not None:
                    self.span.leave()
            except ValueError:
                pass  # its loop has ended before it: this is the garbage collector's context

    def _enter_span(self) -> None:
        """What its handler does belongs to its span; that of a process has its worker begun."""
        if self.span is None and self.app.tracing is not None:
            self.span = self.app.tracing.started(self)
        if self.span is not None:
            self.span.enter()

    def _around(self) -> MiddlewareStack | None:
        middleware = self.app.middleware
        return MiddlewareStack(middleware) if middleware else None

    def _raised(self, error: BaseException, around: MiddlewareStack | None) -> Ending | None:
        """Whatever was raised, the attempt ends: no error can keep its job running for ever."""
        try:
            if around is not None:
                around.fail(error)
            return of_error(self, error)
        except BaseException as problem:
            return unreadable(self, error, problem)

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        signature = self.task.signature
        try:
            args, kwargs = signature.decode(self.held.arguments)
        except InvalidArguments as error:
            self.misfit = error
            raise
        if signature.injected is not None:
            kwargs[signature.injected] = self.context
        if signature.outputs:
            for name, hint in signature.outputs.items():
                kwargs[name] = self.context.blockers.get(name, type=hint)
        return args, kwargs

    # ---- what its handler calls, by its context

    @property
    def stop(self) -> threading.Event:
        """Set when the handler is asked to stop."""
        with self._mutex:
            if self._stop is None:
                self._stop = threading.Event()
                if self.stopped_for is not None:
                    self._stop.set()
            return self._stop

    def why_stopped(self) -> StoppedFor | None:
        """In the words of handlers. Whether a job that is not ours any more was ended or taken over
        is looked up, once somebody asks."""
        match self.stopped_for:
            case None:
                return None
            case Outcome.TIMEOUT:
                return "timeout"
            case Outcome.RELEASED:
                return "stopping"
        try:
            record = self.app.runner.run(self.app.runner.store.job(self.held.job_id))
        except NotFound:
            return "cancelled"
        except TowlineError:
            return "lost"
        return "lost" if record.state.open else "cancelled"

    def previous(self) -> Previous | None:
        if self.held.attempt == 1:
            return None
        return self._last_of(self.app.runner.run(self.app.runner.store.attempts(self.held.job_id)))

    async def aprevious(self) -> Previous | None:
        if self.held.attempt == 1:
            return None
        op = self.app.runner.store.attempts(self.held.job_id)
        return self._last_of(await self.app.runner.arun(op))

    def _last_of(self, records: list[AttemptRecord]) -> Previous | None:
        for record in reversed(records):
            if record.number < self.held.attempt and record.outcome and record.ended_at:
                return Previous(
                    record.number, record.outcome, record.error_type, record.error,
                    to_datetime_or_none(record.started_at), to_datetime(record.ended_at),
                )  # fmt: skip
        return None

    def report(self, fraction: float | None, text: str | None) -> None:
        """Progress, for the pump to write."""
        self.progress = fraction, text
        if self.on_progress is not None:
            self.on_progress()

    def transaction(self, on: object) -> JobTransaction:
        from .transaction import JobTransaction

        return JobTransaction(self.app, self, self.app.runner.on if on is None else on)

    def decoded_blockers(self) -> Blockers:
        records: Sequence[BlockerRecord] = self._declared()
        if self.held.blockers > MOST_LOADED:
            records = BlockerPages(self.app.runner, self.held.job_id, self.held.blockers)
        return Blockers(records, self.app.decode_output)

    async def all_blockers(self) -> Blockers:
        """The same, with every output at hand."""
        records: Sequence[BlockerRecord] = self._declared()
        if self.held.blockers > MOST_LOADED:
            records = await BlockerPages(
                self.app.runner, self.held.job_id, self.held.blockers
            ).all()
        return Blockers(records, self.app.decode_output)

    def _declared(self) -> list[BlockerRecord]:
        """Not the chain that had its key before, if it has not named that itself."""
        return [blocker for blocker in self.blockers if blocker.position >= 0]

    def __repr__(self) -> str:
        return f"<attempt {self.held.attempt} of job {self.held.job_id} ({self.held.task})>"


Report = tuple[Attempt, Ending | None]  # of a slot: how an attempt ended
