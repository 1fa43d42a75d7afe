"""The contract of an engine, its settings, and its findings for `towline doctor`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct

if TYPE_CHECKING:
    from .connections import Connection
    from .migrate import Migrations
    from .operation import Op
    from .store import Store
    from .wakes import Wake

T = TypeVar("T")

FILE = "sqlite:///"
OK, NOTE, PROBLEM = "ok", "note", "problem"  # levels of findings


class ServerSettings(Struct, frozen=True, kw_only=True):
    """Settings that only PostgreSQL has."""

    schema: str = "public"
    notify: bool = True
    connections: int = 10
    pooler: bool = False
    listen: str | None = None


class EngineSettings(Struct, frozen=True, kw_only=True):
    """Settings of an engine, checked by `app.settings`. `lock_timeout` is in seconds."""

    url: str
    prefix: str = "towline_"
    lock_timeout: float = 5.0
    durable: bool = True
    clock: Callable[[], int] | None = None
    server: ServerSettings = ServerSettings()


class Finding(Struct, frozen=True):
    """One thing that `towline doctor` looked at; `advice` says what to do about it."""

    level: str
    about: str
    text: str
    advice: str | None = None


class Engine(Protocol):
    """A database: its statements, its connections, and its quirks."""

    name: str
    has_one_writer: bool  # who writes keeps all others from it, if only for a moment
    place: str  # as messages say it: without a password
    migrations: Migrations
    lock_timeout: float  # seconds that an operation waits for others
    wake_channel: str  # what tells apps apart that share a Redis or NATS server

    @property
    def store(self) -> Store: ...

    def run(self, op: Op[T], patience: float | None = None) -> T:
        """Run an operation on a connection of ours, in a transaction of its own. It waits for
        locks as long as lock_timeout, or as `patience` says if that is shorter."""
        ...

    def recognise(self, raw: object) -> Connection: ...  # wraps a caller's connection

    def exists(self) -> bool:
        """Whether the database is there, as far as can be known without opening it."""
        ...

    def prepare(self) -> None:
        """On first use: see that the database can be worked with."""

    def migrate(self) -> list[str]: ...

    def check_schema(self) -> None: ...

    def checks(self) -> Iterator[Finding]: ...  # its own part of `towline doctor`

    def vacuum(self, pages: int) -> int: ...

    def after_prune(self) -> None:
        """What is quick and the database does not do by itself: a worker calls it between turns."""

    def met_another(self, error: BaseException) -> bool:
        """Whether an error of the application's transaction says that it met another one (deadlock,
        serialization): no fault of the job."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """An open transaction on a connection of ours, for the application to write in."""
        ...

    def tell_ended(self) -> None:
        """Send the hint that chains ended to processes that do not see it themselves."""

    def end_wake(self) -> Wake | None:
        """What tells callers of `result()` that chains may have ended; None when nothing can."""
        ...

    def wakes(self) -> Sequence[Wake]: ...  # what tells a worker that there may be work

    def close(self) -> None: ...


def wake_channel(url: str, tables: str) -> str:
    """The name of a channel: tables and database."""
    return f"towline.{tables}{PurePath(urlsplit(url).path).name}"


def settled(url: str) -> str:
    """The URL with the file's whole path in it: it means the same after a change of directory."""
    path = url.removeprefix(FILE)
    if path == url or unquote(path) in ("", ":memory:") or path.startswith("/"):
        return url
    here = os.getcwd()
    for mark in "%?#":  # what a URL would take for something else
        here = here.replace(mark, f"%{ord(mark):X}")
    return f"{FILE}{here.rstrip('/')}/{path}"
