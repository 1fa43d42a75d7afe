"""An app with a task, and a record of what every connection of the process is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest

from towline import Towline
from towline.task import Task


class Trace:
    """Statements of each connection opened since, in order, as SQLite saw them."""

    def __init__(self) -> None:
        self.connections: list[tuple[sqlite3.Connection, list[str]]] = []

    def open(self, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = CONNECT(*args, **kwargs)
        statements: list[str] = []
        connection.set_trace_callback(statements.append)
        self.connections.append((connection, statements))
        return connection

    @property
    def statements(self) -> list[str]:
        return [statement for _, statements in self.connections for statement in statements]

    def count(self, statement: str) -> int:
        return self.statements.count(statement)

    def clear(self) -> None:
        for _, statements in self.connections:
            statements.clear()


CONNECT = sqlite3.connect


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    """Ask for it before `app`: only connections opened later are seen."""
    trace = Trace()
    monkeypatch.setattr(sqlite3, "connect", trace.open)
    return trace


def add(number: int) -> int:
    return number


@pytest.fixture
def task(app: Towline) -> Task[[int], int]:
    return app.task(add)


@pytest.fixture
def open_app(make_app: Callable[..., Towline]) -> Callable[..., Towline]:
    """Another app on the same file, with the same task."""

    def open(**settings: Any) -> Towline:
        app = make_app(**settings)
        app.task(add)
        return app

    return open
