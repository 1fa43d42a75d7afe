"""What an engine is to the application, and which one a URL names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from .errors import InvalidSetting

if TYPE_CHECKING:
    from .connections import Connection
    from .migrate import Migrations
    from .operation import Op
    from .store import Store
    from .wakes import Wake

T = TypeVar("T")


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
    if not url.startswith(("postgresql:", "postgres:")):
        from .sqlite.engine import SqliteEngine

        return SqliteEngine(
            url, prefix=prefix, lock_timeout=lock_timeout, durable=durable, clock=clock
        )
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        raise InvalidSetting("PostgreSQL needs psycopg: pip install 'towline[postgres]'") from error
    from .postgres.engine import PostgresEngine

    return PostgresEngine(
        url, prefix=prefix, schema=schema, lock_timeout=lock_timeout, durable=durable,
        notify=notify, connections=connections, pooler=pooler, listen=listen, clock=clock,
    )  # fmt: skip
