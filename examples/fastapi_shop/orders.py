"""The database of the shop: orders, by SQLAlchemy, in the database that the jobs are in."""

from __future__ import annotations

import os
from typing import Any

from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

URL = os.environ.get("TOWLINE_URL", "sqlite:///shop.db")
DRIVERS = {"sqlite:": "sqlite+aiosqlite:", "postgresql:": "postgresql+asyncpg:"}

engine = create_async_engine(
    next(URL.replace(plain, driver) for plain, driver in DRIVERS.items() if URL.startswith(plain))
)
sessions = async_sessionmaker(engine, class_=AsyncSession, expire_on_commit=False)


class Base(DeclarativeBase): ...


class Order(Base):
    """What somebody wants, and how far it is: new, charged, sent."""

    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    state: Mapped[str] = mapped_column(default="new")


if URL.startswith("sqlite:"):

    @event.listens_for(engine.sync_engine, "connect")
    def leave_begin_to_us(connection: Any, record: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine.sync_engine, "begin")
    def begin_as_a_writer(connection: Any) -> None:
        """One that reads first and writes later may find that somebody else was quicker."""
        connection.exec_driver_sql("BEGIN IMMEDIATE")
