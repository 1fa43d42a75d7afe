"""One run of a claimed job: from its arguments to its ending. Whoever has a slot calls it.

What a handler returns or raises becomes an `Ending` here, and nowhere else:

    a value                 completed, unless it cannot be stored: then failed, and not run again
    task.then(…)            continued
    Snooze, Cancel, Fail    as they say, returned or raised
    Retry, any exception    failed, to be tried again after its back-off
    too late, told to stop  timeout, released
"""

from __future__ import annotations

import logging
import random
import threading
import time
import traceback
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import InvalidArguments, InvalidSetting, OutputError, PayloadTooLarge
from ..model import BlockerRecord, Claimed, Ending, Outcome, type_of
from ..store.finish import lost_delay
from ..task import Next, Task
from ..task.batch import next_job
from ..task.context import Blockers, Context, current
from ..task.retry import Cancel, Fail, Signal, Snooze, next_try
from ..times import MICRO

if TYPE_CHECKING:
    from ..app import Towline
    from .ledger import Ledger
    from .transaction import JobTransaction

MOST_ERROR = 64 * 1024  # characters of an error that are kept
UNSTORABLE = (OutputError, PayloadTooLarge, InvalidSetting)
MISFIT_DELAY = 30 * MICRO  # at least, before arguments that do not fit are tried again
MOST_SET_BACK = 20  # times that a job is tried again because its transaction met another

Middleware = Callable[[Context], Generator[None, Any, None]]
log = logging.getLogger("towline.worker")


class Attempt:
    """A claimed job in this worker's hands: waiting for a slot, running, or over."""

    __slots__ = (
        "_begun", "_misfit", "_mutex", "_ring", "_stop", "abandoned", "app", "blockers",
        "claimed", "context", "deadline", "held", "ledger", "outside", "over", "report",
        "reported",
        "settled", "slot", "stopped_for", "task", "unopened", "unstorable", "withdrawn", "worker",
    )  # fmt: skip

    def __init__(
        self,
        app: Towline,
        task: Task[..., Any],
        held: Claimed,
        blockers: Sequence[BlockerRecord] = (),
        ring: Callable[[], None] = lambda: None,
    ) -> None:
        self.app = app
        self.task = task
        self.held = held
        self.blockers = blockers
        self._stop: threading.Event | None = None  # made when somebody wants to wait for it
        self.stopped_for: Outcome | None = None
        self.deadline: float | None = None
        self.abandoned = False  # its slot was given to others; what it says is not heard
        self.withdrawn = False  # handed back before it began
        self.worker: tuple[str, int] = ("", 0)  # in whose name it runs
        self.unstorable: Exception | None = None  # why what it ended with cannot be stored
        self.unopened: Exception | None = None  # why a transaction of its could not be begun
        self._misfit: Exception | None = None  # its arguments do not fit the task as it is here
        self.over = False  # it has ended, or is not this worker's any more
        self.settled = False  # it has completed itself, in a transaction
        self.outside = False  # the same in one that is still the application's to commit
        self.report: tuple[float | None, str | None] | None = None
        self.reported: tuple[float | None, str | None] | None = None
        self.slot: Any = None
        self.claimed = time.monotonic()
        self._ring = ring
        self.ledger: Ledger | None = None  # where it is noted that it begins
        self._begun: float | None = None
        self._mutex = threading.Lock()
        self.context = Context(self)

    @property
    def key(self) -> tuple[int, int]:
        return self.held.job_id, self.held.attempt

    @property
    def begun(self) -> float | None:
        """When the handler was called, by the monotonic clock."""
        return self._begun

    @property
    def started_at(self) -> int | None:
        """The same by the database's clock: the claim's time and what has passed since."""
        if self._begun is None:
            return None
        return self.held.claimed_at + round((self._begun - self.claimed) * MICRO)

    def begin(self) -> bool:
        """The slot takes it; False when it was withdrawn meanwhile."""
        with self._mutex:
            if self.withdrawn:
                return False
            self._begun = time.monotonic()
        if self.ledger is not None:
            waited = round((self._begun - self.claimed) * MICRO)
            self.ledger.begin(self.held.job_id, self.held.attempt, self.held.claimed_at + waited)
        if self.held.timeout is not None:
            self.deadline = self._begun + self.held.timeout / MICRO
            self._ring()
        return True

    def withdraw(self) -> bool:
        """Take it back from its slot, if it has not begun."""
        with self._mutex:
            self.withdrawn = self._begun is None
            return self.withdrawn

    def tell(self, why: Outcome) -> None:
        """Ask the handler to stop."""
        with self._mutex:
            if self.stopped_for is None:
                self.stopped_for = why
            if self._stop is not None:
                self._stop.set()

    @property
    def stop(self) -> threading.Event:
        """Set when the handler is told to stop."""
        with self._mutex:
            if self._stop is None:
                self._stop = threading.Event()
                if self.stopped_for is not None:
                    self._stop.set()
            return self._stop

    # ---- running

    def run(self) -> Ending | None:
        """Call a blocking handler; None when there is nothing to record."""
        token = current.set(self.context)
        around = Around(self)
        try:
            around.begin()
            args, kwargs = self._arguments()
            value = self.task.function(*args, **kwargs)
            around.succeed(value)
            return self.ended(value)
        except BaseException as error:
            return self._raised(error, around)
        finally:
            current.reset(token)

    async def arun(self) -> Ending | None:
        """Call an awaiting handler."""
        token = current.set(self.context)
        around = Around(self)
        try:
            around.begin()
            args, kwargs = self._arguments()
            value = await self.task.function(*args, **kwargs)
            around.succeed(value)
            return self.ended(value)
        except BaseException as error:
            return self._raised(error, around)
        finally:
            try:
                current.reset(token)
            except ValueError:
                pass  # its loop has ended before it: this is the garbage collector's context

    def _raised(self, error: BaseException, around: Around) -> Ending | None:
        """Whatever was raised, the attempt ends: no error can keep its job running for ever."""
        try:
            around.fail(error)
            return self.failed(error)
        except BaseException as problem:
            text = f"{type(error).__name__} (cannot be looked at: {type(problem).__name__})"
            return self._ending(Outcome.FAILED, error=text, delay=self._delay(RuntimeError()))

    def _arguments(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        signature = self.task.signature
        try:
            args, kwargs = signature.decode(self.held.arguments)
        except InvalidArguments as error:
            self._misfit = error
            raise
        if signature.injected is not None:
            kwargs[signature.injected] = self.context
        return args, kwargs

    def transaction(self, on: object) -> JobTransaction:
        from .transaction import JobTransaction

        return JobTransaction(self.app, self, on)

    def decoded_blockers(self) -> Blockers:
        return Blockers(self.blockers, self.app.decode_output)

    # ---- endings

    def ended(self, value: Any) -> Ending | None:
        """What a handler's return value means."""
        if self.settled:
            return None
        if isinstance(value, Signal):
            return self.failed(value)
        if self.outside:
            # Fenced off if that transaction was committed, as it should have been.
            return self._ending(
                Outcome.FAILED,
                error="the job was completed in a transaction that was not committed",
                delay=self._delay(RuntimeError()),
            )
        if self.stopped_for is Outcome.TIMEOUT:
            return self.timed_out()
        try:
            return self.completing(value)
        except UNSTORABLE as error:
            return self.failed(error)

    def completing(self, value: Any) -> Ending:
        """How the attempt ends with this value; raises what says why it cannot be stored."""
        try:
            if isinstance(value, Next):
                return self._ending(Outcome.CONTINUED, next=next_job(value))
            text = self.task.signature.encode_output(value, limit=self.app.settings.payload_limit)
        except UNSTORABLE as error:
            self.unstorable = error
            raise
        return self._ending(Outcome.COMPLETED, output=text)

    def failed(self, error: BaseException) -> Ending | None:
        """What an exception of a handler means."""
        if self.settled:
            log.warning("%s raised after it had completed its job: %r", self, error)
            return None
        if error is self.unstorable:
            # The work is done: running it again would only do it twice.
            text = f"{type(error).__name__}: {error}"
            return self._ending(Outcome.FAILED, error=text, error_type=type_of(error))
        if isinstance(error, Snooze):
            return self._ending(Outcome.SNOOZED, delay=error.delay)
        if isinstance(error, Cancel):
            return self._ending(Outcome.CANCELLED, error=reason_of(error))
        if isinstance(error, Fail):
            reason = reason_of(error)
            return self._ending(Outcome.FAILED, error=reason, error_type=type_of(error))
        if self.stopped_for is Outcome.TIMEOUT:
            return self.timed_out(error)
        if self.stopped_for is Outcome.RELEASED:
            return self.released()
        if self.set_back < MOST_SET_BACK:
            if self.app.runner.engine.met_another(error):
                return self._ending(Outcome.SNOOZED, delay=round(random.uniform(0.01, 0.2) * MICRO))
            if error is self.unopened:  # none of the handler's code ran in it: no fault of the job
                return self._ending(Outcome.SNOOZED, delay=round(random.uniform(0.5, 2.0) * MICRO))
        return self._ending(
            Outcome.FAILED,
            error=describe(error),
            delay=self._delay(error),
            error_type=type_of(error),
        )

    def timed_out(self, error: BaseException | None = None) -> Ending:
        seconds = (self.held.timeout or 0) / MICRO
        text = f"took longer than its timeout of {seconds:g} s"
        error_type = None
        if error is not None:
            text += "\n" + describe(error)
            error_type = type_of(error)
        delay = self._delay(TimeoutError())
        return self._ending(Outcome.TIMEOUT, error=text, error_type=error_type, delay=delay)

    def released(self) -> Ending:
        """Hand it back: the worker stops."""
        return self._ending(Outcome.RELEASED, started=self._begun is not None)

    def put_off(self) -> Ending:
        """Hand it back without having begun, for a little later: there is no room for it here, and
        another worker can have it."""
        delay = round(random.uniform(0.5, 2.0) * MICRO)
        return self._ending(Outcome.SNOOZED, started=False, delay=delay)

    def never_begun(self) -> Ending:
        """Its process died before the handler was called: no fault of this job."""
        self._begun = None
        return self.released()

    def crashed(self, reason: str) -> Ending:
        """The process it ran in is gone."""
        return self._ending(Outcome.LOST, error=reason, delay=lost_delay(self.held.lost + 1))

    @property
    def set_back(self) -> int:
        """How many attempts came to nothing, without a failure and without a loss."""
        return self.held.attempt - 1 - self.held.used - self.held.lost

    def _delay(self, error: BaseException) -> int | None:
        delay = next_try(self.task.backoff, error, self.held.used + 1)
        if delay is not None and self._misfit is error:
            # A newer or older release may know them: give a deployment time to end.
            delay = max(delay, MISFIT_DELAY * 2**self.held.used)
        return delay

    def _ending(self, outcome: Outcome, **fields: Any) -> Ending:
        return Ending(self.held, outcome, started_at=self.started_at, **fields)

    def __repr__(self) -> str:
        return f"<attempt {self.held.attempt} of job {self.held.job_id} ({self.held.task})>"


class Around:
    """The middleware of one attempt: each begins before the handler and sees how it ended.

    One that fails before or after a success makes an ordinary failure of the attempt. None can
    make a success of a failure.
    """

    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._open: list[Generator[None, Any, None]] = []

    def begin(self) -> None:
        for middleware in self._attempt.app.middleware:
            generator = middleware(self._attempt.context)
            try:
                next(generator)
            except StopIteration:
                continue
            self._open.append(generator)

    def succeed(self, value: Any) -> None:
        while self._open:
            generator = self._open.pop()
            try:
                generator.send(value)
            except StopIteration:
                continue
            generator.close()

    def fail(self, error: BaseException) -> None:
        """Show the error to all that have begun."""
        while self._open:
            generator = self._open.pop()
            try:
                generator.throw(error)
                generator.close()
            except StopIteration:
                pass
            except BaseException as other:
                if other is not error:
                    log.debug("middleware failed too", exc_info=other)


def describe(error: BaseException) -> str:
    """The error with its traceback, for people; the frames of this package are left out."""
    try:
        shown = traceback.TracebackException.from_exception(error, compact=True)
        if (frames := _own_frames(shown.stack)) is not None:
            shown.stack = frames
        text = "".join(shown.format()).rstrip()
    except Exception as problem:
        text = f"{type(error).__name__} (its text cannot be shown: {type(problem).__name__})"
    return shortened(text)


def reason_of(error: BaseException) -> str:
    """What a signal says, in its own words alone."""
    try:
        return shortened(str(error))
    except Exception as problem:
        return f"{type(error).__name__} (its text cannot be shown: {type(problem).__name__})"


def shortened(text: str) -> str:
    """The beginning and the end of a text that is too long to keep."""
    if len(text) > MOST_ERROR:
        half = MOST_ERROR // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return text


def _own_frames(stack: traceback.StackSummary) -> traceback.StackSummary | None:
    kept = [frame for frame in stack if frame.filename != __file__]
    return traceback.StackSummary.from_list(kept) if kept else None


def log_failure(attempt: Attempt, ending: Ending) -> None:
    """One line for whoever watches: what kind of error, not what it says, which may be private."""
    held = attempt.held
    if ending.outcome is Outcome.LOST:
        final = held.lost + 1 >= attempt.app.runner.store.crash_limit
    elif ending.outcome in (Outcome.FAILED, Outcome.TIMEOUT):
        final = held.used + 1 >= held.max_attempts
    else:
        return
    what = str(ending.outcome)
    if ending.error_type is not None and ending.outcome is Outcome.FAILED:
        what = ending.error_type.rpartition(".")[2]
    if final or ending.delay is None:
        log.warning("%s: %s; the job has failed", attempt, what)
    else:
        log.info("%s: %s; again in %.1f s", attempt, what, ending.delay / MICRO)
