"""P6: the connection is cut, during a commit or elsewhere; nothing is lost and nothing is twice.

Before its commit was sent an operation is run again by the engine. After that only the caller can
know what to do, and the fence and the key make it harmless to repeat. A single statement without
a BEGIN is its own commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests import servers
from tests.database import Database
from tests.kit import SECOND, completed, continued, new, register, rows
from tests.postgres.proxy import Proxy
from tests.races.auditor import audit_tables, open_reader
from tests.speed import by_speed
from tests.until import until
from towline import Cron, Towline
from towline.errors import CommitUnknown
from towline.operation import Op
from towline.records import Claimed, Ending, NewJob
from towline.schedule import NewSchedule
from towline.store.finish import Finished
from towline.store.turn import Turn, promote

ANSWERED = pytest.mark.parametrize(
    "answered", [False, True], ids=["cut before the server", "cut after the server"]
)
LEASE = 30 * SECOND


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.close()


@pytest.fixture
def app(make_app: Callable[..., Towline], proxy: Proxy) -> Towline:
    """All its connections go through the proxy."""
    app = make_app(proxy.url, lock_timeout=10)
    app.counts()  # connected, and it has seen the tables
    return app


def count(database: Database, table: str) -> int:
    ((number,),) = rows(database, f"SELECT count(*) FROM towline_{table}")
    return int(number)


def audit(database: Database) -> None:
    reader = open_reader(database.url)
    assert audit_tables(reader) == []
    reader.close()


# ---- enqueue


def keyed() -> NewJob:
    return new(key="order 7", scope="any")


@ANSWERED
def test_E9_P6_an_enqueue_whose_commit_is_cut_is_unknown_and_can_be_repeated_by_its_key(
    app: Towline, proxy: Proxy, database: Database, answered: bool
) -> None:
    proxy.cut("COMMIT", answered=answered)
    with pytest.raises(CommitUnknown, match="enqueue was being committed") as caught:
        app.runner.run(app.runner.store.enqueue([keyed()]))
    assert not caught.value.retry_safe
    assert count(database, "job") == (1 if answered else 0)
    ((record, created),) = app.runner.run(app.runner.store.enqueue([keyed()]))
    assert created is not answered
    ((again, created),) = app.runner.run(app.runner.store.enqueue([keyed()]))
    assert (again.chain_id, created) == (record.chain_id, False)
    assert rows(database, "SELECT id FROM towline_chain") == [(record.chain_id,)]
    audit(database)


@ANSWERED
def test_P6_a_plain_enqueue_commits_with_its_one_statement_and_is_never_run_twice(
    app: Towline, proxy: Proxy, database: Database, answered: bool
) -> None:
    proxy.cut(lambda text: "INSERT INTO" in text, answered=answered)
    with pytest.raises(CommitUnknown, match="enqueue was being committed"):
        app.runner.run(app.runner.store.enqueue([new()]))
    assert count(database, "job") == (1 if answered else 0)
    audit(database)


@ANSWERED
def test_P6_the_awaiting_face_says_the_same(app: Towline, proxy: Proxy, answered: bool) -> None:
    proxy.cut("COMMIT", answered=answered)
    with pytest.raises(CommitUnknown):
        asyncio.run(app.runner.arun(app.runner.store.enqueue([keyed()])))


@ANSWERED
def test_P6_what_only_reads_is_run_again_wherever_it_is_cut(
    app: Towline, proxy: Proxy, answered: bool
) -> None:
    ((record, _),) = app.runner.run(app.runner.store.enqueue([new()]))
    proxy.cut("COMMIT", answered=answered)
    assert app.job(record.id).id == record.id
    assert proxy.cuts == 1


# ---- a cut at every statement


class Scene:
    """A worker with two jobs in its hands, one of which others wait for, and more to claim."""

    def __init__(self, app: Towline) -> None:
        store = app.runner.store
        self.app = app
        self.store = store
        self.worker = app.runner.run(Op("register", lambda: register(store, "w", lease=LEASE)))
        first, second = (r for r, _ in app.runner.run(store.enqueue([new(key="k"), new("walk")])))
        self.held = app.runner.run(store.claim(self.worker, ["default"], 2, "w"))
        app.runner.run(store.enqueue([new("behind", after=[first.id, second.id]), new("third")]))
        self.end = first.id

    def endings(self) -> list[Ending]:
        first, second = self.held
        return [completed(first, '"done"'), continued(second, new("walk", queue="steps"))]

    def turn(self) -> Op[Turn]:
        return self.store.turn(self.worker, "w", ["default"], 5, self.endings())


OPERATIONS: dict[str, Callable[[Scene], Op[Any]]] = {
    "enqueue one": lambda s: s.store.enqueue([new()]),
    "enqueue": lambda s: s.store.enqueue([new(key="other"), new(after=[s.end])]),
    "turn": Scene.turn,
    "cancel": lambda s: s.store.cancel(s.end),
    "delete": lambda s: s.store.delete([s.end + 2]),
}


def fingerprint(database: Database) -> list[Any]:
    """All that is stored, but for ids that were drawn in vain and the time."""
    return [
        rows(database, text)
        for text in (
            "SELECT chain_id - id, position, task, key, blockers FROM towline_job ORDER BY id",
            "SELECT state, queue, attempt, used, lost, open_blockers FROM towline_live"
            " ORDER BY job_id",
            "SELECT job_id, number, outcome, final, output FROM towline_attempt ORDER BY 1, 2",
            "SELECT task, state FROM towline_chain ORDER BY id",
            "SELECT count(*) FROM towline_blocker",
            "SELECT task, key, ended_at IS NULL FROM towline_key ORDER BY 1, 2",
            "SELECT sum(ended - removed) FROM towline_rollup",
        )
    ]


@pytest.mark.parametrize("server", servers.servers()[-1:], indirect=True)
@pytest.mark.parametrize("name", by_speed(list(OPERATIONS)[::4], list(OPERATIONS)))
@ANSWERED
def test_P6_cut_at_any_statement_before_the_commit_the_engine_runs_it_again(
    make_app: Callable[..., Towline],
    server: servers.Server,
    database: Database,
    name: str,
    answered: bool,
) -> None:
    """Each statement of the operation in turn, in a database of its own; each time all of it is
    stored, once. What follows the commit is a hint whose loss nobody is told of; one that is sent
    together with its job may take the server's word for that along."""
    empty = "TRUNCATE " + ", ".join(
        f"towline_{table}"
        for table in ("job", "live", "attempt", "chain", "key", "blocker", "rollup")
    )
    proxy = Proxy(database.url)
    app = make_app(proxy.url, lock_timeout=10)
    try:
        expected: list[Any] | None = None
        place = -1  # first uncut
        while True:
            database.rows(f"{empty}; SELECT setval('towline_job_ids', 1, false)")
            scene = Scene(app)
            before = len(proxy.statements)
            if place >= 0:
                proxy.cut_at(place, answered=answered)
            try:
                app.runner.run(OPERATIONS[name](scene))
                unknown = False
            except CommitUnknown:
                unknown = True
            if place >= 0 and proxy.forget():
                break  # it has no such statement: every one was cut
            said = proxy.statements[before:]
            if expected is None:
                expected = fingerprint(database)
            elif said[place] == "COMMIT" or (place == 0 and not said[0].startswith("BEGIN")):
                assert unknown, said[place]
            elif place == 1 and not said[0].startswith("BEGIN"):
                rest = expected[1:]
                until(lambda: fingerprint(database)[1:] == rest)  # noqa: B023
            else:
                assert not unknown, said[place]
                assert fingerprint(database)[1:] == expected[1:], said[place]
            audit(database)
            place += 1
        assert place > 0
        assert proxy.cuts == place
    finally:
        app.close()
        proxy.close()


# ---- a worker's turn


@ANSWERED
def test_P6_a_turn_whose_commit_is_cut_is_repeated_nothing_is_lost_and_nothing_is_twice(
    app: Towline, proxy: Proxy, database: Database, answered: bool
) -> None:
    """The endings are told again: refused if they had been stored, else accepted. Jobs that the
    lost turn had claimed come back by the next renewal, under the next attempt number."""
    store = app.runner.store
    scene = Scene(app)
    given = [(job.job_id, job.attempt) for job in scene.held]
    ids = [job.job_id for job in scene.held]
    proxy.cut("COMMIT", answered=answered)
    with pytest.raises(CommitUnknown):
        app.runner.run(scene.turn())

    def told_again() -> Finished | None:
        """Postponed while the server has not noticed yet that the connection is gone."""
        finished = app.runner.run(store.finish(scene.endings(), "w", scene.worker))
        return None if finished.postponed else finished

    finished = until(told_again)
    assert (finished.refused if answered else finished.accepted) == ids
    assert finished.postponed == []
    renewed = app.runner.run(store.renew(scene.worker, "w", LEASE, set()))
    assert renewed.registered
    (third,) = app.runner.run(store.claim(scene.worker, ["default"], 5, "w"))
    assert (third.task, third.attempt) == ("third", 2 if answered else 1)
    (step,) = app.runner.run(
        store.claim(scene.worker, ["steps"], 5, "w")
    )  # one continuation, not two
    assert (step.chain_id, step.position) == (ids[1], 1)
    # The one behind both is freed by the chain's last job, and not before.
    app.runner.run(store.finish([completed(step)], "w", scene.worker))
    (behind,) = app.runner.run(store.claim(scene.worker, ["default"], 5, "w"))
    assert (behind.task, behind.attempt) == ("behind", 1)
    given += [(job.job_id, job.attempt) for job in (third, step, behind)]
    assert len(set(given)) == len(given)
    history = rows(database, "SELECT job_id, outcome, output FROM towline_attempt ORDER BY 1")
    assert history == [(ids[0], 1, '"done"'), (ids[1], 2, None), (step.job_id, 1, "null")]
    audit(database)


@ANSWERED
def test_P6_a_claim_whose_answer_is_lost_never_gives_its_number_out_again(
    app: Towline, proxy: Proxy, database: Database, answered: bool
) -> None:
    """The worker does not even know that it claimed; it may also be gone, and be swept."""
    store = app.runner.store
    scene = Scene(app)

    def claim() -> list[Claimed]:
        return app.runner.run(store.claim(scene.worker, ["default"], 5, "w"))

    proxy.cut("COMMIT", answered=answered)
    with pytest.raises(CommitUnknown):
        claim()
    found = claim()
    while not answered and not found:  # until the server has seen that the connection is gone
        found = claim()
    assert len(found) == (0 if answered else 1)
    app.runner.run(store.sweep(gone=[scene.worker]))
    lost = rows(database, "SELECT max(number) FROM towline_attempt WHERE outcome = 7")
    assert lost == [(1,)]
    database.rows("UPDATE towline_live SET run_at = 0 WHERE state = 1")
    app.runner.run(Op("promote", lambda: promote(store)))
    other = app.runner.run(Op("register", lambda: register(store, "w2", lease=LEASE)))
    assert {job.attempt for job in app.runner.run(store.claim(other, ["default"], 5, "w2"))} == {2}


# ---- the caller's connection


@ANSWERED
@pytest.mark.parametrize("place", ["SAVEPOINT towline", "RELEASE SAVEPOINT towline", "COMMIT"])
def test_E3_P6_a_cut_on_the_callers_connection_reaches_the_caller_unchanged(
    app: Towline, proxy: Proxy, database: Database, place: str, answered: bool
) -> None:
    def enqueue_and_commit() -> None:
        app.runner.run(app.runner.store.enqueue([keyed()]), raw)
        raw.commit()

    with closing(psycopg.connect(proxy.url)) as raw:
        raw.execute("INSERT INTO mine DEFAULT VALUES")
        proxy.cut(place, answered=answered)
        with pytest.raises(psycopg.OperationalError):
            enqueue_and_commit()
    stored = 1 if place == "COMMIT" and answered else 0
    assert count(database, "job") == stored
    assert rows(database, "SELECT count(*) FROM mine") == [(stored,)]


# ---- ticks


@ANSWERED
def test_N1_P6_ticks_whose_commit_is_cut_are_fired_once(
    app: Towline, proxy: Proxy, database: Database, answered: bool
) -> None:
    """What is fired again is what was not committed: the schedule's row knows."""
    store = app.runner.store
    timing = Cron(every=1).timing
    app.runner.run(store.set_schedule(NewSchedule("s", new(), timing)))
    until(lambda: app.now() > (app.schedule("s").next_at or app.now()), "a tick")
    proxy.cut("COMMIT", answered=answered)
    with pytest.raises(CommitUnknown, match="fire was being committed"):
        app.runner.run(store.fire(["a"]))
    # The server may hear a moment later that nobody is at the other end: until then it is held.
    until(lambda: not app.runner.run(store.fire(["a"])).postponed)
    ticks = [tick for (tick,) in rows(database, "SELECT tick FROM towline_job ORDER BY tick")]
    assert len(ticks) == len(set(ticks)) >= 1
    ((told, left_out),) = rows(database, "SELECT ticks, missed + skipped FROM towline_schedule")
    first, last = ticks[0], int(rows(database, "SELECT next_at FROM towline_schedule")[0][0])
    assert told == len(ticks)
    assert told + left_out == (last - first) // SECOND
    audit(database)
