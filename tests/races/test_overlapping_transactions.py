"""Transactions that overlap, by the one schedule in which a well-known mistake shows.

The interleaver tries every order of statements where two operations meet; these are the meetings of
three, and of row locks in the middle of a statement. PostgreSQL only: SQLite has one writer.
"""

from __future__ import annotations

import pytest

from tests import database as databases
from tests.database import Database
from tests.kit import claim, completed, continued, new, put, register, states
from tests.races.overlap import Open
from tests.races.together import finish_all_of
from tests.speed import by_speed
from towline import Towline
from towline.model import State
from towline.operation import Op, Steps
from towline.records import Claimed
from towline.store import Store

pytestmark = pytest.mark.parametrize(
    "database", by_speed([databases.newest()], databases.names()[1:]), indirect=True
)


@pytest.fixture
def store(app: Towline) -> Store:
    return app.runner.store


def run_some(app: Towline, number: int = 1) -> list[Claimed]:
    """That many jobs, running."""

    def steps() -> Steps[list[Claimed]]:
        yield from put(app.runner.store, *[new() for _ in range(number)])
        return (yield from claim(app.runner.store, number, (yield from register(app.runner.store))))

    return app.runner.run(Op("run some", steps))


def state_of(app: Towline, job: int) -> State:
    (state,) = app.runner.run(Op("states", lambda: states(app.runner.store, job), reads=True))
    return state


def test_B3_B4_a_chain_that_goes_on_and_ends_while_somebody_enqueues_behind_it_frees_the_job(
    app: Towline, store: Store, url: str
) -> None:
    """The chain is what is waited for: its last job may be another one by the time we hold it."""
    (held,) = run_some(app)
    continuing = Open(app, url, store.finish([continued(held, new("next"))]))
    enqueueing = Open(app, url, store.enqueue([new("d", after=[held.chain_id])]))
    continuing.commit()
    enqueueing.settle()
    (last,) = app.runner.run(store.claim(1, ["default"], 1))
    assert (last.task, last.chain_id) == ("next", held.chain_id)
    ending = app.runner.run(store.finish([completed(last)]))
    ((dependent, _),) = enqueueing.commit()
    if ending.postponed:
        assert finish_all_of(app, [completed(last)]).accepted == [last.job_id]
    assert state_of(app, dependent.id) is State.PENDING


def test_P5_callers_who_end_blockers_of_the_same_jobs_take_them_in_one_order(
    app: Towline, store: Store, url: str, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody holds a row in the middle, so that each has taken some rows and waits for others.
    Whoever deadlocks would be run again; here he is told."""
    monkeypatch.setattr("towline.connections.postgres.PostgresConnection.pauses", ())
    blockers = [held.chain_id for held in run_some(app, 4)]
    waiting = app.runner.run(store.enqueue([new("d", after=blockers) for _ in range(20)]))
    with database.connect() as holder:
        holder.execute(
            "SELECT 1 FROM towline_live WHERE job_id = %s FOR UPDATE", [waiting[10].record.id]
        )
        callers = [Open(app, url, store.complete(id, "null"), brief=True) for id in blockers]
        assert all(caller.waits for caller in callers)
    faults: list[str] = []
    for caller in callers:
        try:
            caller.commit()
        except Exception as error:
            faults.append(repr(error))
    assert faults == []
    assert {state_of(app, record.id) for record, _ in waiting} == {State.PENDING}
