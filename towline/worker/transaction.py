"""`ctx.transaction()`: the application's own writes and the job's end in one commit.

It takes the fence first: an attempt that was lost finds out before writing. On our own connection
the block is the transaction. On the application's connection or session it is the application's,
unless we found it idle: then what we began is committed at the end of the block.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ..errors import InvalidState, LeaseLost, StoreUnavailable, WriterBusy
from ..operation import Op
from .ending import completed
from .own_commit import finish_op, pauses, whole

if TYPE_CHECKING:
    from ..app import Towline
    from ..connections import Connection
    from ..records import Ending
    from ..store.finish import Finished
    from .attempt import Attempt

log = logging.getLogger("towline.worker")

LONG_TRANSACTION = 1.0  # seconds after which an open transaction is worth a warning


class JobTransaction:
    """The `tx` of `with ctx.transaction() as tx`."""

    def __init__(self, app: Towline, attempt: Attempt, on: object) -> None:
        self._app = app
        self._attempt = attempt
        self._on = on
        self._own: AbstractContextManager[Any] | None = None
        self._awaits = False
        self._ours = False  # whether the transaction on their connection was begun by us
        self._began = 0.0
        self._ending: Ending | None = None
        self._using = threading.RLock()  # one of ours, which is others' after the end
        self.connection: Any = on
        """The open connection: for `on=`, and for what the driver offers beyond `execute`."""

    def execute(self, text: str, params: Any = ()) -> Any:
        """Run a statement with the driver's own placeholders; awaited in `async with`."""
        if self._on is not None:
            raise InvalidState("the transaction is your own connection's: write through that")
        if self._awaits:
            return asyncio.to_thread(self._execute, text, params)
        return self._execute(text, params)

    def _execute(self, text: str, params: Any) -> Any:
        with self._using:
            if self.connection is None:
                raise InvalidState("this transaction is not open: write inside of its block")
            return self.connection.execute(text, params)

    def complete(self, value: Any = None) -> None:
        """End the job with this value, or with `task.then(…)`, when the block ends well."""
        if self._ending is not None:
            raise InvalidState("this transaction has completed the job already")
        self._ending = completed(self._attempt, value)
        self._attempt.inside = self._ending.outcome

    # ---- blocking

    def __enter__(self) -> JobTransaction:
        self._begin()
        if self._on is None:
            self._own = self._app.runner.engine.transaction()
            try:
                self.connection = self._own.__enter__()
            except StoreUnavailable as error:
                self._attempt.not_at_fault = error
                raise
        else:
            self._ours = self._theirs.begin()
        try:
            self._check(self._app.runner.run(self._fence(), on=self.connection))
        except BaseException as error:
            self._close(error)
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None and self._ending is not None:
                for pause in self._pauses():
                    if self._is_written(self._app.runner.run(self._finish(), on=self.connection)):
                        break
                    time.sleep(pause)
        except BaseException as problem:
            self._close(problem)
            raise
        self._close(error)

    def _close(self, error: BaseException | None) -> None:
        """Commit what we began, or roll it back because of an error."""
        self._attempt.caller_commits = error is None and self._ending is not None
        try:
            if self._own is not None:
                with self._using:  # what a cancelled handler has left behind comes too late
                    self.connection = None
                trace = None if error is None else error.__traceback__
                self._own.__exit__(None if error is None else type(error), error, trace)
            elif self._ours:
                self._theirs.end(commit=error is None)
        except BaseException:
            self._attempt.caller_commits = False
            raise
        if error is None:
            self._note()

    # ---- awaiting

    async def __aenter__(self) -> JobTransaction:
        self._awaits = True
        if self._on is None:
            entering: Future[None] = Future()
            try:
                return await asyncio.to_thread(self._enter_for_another, entering)
            except asyncio.CancelledError as error:
                if not entering.cancel():  # entered just now, and no `__aexit__` will come
                    await whole(self._close, error)
                raise
        self._begin()
        self._ours = await self._theirs.abegin()
        try:
            self._check(await self._app.runner.arun(self._fence(), on=self._on))
        except BaseException as error:
            await self._aclose(error)
            raise
        return self

    def _enter_for_another(self, entering: Future[None]) -> JobTransaction:
        """In a thread, which cannot be stopped while it waits for the database."""
        self.__enter__()
        if not entering.set_running_or_notify_cancel():  # the task has given up meanwhile
            self._close(asyncio.CancelledError())
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if self._on is None:
            await whole(self.__exit__, kind, error, trace)
            return
        try:
            if error is None and self._ending is not None:
                for pause in self._pauses():
                    if self._is_written(await self._app.runner.arun(self._finish(), on=self._on)):
                        break
                    await asyncio.sleep(pause)
        except BaseException as problem:
            await self._aclose(problem)
            raise
        await self._aclose(error)

    async def _aclose(self, error: BaseException | None) -> None:
        self._attempt.caller_commits = error is None and self._ending is not None
        try:
            if self._ours:
                await self._theirs.aend(commit=error is None)
        except BaseException:
            self._attempt.caller_commits = False
            raise
        if error is None:
            self._note()

    # ---- both

    def _begin(self) -> None:
        if self._attempt.completed_inside or self._attempt.caller_commits:
            raise InvalidState("this attempt has completed its job already")
        self._began = time.monotonic()

    @cached_property
    def _theirs(self) -> Connection:
        return self._app.runner.engine.recognise(self._on)

    def _fence(self) -> Op[bool]:
        return self._app.runner.store.still_running(self._attempt.held)

    def _finish(self) -> Op[Finished]:
        assert self._ending is not None
        return finish_op(self._attempt, self._ending)

    def _pauses(self) -> Iterator[float]:
        """Seconds between two tries to end the job, as long as other transactions are waited for
        here. Then it is no fault of the job, which comes again."""
        until = time.monotonic() + self._app.runner.engine.lock_timeout
        yield from pauses(until)
        busy = WriterBusy(
            f"the end of job {self._attempt.held.job_id} waited for rows that another transaction "
            "holds, such as a job behind it: commit sooner there, or raise lock_timeout"
        )
        self._attempt.not_at_fault = busy
        raise busy

    def _is_written(self, finished: Finished) -> bool:
        """Whether the end is part of the transaction; False: it touches what another holds."""
        if finished.postponed:
            return False
        self._check(bool(finished.accepted))
        return True

    def _check(self, still_running: bool) -> None:
        if not still_running:
            held = self._attempt.held
            raise LeaseLost(
                f"attempt {held.attempt} of job {held.job_id} was taken over, cancelled or ended "
                "from outside: nothing of this transaction is kept"
            )

    def _note(self) -> None:
        """It ended well: the job is over, unless the caller still has to commit."""
        if self._ending is not None and (self._own is not None or self._ours):
            self._attempt.completed_inside = True
        took = time.monotonic() - self._began
        if took > LONG_TRANSACTION:
            log.warning(
                "%s held a transaction open for %.1f s: others may wait for it, keep what is slow "
                "outside the block", self._attempt, took,
            )  # fmt: skip
