"""SQLAlchemy's connections and sessions; those that await are in `sqlalchemy_asyncio.py`.

SQLAlchemy is told that a transaction begins, as it is by any statement of the application; the
statements themselves go to the driver underneath, where savepoints and placeholders are what they
are without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy import Connection as CoreConnection
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.orm import Session, scoped_session

from ..errors import InvalidState, UnsupportedConnection
from ..operation import Op
from .base import Blocking, Connection

T = TypeVar("T")
Recognise = Callable[[object], Connection]


class SqlalchemyConnection(Blocking):
    """A caller's Connection or Session."""

    raw: CoreConnection | Session

    def __init__(self, raw: Any, recognise: Recognise) -> None:
        # A scoped session stands for the one of its scope.
        self.raw = raw() if isinstance(raw, scoped_session) else raw
        self._recognise = recognise

    @property
    def in_transaction(self) -> bool:
        return self.raw.in_transaction() and self._driver(self._core()).in_transaction

    def run(self, op: Op[T]) -> T:
        raw = self.raw
        began = not raw.in_transaction()
        try:
            core = self._core()
            driver = self._driver(core)
            if not core.in_transaction():
                core.begin()
            if not core.dialect.is_async:
                return driver.run(op)
            if core.dialect.driver == "asyncpg" and not driver.in_transaction:
                core.exec_driver_sql("SELECT 1")  # it is SQLAlchemy's adapter that says BEGIN
            from sqlalchemy.util import await_only  # it needs greenlet, which only such drivers do

            return await_only(driver.arun(op))
        except BaseException:
            if began and (transaction := raw.get_transaction()):
                transaction.close()
            raise

    def begin(self) -> bool:
        raw = self.raw
        began = not raw.in_transaction()
        core = self._core()
        if core._is_autocommit_isolation():
            if began and (transaction := raw.get_transaction()):
                transaction.close()
            raise InvalidState(
                "this connection's isolation level is AUTOCOMMIT: it has no transaction to end the "
                "job in"
            )
        if began and not core.in_transaction():
            core.begin()
        return began

    def end(self, *, commit: bool) -> None:
        self.raw.commit() if commit else self.raw.rollback()

    def _core(self) -> CoreConnection:
        if isinstance(self.raw, CoreConnection):
            return self.raw
        try:
            return self.raw.connection()
        except UnboundExecutionError as error:
            raise UnsupportedConnection(
                "this Session has no bind of its own to say which database is meant: "
                "pass on=session.connection(bind_arguments=…)"
            ) from error

    def _driver(self, core: CoreConnection) -> Connection:
        return self._recognise(core.connection.driver_connection)


KINDS = (((CoreConnection, Session, scoped_session), SqlalchemyConnection),)
