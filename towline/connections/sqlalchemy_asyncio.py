"""SQLAlchemy's connections and sessions that await. Apart from the others, since theirs needs
greenlet, which who does not await may not have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, async_scoped_session

from .base import Connection, Enclosing
from .sqlalchemy import Recognise, SqlalchemyConnection

T = TypeVar("T")


class AsyncSqlalchemyConnection(Enclosing):
    """A caller's AsyncConnection or AsyncSession."""

    raw: AsyncConnection | AsyncSession

    def __init__(self, raw: Any, recognise: Recognise) -> None:
        self.raw = raw() if isinstance(raw, async_scoped_session) else raw
        self._recognise = recognise

    @property
    def in_transaction(self) -> bool:
        return self.raw.in_transaction()

    async def inside(self, act: Callable[[Connection], T]) -> T:
        return await self.raw.run_sync(lambda raw: act(SqlalchemyConnection(raw, self._recognise)))


KINDS = (((AsyncConnection, AsyncSession, async_scoped_session), AsyncSqlalchemyConnection),)
