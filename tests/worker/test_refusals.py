"""The database refuses for a while, in a way that may look final: no job is blamed for it (O5)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.database import Database, opened
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from tests.worker.outage import TERMINATE
from tests.worker.test_trouble import back
from towline import Towline
from towline.errors import InvalidValue
from towline.model import Outcome
from towline.operation import Op
from towline.store.turn import Turn

pytestmark = pytest.mark.each_engine

Trouble = Callable[[Database], AbstractContextManager[None]]


# ---- what may be amiss for a moment


@contextmanager
def no_table(database: Database) -> Iterator[None]:
    """As while somebody repairs it by hand."""
    database.rows("ALTER TABLE towline_attempt RENAME TO aside")
    try:
        yield
    finally:
        database.rows("ALTER TABLE aside RENAME TO towline_attempt")


def _file(database: Database) -> Path:
    return Path(database.url.removeprefix("sqlite:///"))


@contextmanager
def no_file(database: Database) -> Iterator[None]:
    path = _file(database)
    path.rename(path.with_suffix(".aside"))
    try:
        yield
    finally:
        path.with_suffix(".aside").rename(path)


@contextmanager
def another_file(database: Database) -> Iterator[None]:
    """As when somebody puts a backup in its place, and thinks better of it."""
    path = _file(database)
    other = path.parent / "other"
    other.mkdir()
    with opened("sqlite", other):
        os.link(path, path.with_suffix(".aside"))
        (other / path.name).replace(path)
    try:
        yield
    finally:
        path.with_suffix(".aside").replace(path)


@contextmanager
def read_only(database: Database) -> Iterator[None]:
    """As a server is that another has taken the place of."""
    ((name,),) = database.rows("SELECT current_database()")
    database.rows(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    database.rows(TERMINATE)
    try:
        yield
    finally:
        database.rows(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        database.rows(TERMINATE)


@contextmanager
def no_right(database: Database) -> Iterator[None]:
    ((role,),) = database.rows("SELECT current_database()")
    database.rows(f"REVOKE INSERT ON towline_attempt FROM {role}")
    try:
        yield
    finally:
        database.rows(f"GRANT INSERT ON towline_attempt TO {role}")


@pytest.fixture
def plain_role(postgres: Database) -> Iterator[str]:
    """The URL for somebody with no rights but those he was given."""
    ((role,),) = postgres.rows("SELECT current_database()")
    postgres.rows(f"CREATE ROLE {role}")
    postgres.rows(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}")
    postgres.rows(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {role}")
    yield f"{postgres.url}{'&' if '?' in postgres.url else '?'}options=-crole%3D{role}"
    postgres.rows(f"DROP OWNED BY {role}")
    postgres.rows(f"DROP ROLE {role}")


# ---- what comes of it


def goes_on(
    app: Towline, database: Database, amiss: Trouble, monkeypatch: pytest.MonkeyPatch,
    error: str, said: list[logging.LogRecord], *, singly: bool = False,
) -> None:  # fmt: skip
    """Two jobs end while something is amiss; when it is not any more, they are completed."""
    gate = Gate()
    ran: list[int] = []
    tried: list[Outcome] = []
    met: set[str] = set()
    turn = app.runner.store.turn

    @app.task
    def work(number: int) -> int:
        ran.append(number)
        gate.enter()
        return number

    def told(*given: Any, **named: Any) -> Op[Turn]:
        if endings := given[4]:
            tried.extend(ending.outcome for ending in endings)
            if singly:
                raise InvalidValue("as if one of them could not be written as it is")
        return turn(*given, **named)

    jobs = [work.enqueue(number) for number in (1, 2)]
    with app.worker():
        gate.wait_inside(2)
        with monkeypatch.context() as patch, amiss(database):
            patch.setattr(app.runner.store, "turn", told)
            patch.setattr(
                "towline.worker.pump.Pump._announce_trouble",
                lambda _, why: met.add(type(why).__name__),
            )
            # A look for work would meet the trouble first, each time, and no ending be tried.
            patch.setattr("towline.worker.lookout.Lookout.wants_look", lambda *_: False)
            gate.open()
            until(lambda: len(tried) > 2)
            assert set(tried) == {Outcome.COMPLETED}
            until(lambda: error in met)
        back(app)
        assert [job.result(LIMIT) for job in jobs] == [1, 2]
    assert sorted(ran) == [1, 2]
    assert [outcomes(app, job.id) for job in jobs] == [["completed"]] * 2
    assert not [record for record in said if record.exc_info]


@pytest.mark.parametrize("singly", [False, True])
@pytest.mark.parametrize(("amiss", "error"), [
    (no_file, "DatabaseReplaced"), (another_file, "DatabaseReplaced"), (no_table, "StoreError"),
])  # fmt: skip
def test_O5_a_file_that_refuses_fails_no_job(
    app: Towline, sqlite: Database, amiss: Trouble, error: str, singly: bool,
    trouble: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    goes_on(app, sqlite, amiss, monkeypatch, error, trouble, singly=singly)


@pytest.mark.parametrize("singly", [False, True])
@pytest.mark.parametrize(("amiss", "error"), [
    (no_right, "ReadOnlyDatabase"), (read_only, "ReadOnlyDatabase"), (no_table, "SchemaMissing"),
])  # fmt: skip
def test_O5_a_server_that_refuses_fails_no_job(
    make_app: Callable[..., Towline], postgres: Database, plain_role: str, amiss: Trouble,
    error: str, singly: bool, trouble: list[logging.LogRecord], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    goes_on(make_app(plain_role), postgres, amiss, monkeypatch, error, trouble, singly=singly)
