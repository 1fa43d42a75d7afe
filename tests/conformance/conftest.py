"""Every case runs on every database, and where it says so on every kind of connection there.

A case that takes `play` hands it a script, itself an operation, which runs blocking or awaiting, on
our connection or on a caller's; one `play` is one transaction, committed at its end. A case that
takes `caller` decides about the transaction itself. Any other runs on SQLite and the newest server,
in a proof on every database unless it is `heavy`.

`make test` runs scripts on connections of ours only: test_every_kind.py says that each statement is
right on all others, and on each server. What else it leaves to `make proof`, kinds.py says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests import database as databases
from tests.conformance.caller import Caller, PsycopgCaller
from tests.conformance.kinds import Kind, cells, plain
from tests.conformance.statements import of_scalars
from tests.database import Database
from tests.furnished import database, url
from tests.kit import Clock
from tests.speed import PROOF
from towline import Towline
from towline.operation import Op, Steps
from towline.store import Store

__all__ = ["database", "url"]  # fixtures

T = TypeVar("T")


class Undo(Exception):
    """Raised at the end of a script that is to leave nothing."""


class Play:
    """Run a script in one transaction of the kind under test, and commit."""

    def __init__(self, kind: Kind, app: Towline, database: Database) -> None:
        self.kind = kind
        self._app = app
        self._database = database
        self._caller: Caller | None = None

    def __call__(self, script: Callable[[], Steps[T]]) -> T:
        op = Op("script", of_scalars(script))
        if self.kind.ours:
            return self._run_on_ours(op)
        caller = self._begin()
        try:
            result = caller.run(op)
        except BaseException:
            caller.rollback()
            raise
        caller.commit()
        return result

    def with_own_write(self, script: Callable[[], Steps[None]], *, keep: bool) -> None:
        """One transaction: a write of the caller's own, then the script; kept or undone together.

        On our own connections the caller has no write, and an error is what rolls back.
        """

        def undone() -> Steps[None]:
            yield from script()
            raise Undo

        if self.kind.ours:
            try:
                self._run_on_ours(Op("script", script if keep else undone))
            except Undo:
                assert not keep
            return
        caller = self._begin()
        caller.begin()
        caller.sql("INSERT INTO mine (id) VALUES (77)")
        caller.run(Op("script", script))
        assert caller.in_transaction
        caller.commit() if keep else caller.rollback()
        written = self._database.rows("SELECT id FROM mine WHERE id = 77")
        assert written == ([(77,)] if keep else [])

    def close(self) -> None:
        if self._caller:
            self._caller.close()

    def _run_on_ours(self, op: Op[T]) -> T:
        return (
            asyncio.run(self._app.runner.arun(op)) if self.kind.awaits else self._app.runner.run(op)
        )

    def _begin(self) -> Caller:
        """One connection for the whole case; each script finds it where its kind says."""
        if self._caller is None:
            self._caller = self.kind.caller(self.kind, self._app, self._database)
        else:
            self._caller.start()
        return self._caller


# Which kinds a case gets, by the name it asks for: of a test, on a database, a kind.
WANTED: dict[str, Callable[[str, str, Kind], bool]] = {
    "play": lambda test, name, kind: kind.played if PROOF else plain(test, name, kind),
    "play_anywhere": lambda test, name, kind: PROOF or kind.ours or kind.played,
    "caller": lambda test, name, kind: not kind.ours and kind.is_tried(test, name),
    "caller_of_kind": lambda test, name, kind: (
        not kind.ours and (PROOF or kind.played) and kind.is_tried(test, name)
    ),
    "awaiting_caller": lambda test, name, kind: kind.shared and kind.idle,
    "psycopg_caller": lambda test, name, kind: (
        kind.caller is PsycopgCaller and not kind.ours and (PROOF or kind.played)
    ),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each case once for each database, or for each kind of connection to it."""
    if "kind" in metafunc.fixturenames:
        wanted = WANTED[max(set(WANTED) & set(metafunc.fixturenames), key=list(WANTED).index)]
        test = metafunc.definition.name
        chosen = [(name, kind) for name, kind in cells() if wanted(test, name, kind)]
        metafunc.parametrize(
            ("database", "kind"),
            chosen,
            indirect=["database"],
            ids=[f"{name}: {kind.name}" for name, kind in chosen],
        )
    elif "postgres" in metafunc.fixturenames:
        metafunc.parametrize("database", databases.names()[1:], indirect=True)
    elif "database" in metafunc.fixturenames:
        heavy = metafunc.definition.get_closest_marker("heavy")
        names = [databases.SQLITE, databases.newest()]
        if PROOF and not heavy:
            names = databases.names()
        metafunc.parametrize("database", names, indirect=True)


@pytest.fixture
def app(make_app: Callable[..., Towline], clock: Clock) -> Towline:
    """An app on the clock that the test moves; the tables are there."""
    return make_app(clock=clock)


@pytest.fixture
def play(kind: Kind, app: Towline, database: Database) -> Iterator[Play]:
    """Run scripts on every kind of connection."""
    play = Play(kind, app, database)
    yield play
    play.close()


@pytest.fixture
def play_anywhere(play: Play) -> Play:
    """The same, on kinds where no other script is run."""
    return play


@pytest.fixture
def caller(kind: Kind, app: Towline, database: Database) -> Iterator[Caller]:
    """A caller of every kind."""
    caller = kind.caller(kind, app, database)
    yield caller
    caller.close()


@pytest.fixture
def caller_of_kind(caller: Caller) -> Caller:
    """A caller of every kind, in a proof in every state."""
    return caller


@pytest.fixture
def awaiting_caller(caller: Caller) -> Caller:
    """Only those that asyncio tasks can share, and that stand idle."""
    return caller


@pytest.fixture
def psycopg_caller(caller: Caller) -> Caller:
    """Only those on psycopg."""
    return caller


@pytest.fixture
def postgres(database: Database) -> Database:
    """A database on each PostgreSQL server; without SQLite."""
    return database


@pytest.fixture
def store(app: Towline) -> Store:
    return app.runner.store
