"""What an engine is to the application, and which one a URL names."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote

from .errors import InvalidSetting
from .secret import masked

if TYPE_CHECKING:
    from .connections import Connection
    from .migrate import Migrations
    from .operation import Op
    from .store import Store
    from .wakes import Wake

T = TypeVar("T")

FILE = "sqlite:///"
SERVER = ("postgresql://", "postgres://")


class Engine(Protocol):
    """A database: its statements, its connections, and its quirks."""

    @property
    def name(self) -> str: ...

    @property
    def store(self) -> Store: ...

    @property
    def migrations(self) -> Migrations: ...

    def run(self, op: Op[T], patience: float | None = None) -> T:
        """Run an operation on a connection of ours, in a transaction of its own. It waits for
        others as long as lock_timeout, or as `patience` says if that is shorter."""
        ...

    def arun(self, op: Op[T]) -> Awaitable[T]: ...

    def recognise(self, raw: object) -> Connection:
        """Wrap a caller's connection."""
        ...

    def prepare(self) -> None:
        """On first use: see that the database can be worked with."""
        ...

    def migrate(self) -> list[str]: ...

    def check_schema(self) -> None: ...

    def vacuum(self, pages: int) -> int: ...

    def shrink(self) -> None:
        """What upkeep does after pruning, between turns: so only what is quick, and what the
        database does not do by itself."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """An open transaction on a connection of ours, for the application to write in."""
        ...

    def tell_ended(self) -> None:
        """Tell other processes that chains ended, where they do not see it by themselves: a hint,
        from a process that is no worker."""
        ...

    def ends(self) -> Wake | None:
        """What tells those who wait that chains may have ended; None when nothing can."""
        ...

    def wakes(self) -> Sequence[Wake]:
        """What tells a worker that there may be work."""
        ...

    def close(self) -> None: ...


def open_engine(
    url: str,
    *,
    prefix: str,
    schema: str,
    lock_timeout: float,
    durable: bool,
    notify: bool,
    connections: int,
    pooler: bool,
    listen: str | None,
    clock: Callable[[], int] | None,
) -> Engine:
    """The engine of a URL; its driver is imported only now."""
    if url.startswith(FILE):
        from .sqlite.engine import SqliteEngine

        return SqliteEngine(
            url, prefix=prefix, lock_timeout=lock_timeout, durable=durable, clock=clock
        )
    if not url.startswith(SERVER):
        raise _unknown(url)
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise InvalidSetting("PostgreSQL needs psycopg: pip install -e '.[postgres]'") from error
    from .postgres.engine import PostgresEngine

    return PostgresEngine(
        url, prefix=prefix, schema=schema, lock_timeout=lock_timeout, durable=durable,
        notify=notify, connections=connections, pooler=pooler, listen=listen, clock=clock,
    )  # fmt: skip


def settled(url: str) -> str:
    """The URL with the file's whole path in it: it means the same after a change of directory."""
    path = url.removeprefix(FILE)
    if path == url or unquote(path) in ("", ":memory:") or path.startswith("/"):
        return url
    here = os.getcwd()
    for mark in "%?#":  # what a URL would take for something else
        here = here.replace(mark, f"%{ord(mark):X}")
    return f"{FILE}{here.rstrip('/')}/{path}"


def _unknown(url: str) -> InvalidSetting:
    scheme, _, rest = url.partition("://")
    kind, plus, driver = scheme.partition("+")
    hint = ""
    if plus and rest and kind in ("postgresql", "postgres", "sqlite"):
        hint = f"; write it without +{driver}"
    return InvalidSetting(
        f"{masked(url)!r} is not a database Towline knows{hint}: use "
        "postgresql://user@host/database, sqlite:///relative.db or sqlite:////absolute/path.db"
    )
