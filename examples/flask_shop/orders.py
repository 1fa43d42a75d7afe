"""The database of the shop: orders, by SQLAlchemy, in the database that the jobs are in."""

from __future__ import annotations

import os

from flask import g
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

URL = os.environ.get("TOWLINE_URL", "sqlite:///shop.db")

engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:"))


class Base(DeclarativeBase): ...


class Order(Base):
    """What somebody wants, and how far it is: new, charged, sent."""

    __tablename__ = "shop_order"

    id: Mapped[int] = mapped_column(primary_key=True)
    item: Mapped[str]
    state: Mapped[str] = mapped_column(default="new")


def session() -> Session:
    """The session of this request, or of this attempt of a job."""
    if "session" not in g:
        g.session = Session(engine)
    found: Session = g.session
    return found


def close_session(error: BaseException | None) -> None:
    """With the context of Flask it goes; what was not committed is rolled back."""
    if "session" in g:
        g.pop("session").close()
