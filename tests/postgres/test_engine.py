"""P1, Q5, R6: connections of ours that end (killed, restarted, forked), and vacuum beside work."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests import servers
from tests.kit import HOUR, claim, completed, new, register
from tests.postgres.conftest import on_newest
from tests.races.together import in_threads
from tests.until import until
from towline import Towline
from towline.errors import StoreError
from towline.model import State
from towline.operation import Op, Steps
from towline.postgres.transaction import Transaction
from towline.task import Task

Make = Callable[..., Towline]
Connect = Callable[..., psycopg.Connection[Any]]

OURS = " FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'towline'"
KILL = f"SELECT count(pg_terminate_backend(pid)) {OURS}"
ONE_OF_EACH: list[Callable[[Towline], object]] = [
    lambda app: app.runner.run(app.runner.store.enqueue([new()])),
    lambda app: app.runner.run(app.runner.store.enqueue([new(key="k")])),
    lambda app: app.counts(),
    lambda app: app.runner.run(app.runner.store.claim(1, ["default"], 1)),
    lambda app: app.pause("a"),
    lambda app: app.migrate(),
    lambda app: app.vacuum(),
]


def kill(connection: psycopg.Connection[Any]) -> int:
    """End every connection of ours to the database, as an administrator would."""
    row = connection.execute(KILL.encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_P1_a_connection_killed_between_operations_is_not_noticed(
    app: Towline, connect: Connect
) -> None:
    eye = connect(autocommit=True)
    for operation in ONE_OF_EACH:
        app.counts()
        assert kill(eye) >= 1
        until(lambda: kill(eye) == 0)  # the pool may have been about to open another
        operation(app)


@on_newest
def test_P1_connections_killed_all_the_time_lose_nothing_that_was_promised(
    app: Towline, task: Task[[int], int], connect: Connect
) -> None:
    """An enqueue with a key can be repeated: whatever an error leaves open, one job is stored."""
    stop = threading.Event()

    def disturb() -> None:
        eye = connect(autocommit=True)
        while not stop.wait(0.3):
            kill(eye)

    killer = threading.Thread(target=disturb)
    killer.start()

    def store(number: int) -> int:
        for n in range(25):
            while True:
                try:
                    task.using(key=f"{number} {n}", scope="any").enqueue(n)
                    break
                except StoreError:
                    pass
        return number

    try:
        in_threads(4, store)
    finally:
        stop.set()
        killer.join()
    assert app.counts()["default"][State.PENDING] == 100


@on_newest
def test_P1_a_server_that_restarts_between_operations_is_not_noticed(make_app: Make) -> None:
    with servers.durable_server(servers.startable()[-1]) as server:
        app = make_app(server.url)
        for mode in ("fast", "immediate"):
            for operation in ONE_OF_EACH[:4]:
                app.counts()
                server.stop(mode)
                server.start()
                operation(app)
        assert app.counts()["default"][State.RUNNING] == 2
        app.close()


@on_newest
def test_P1_an_operation_waits_for_a_server_that_is_starting(make_app: Make) -> None:
    with servers.durable_server(servers.startable()[-1]) as server:
        app = make_app(server.url, lock_timeout=30)
        app.counts()
        server.stop("fast")
        starter = threading.Timer(0.5, server.start)
        starter.start()
        app.runner.run(app.runner.store.enqueue([new(key="k")]))
        starter.join()
        assert app.counts()["default"][State.PENDING] == 1
        app.close()


# ---- what a crash of the server may take


@on_newest
@pytest.mark.parametrize("durable", [True, False])
def test_only_what_may_be_lost_is_committed_without_a_sync(
    make_app: Make, monkeypatch: pytest.MonkeyPatch, durable: bool
) -> None:
    """A claim is never among them: its number would be given out again, and a worker lives on."""
    app = make_app(durable=durable)
    store = app.runner.store
    worker = app.runner.run(Op("register", lambda: register(store, "w")))
    unsynced: list[str] = []
    begin = Transaction.begin

    def noting(transaction: Transaction, op: Op[Any], patience: str, *, losable: bool) -> None:
        if losable:
            unsynced.append(op.name)
        begin(transaction, op, patience, losable=losable)

    monkeypatch.setattr(Transaction, "begin", noting)
    app.runner.run(store.enqueue([new()]))
    app.runner.run(store.enqueue([new(key="k")]))
    turn = app.runner.run(store.turn(worker, "w", ["default"], 1, ahead=1))
    one, two = turn.claimed
    app.runner.run(store.progress([], [(two, two.claimed_at)]))
    app.runner.run(store.progress([(one, 0.5, None)]))
    app.runner.run(store.renew(worker, "w", HOUR, []))
    app.runner.run(store.turn(worker, "w", ["default"], 2, [completed(one)]))
    app.cancel(two.job_id)
    app.prune()
    assert unsynced == [*([] if durable else ["enqueue"] * 2), "progress", "renew"]


# ---- fork


def in_a_fork(work: Callable[[], str]) -> str:
    """Do it in a fork of this process, which is gone afterwards; gives what it said."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            said = work()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(write, said.encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return said


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_Q5_a_fork_opens_connections_of_its_own(
    app: Towline, task: Task[[int], int], connect: Connect
) -> None:
    """And its end leaves those of the parent alone."""
    task.enqueue(1)
    eye = connect(autocommit=True)
    text = """SELECT pid FROM pg_stat_activity
               WHERE application_name = 'towline' AND datname = current_database() ORDER BY 1"""
    before = eye.execute(text).fetchall()

    def child() -> str:
        ids = [task.enqueue(n).id for n in range(3)]
        state = app.job(1).state
        app.close()
        return f"{ids} {state}"

    assert in_a_fork(child) == "[2, 3, 4] pending"
    until(lambda: eye.execute(text).fetchall() == before)  # the server ends them after the child
    assert task.enqueue(9).id == 5
    assert eye.execute(text).fetchall() == before


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_Q5_a_fork_in_the_middle_of_an_operation(app: Towline, task: Task[[int], int]) -> None:
    """The child's first use comes while the parent's transaction is open."""
    told: list[str] = []

    def steps() -> Steps[None]:
        yield from app.runner.store.enqueue([new()])
        told.append(in_a_fork(lambda: f"{task.enqueue(1).refresh().state} {len(app.jobs())}"))
        yield from app.runner.store.enqueue([new()])

    app.runner.run(Op("forks", steps))
    assert told == ["pending 1"]
    assert len(app.jobs()) == 3


# ---- R6


def test_R6_vacuum_while_workers_run(app: Towline) -> None:
    """While others claim and finish; all of them come to their end."""
    app.runner.run(app.runner.store.enqueue([new() for _ in range(400)]))
    stop = threading.Event()
    rounds: list[int] = []

    def tidy() -> None:
        while not stop.is_set():
            rounds.append(app.vacuum())

    tidier = threading.Thread(target=tidy)
    tidier.start()

    def work(number: int) -> int:
        done = 0

        def steps() -> Steps[int]:
            held = yield from claim(app.runner.store, 5)
            finished = yield from app.runner.store.finish(list(map(completed, held)))
            return len(finished.accepted)

        while ended := app.runner.run(Op("work", steps)):
            done += ended
        return done

    try:
        assert sum(in_threads(3, work)) == 400
    finally:
        stop.set()
        tidier.join()
    assert set(rounds) == {0}


def test_R6_vacuum_is_of_our_tables_only(app: Towline, make_app: Make, connect: Connect) -> None:
    """Those of another app in the same database are its own."""
    other = make_app(schema="other")
    other.runner.run(other.runner.store.enqueue([new()]))
    app.runner.run(app.runner.store.enqueue([new()]))
    assert app.vacuum() == 0
    found = (
        connect()
        .execute(
            "SELECT relnamespace::regnamespace::text, relname, relpages > 0 FROM pg_class"
            " WHERE relname IN ('towline_job', 'towline_mark') ORDER BY 1, 2"
        )
        .fetchall()
    )
    assert found == [
        ("other", "towline_job", False),
        ("other", "towline_mark", False),
        ("public", "towline_job", True),
        ("public", "towline_mark", True),
    ]
