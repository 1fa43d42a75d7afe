"""`ctx.transaction()`: the application's own writes and the job's end in one commit.

It takes the fence first: whoever lost the attempt finds out before writing. On our own connection
the block is the transaction. On the application's connection or session it is the application's,
unless we found it idle: then what we began is committed at the end of the block.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

from .errors import InvalidState, LeaseLost
from .operation import Op

if TYPE_CHECKING:
    from .app import Windlass
    from .attempt import Attempt
    from .model import Ending, Finished

log = logging.getLogger("windlass.worker")

LONG = 1.0  # seconds after which an open transaction is worth a warning


class JobTransaction:
    """What `with ctx.transaction() as tx` gives."""

    def __init__(self, app: Windlass, attempt: Attempt, on: object) -> None:
        self._app = app
        self._attempt = attempt
        self._on = on
        self._own: AbstractContextManager[Any] | None = None
        self._awaits = False
        self._idle = False
        self._began = 0.0
        self._ending: Ending | None = None
        self.connection: Any = on
        """The open connection: for `on=`, and for what the driver offers beyond `execute`."""

    def execute(self, text: str, params: Any = ()) -> Any:
        """Run a statement with the driver's own placeholders; awaited in `async with`."""
        if self._on is not None:
            raise InvalidState("the transaction is your own connection's: write through that")
        if self._awaits:
            return asyncio.to_thread(self.connection.execute, text, params)
        return self.connection.execute(text, params)

    def complete(self, value: Any = None) -> None:
        """End the job with this value, or with `task.then(…)`, when the block ends well."""
        if self._ending is not None:
            raise InvalidState("this transaction has completed the job already")
        self._ending = self._attempt.completing(value)

    # ---- blocking

    def __enter__(self) -> JobTransaction:
        self._begin()
        if self._on is None:
            self._own = self._app.engine.transaction()
            self.connection = self._own.__enter__()
        else:
            self._idle = not self._app.engine.recognise(self._on).in_transaction
        try:
            self._pass(self._app.run(self._fence(), on=self.connection))
        except BaseException as error:
            self._close(type(error), error, error.__traceback__)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self._close(kind, error, trace)
            return
        try:
            if self._ending is not None:
                self._accept(self._app.run(self._finish(), on=self.connection))
        except BaseException as problem:
            self._close(type(problem), problem, problem.__traceback__)
            raise
        self._close(None, None, None)
        self._note()

    def _close(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Commit or roll back what we began."""
        self._attempt.outside = error is None and self._ending is not None
        if self._own is not None:
            self._own.__exit__(kind, error, trace)
        elif self._idle:
            _end(self._on, "rollback" if error else "commit")

    # ---- awaiting

    async def __aenter__(self) -> JobTransaction:
        self._awaits = True
        if self._on is None:
            return await asyncio.to_thread(self.__enter__)
        self._begin()
        connection = self._app.engine.recognise(self._on)
        self._idle = not connection.in_transaction
        try:
            self._pass(await self._app.arun(self._fence(), on=self._on))
        except BaseException:
            await self._aclose("rollback")
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._on is None:
            await asyncio.to_thread(self.__exit__, kind, error, trace)
            return
        if error is not None:
            await self._aclose("rollback")
            return
        try:
            if self._ending is not None:
                self._accept(await self._app.arun(self._finish(), on=self._on))
        except BaseException:
            await self._aclose("rollback")
            raise
        self._attempt.outside = self._ending is not None
        await self._aclose("commit")
        self._note()

    async def _aclose(self, word: str) -> None:
        if self._idle:
            answer = _end(self._on, word)
            if inspect.isawaitable(answer):
                await answer

    # ---- both

    def _begin(self) -> None:
        if self._attempt.settled or self._attempt.outside:
            raise InvalidState("this attempt has completed its job already")
        self._began = time.monotonic()

    def _fence(self) -> Op[bool]:
        return self._app.store.fence(self._attempt.held)

    def _pass(self, passed: bool) -> None:
        if not passed:
            raise self._lost()

    def _finish(self) -> Op[Finished]:
        assert self._ending is not None
        name, number = self._attempt.worker
        return self._app.store.finish([self._ending], name, number)

    def _accept(self, finished: Finished) -> None:
        if not finished.accepted:
            raise self._lost()

    def _lost(self) -> LeaseLost:
        held = self._attempt.held
        return LeaseLost(
            f"attempt {held.attempt} of job {held.job_id} was taken over, cancelled or ended from "
            "outside: nothing of this transaction is kept"
        )

    def _note(self) -> None:
        """It ended well: the job is over, unless the caller still has to commit."""
        if self._ending is not None and (self._own is not None or self._idle):
            self._attempt.settled = True
        took = time.monotonic() - self._began
        if took > LONG:
            log.warning(
                "%s held a transaction open for %.1f s: others may wait for it, keep what is slow "
                "outside the block", self._attempt, took,
            )  # fmt: skip


def _end(connection: Any, word: str) -> Any:
    """commit() or rollback() of the application's connection; asyncpg has no such words."""
    method = getattr(connection, word, None)
    return method() if method is not None else connection.execute(word.upper())
