"""One plain job and the hint for workers go out together: two transactions, one round trip."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.kit import new
from tests.postgres.conftest import add
from tests.postgres.test_notify import Listener, listener
from towline import Towline
from towline.errors import InvalidValue, SchemaMissing
from towline.postgres import own_connection
from towline.postgres.own_connection import OwnConnection
from towline.task import Task

__all__ = ["listener"]  # a fixture

Make = Callable[..., Towline]
Eye = Callable[..., list[tuple[Any, ...]]]


def test_P3_a_plain_job_and_its_hint_are_one_round_trip(
    app: Towline, task: Task[[int], int], monkeypatch: pytest.MonkeyPatch, listener: Listener
) -> None:
    task.enqueue(0)
    waits: list[str] = []
    wait = OwnConnection.wait

    def counted(self: OwnConnection, gen: Any, *more: Any) -> Any:
        waits.append(gen.__name__)
        return wait(self, gen, *more)

    monkeypatch.setattr(own_connection.OwnConnection, "wait", counted)
    task.enqueue(1)
    assert waits == ["_exchange"]
    assert listener.heard() == ["default"] * 2


def test_P3_the_job_is_committed_before_its_hint_is_sent(
    app: Towline, task: Task[[int], int], eye: Eye, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit with a notification takes a lock of the whole database (DESIGN §6.4). The hint says
    here which transaction it is, and how many jobs it sees."""
    eye("CREATE TABLE seen (job_xid text, hint_xid text, jobs bigint)")
    text = (
        "INSERT INTO seen SELECT (SELECT max(xmin::text::bigint) FROM towline_job), "
        "pg_current_xact_id(), (SELECT count(*) FROM towline_job) "
        "WHERE $1::text <> '' AND $2::text = 'default'"
    )
    monkeypatch.setattr(app.runner.store.sql.notify_one, "dollar", text)
    for number in range(1, 4):
        task.enqueue(number)
        ((job, hint, jobs),) = eye("SELECT * FROM seen ORDER BY jobs DESC LIMIT 1")
        assert (jobs, job != hint) == (number, True)


def test_P6_a_connection_that_is_lost_after_the_commit_loses_only_the_hint(
    app: Towline, task: Task[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "SELECT pg_terminate_backend(pg_backend_pid()), $1::text, $2::text"
    hint = app.runner.store.sql.notify_one
    monkeypatch.setattr(hint, "dollar", text)
    jobs = [task.enqueue(n) for n in range(3)]
    monkeypatch.undo()
    jobs.append(task.enqueue(3))
    assert [job.id for job in app.jobs(newest=False)] == [job.id for job in jobs]


def test_what_psycopg_forgets_is_prepared_again(
    app: Towline, task: Task[[int], int], listener: Listener
) -> None:
    """After a rollback psycopg drops every prepared statement of the connection, ours too."""
    task.enqueue(0)
    with app.runner.engine._pool.lent(1) as raw:  # type: ignore[attr-defined] # pyright: ignore[reportAttributeAccessIssue]
        raw.execute("DEALLOCATE ALL")
        assert raw.prepared
    jobs = [task.enqueue(n) for n in (1, 2)]
    assert [job.refresh().state for job in jobs] == ["pending"] * 2
    assert listener.heard()[:1] == ["default"]
    task.enqueue(3)
    assert listener.heard() == ["default"]


def test_tables_that_are_missing_are_said_and_nothing_is_left_behind(
    app: Towline, task: Task[[int], int], eye: Eye
) -> None:
    task.enqueue(0)
    eye("ALTER TABLE towline_live RENAME TO away")
    with pytest.raises(SchemaMissing):
        task.enqueue(1)
    eye("ALTER TABLE away RENAME TO towline_live")
    task.enqueue(2)
    assert len(app.jobs()) == 2


def test_E12_a_text_that_no_column_can_hold_is_refused_and_the_next_one_stored(
    app: Towline, task: Task[[int], int]
) -> None:
    job = new(label="a\0b")
    with pytest.raises(InvalidValue, match="NUL"):
        app.runner.run(app.runner.store.enqueue([job]))
    task.enqueue(2)
    assert len(app.jobs()) == 1


def test_without_notify_only_the_job_is_sent(make_app: Make, listener: Listener) -> None:
    app = make_app(notify=False)
    app.task(add).enqueue(1)
    assert listener.heard() == []
    assert len(app.jobs()) == 1
