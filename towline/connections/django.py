"""Django's connections: the driver's connection underneath, when Django lets it be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import Atomic
from django.utils.connection import ConnectionProxy

from ..operation import Op, Statement
from .base import Blocking, Connection

T = TypeVar("T")


class DjangoConnection(Blocking):
    """`django.db.connection` or `connections["alias"]`.

    Refused, as Django would, in another thread, in an event loop, and in a broken `atomic`.
    """

    called_back = True

    def __init__(self, raw: Any, recognise: Callable[[object], Connection]) -> None:
        if isinstance(raw, ConnectionProxy):
            raw = raw._connections[raw._alias]
        raw.ensure_connection()
        raw.validate_thread_sharing()
        raw.validate_no_broken_transaction()
        self.raw = raw
        self._driver = recognise(raw.connection)
        self._atomic: Any = None

    @property
    def in_transaction(self) -> bool:
        return self._driver.in_transaction

    def run(self, op: Op[T]) -> T:
        return self._driver.run(op)

    def begin(self) -> bool:
        if self.raw.in_atomic_block or not self.raw.get_autocommit():
            return False
        self._atomic = Atomic(self.raw.alias, savepoint=True, durable=False)
        self._atomic.__enter__()
        return True

    def end(self, *, commit: bool) -> None:
        if not commit:
            self.raw.set_rollback(True)
        self._atomic.__exit__(None, None, None)

    def _undo(self) -> None:
        self.raw.needs_rollback = False
        super()._undo()

    def _say(self, statement: Statement) -> None:
        self.raw.validate_no_broken_transaction()
        super()._say(statement)


KINDS = (((BaseDatabaseWrapper, ConnectionProxy), DjangoConnection),)
