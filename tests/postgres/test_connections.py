"""Connections of ours: how many, whose, how long they wait; and what of theirs is refused."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import psycopg
import psycopg2
import pytest

from tests import servers
from tests.kit import new
from tests.postgres.conftest import add, on_newest
from tests.races.together import in_threads
from tests.until import until
from towline import Towline
from towline.engine import EngineSettings
from towline.errors import (
    CommitUnknown,
    InvalidSetting,
    InvalidValue,
    StoreError,
    StoreUnavailable,
    UnsupportedConnection,
    WriterBusy,
)
from towline.model import Outcome
from towline.operation import Op, Query, Steps
from towline.postgres import engine as engines
from towline.postgres import listen
from towline.records import Claimed, Ending
from towline.task import Task

Make = Callable[..., Towline]
Connect = Callable[..., psycopg.Connection[Any]]
Eye = Callable[..., list[tuple[Any, ...]]]

OURS = """SELECT pid, state FROM pg_stat_activity
           WHERE datname = current_database() AND application_name = 'towline' ORDER BY 1"""


@contextmanager
def frozen(eye: Eye) -> Iterator[None]:
    """The server's side of our connections stands still; TCP goes on acknowledging."""
    pids = [pid for pid, _ in eye(OURS)]
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


# ---- a server that is silent, or away


@on_newest
def test_P11_a_silent_server_is_noticed_and_whether_it_may_be_stored_is_said(
    app: Towline, task: Task[[int], int], eye: Eye
) -> None:
    """Finding P11: a plain enqueue commits with its statement, a keyed one begins before."""
    bound = vars(app.runner.engine)["_bound"]
    assert bound == max(vars(app.runner.engine)["lock_timeout"], 5) + 10
    vars(app.runner.engine)["_bound"] = 0.3
    task.enqueue(1)
    with frozen(eye), pytest.raises(CommitUnknown):
        task.enqueue(2)
    task.using(key="k").enqueue(3)
    vars(app.runner.engine)["lock_timeout"] = 0.1
    with frozen(eye), pytest.raises(StoreUnavailable, match="no answer for") as caught:
        app.runner.run(Op("slowly", lambda: _sleep(5.0)))
    assert caught.value.retry_safe
    vars(app.runner.engine)["_bound"] = bound
    assert task.enqueue(4).refresh().state == "pending"


def _sleep(seconds: float) -> Steps[None]:
    yield Query("sleep", f"SELECT pg_sleep({seconds})")()


@on_newest
def test_P11_closing_and_listening_do_not_wait_for_a_silent_server(
    app: Towline, task: Task[[int], int], eye: Eye
) -> None:
    """Finding P11: both are done though the server never answers."""
    job = task.enqueue(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(job.result, 0.3)
        until(lambda: len(eye(OURS)) == 2)
        with pytest.raises(TimeoutError):
            waiting.result()
    with frozen(eye):
        app.close()


@on_newest
def test_P11_who_tells_others_of_an_end_gives_a_silent_server_up(
    app: Towline, eye: Eye, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Finding P11: its thread would wait for the answer for ever, and a stop for its thread."""
    monkeypatch.setattr(listen, "SILENCE", 0.3)
    connected = threading.Event()
    ends = listen.PostgresListen(engine_of(app), ends=True)
    ends.start(lambda _: connected.set())
    assert connected.wait(30)
    with frozen(eye):
        ends.tell_ended()
        until(lambda: not vars(ends)["_owed"])  # it is being sent
        ends.stop()
        assert not vars(ends)["_thread"].running


def engine_of(app: Towline) -> engines.PostgresEngine:
    assert isinstance(app.runner.engine, engines.PostgresEngine)
    return app.runner.engine


@on_newest
def test_P5_P10_after_an_outage_it_works_at_once_and_holds_no_more_connections(
    make_app: Make,
) -> None:
    """Findings P5, P10: nobody is told that connections are in use, and none is left over."""
    with servers.durable_server(servers.startable()[-1]) as server:
        app = make_app(server.url, connections=1, lock_timeout=0.5)
        task = app.task(add)
        for _ in range(3):
            task.enqueue(1)
            server.stop("fast")
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="cannot be reached"):
                    task.enqueue(2)
            server.start()
            task.enqueue(3)
        app.counts()
        with psycopg.connect(server.url) as connection:
            count = connection.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'towline'"
            ).fetchone()
        assert count == (1,)
        app.close()


def test_P10_no_more_connections_than_were_asked_for(make_app: Make, eye: Eye) -> None:
    app = make_app(connections=3, lock_timeout=30)
    task = app.task(add)
    in_threads(12, lambda n: [task.enqueue(n).id for _ in range(10)])
    assert len(eye(OURS)) <= 3
    app.close()
    until(lambda: eye(OURS) == [])


# ---- who has which


def test_P9_a_pump_has_a_connection_of_its_own(make_app: Make) -> None:
    """Finding P9: handlers that hold every connection keep nobody from renewing leases; and who
    gets none is told so by a type that says it is safe to repeat."""
    app = make_app(connections=1, lock_timeout=0.5)
    app.counts()
    with app.runner.engine.transaction():
        assert app.runner.engine.run(app.runner.store.workers(), 1.0) == []
        with pytest.raises(StoreUnavailable, match="all 1 connections") as caught:
            with app.runner.engine.transaction():
                raise AssertionError
        assert caught.value.retry_safe
    assert app.counts() == {}


@on_newest
def test_P9_E3_a_transaction_that_cannot_begin_says_so_in_our_words(make_app: Make) -> None:
    with servers.durable_server(servers.startable()[-1]) as server:
        app = make_app(server.url, lock_timeout=0.5)
        app.counts()
        server.stop("fast")
        with pytest.raises(StoreUnavailable, match="cannot be reached"):
            with app.runner.engine.transaction():
                raise AssertionError
        app.close()


def test_the_transaction_of_a_handler_has_the_roles_settings_and_our_level(
    make_app: Make, eye: Eye, url: str
) -> None:
    """Finding P1, our side: also where the default is another level."""
    name = urlsplit(url).path[1:]
    eye(f"ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'")
    eye(f"ALTER DATABASE {name} SET statement_timeout = '77s'")
    app = make_app()
    text = """SELECT current_setting('transaction_isolation'), current_setting('enable_seqscan'),
                     current_setting('statement_timeout'), current_setting('lock_timeout'),
                     current_setting('idle_in_transaction_session_timeout')"""
    with app.runner.engine.transaction() as raw:
        assert raw.execute(text).fetchone() == ("read committed", "on", "77s", "0", "0")
    with app.runner.engine.transaction() as raw:
        with pytest.raises(psycopg.errors.DivisionByZero):  # what is theirs stays theirs
            raw.execute("SELECT 1 / 0")
        raw.execute("ROLLBACK")
        raw.execute("BEGIN")


@on_newest
@pytest.mark.parametrize("patience", [None, 1.0])
def test_P4_a_transaction_of_ours_that_stands_still_is_ended_and_run_again(
    make_app: Make, eye: Eye, patience: float | None
) -> None:
    """Finding P4: the server does not keep the rows of a frozen process for it."""
    app = make_app()
    app.counts()
    tries: list[int] = []

    def steps() -> Steps[None]:
        yield from app.runner.store.enqueue([new(key="k")])
        shown = yield Query("s", "SELECT current_setting('idle_in_transaction_session_timeout')")()
        assert shown == [("10s",) if patience is None else ("2s",)]
        tries.append(1)
        if len(tries) == 1:
            yield Query("s", "SET LOCAL idle_in_transaction_session_timeout = 1")()
            until(lambda: not [1 for _, state in eye(OURS) if state == "idle in transaction"])

    app.runner.engine.run(Op("stands still", steps), patience)
    assert len(tries) == 2
    assert len(app.jobs()) == 1


# ---- locks


def test_P16_a_plain_enqueue_waits_no_longer_than_lock_timeout(
    make_app: Make, connect: Connect
) -> None:
    """Finding P16."""
    app = make_app(lock_timeout=0.3)
    task = app.task(add)
    task.enqueue(1)
    with connect() as other:
        other.execute("LOCK TABLE towline_job")
        with pytest.raises(WriterBusy):
            task.enqueue(2)
    assert task.enqueue(3).refresh().state == "pending"


def test_P17_a_deadlock_with_what_a_caller_held_before_is_told_at_once(
    app: Towline, task: Task[[int], int], connect: Connect, eye: Eye
) -> None:
    """Finding P17: running our statement again would meet the same one eight times more."""
    before = int(
        eye("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0]
    )
    first, second = connect(), connect()
    first.execute("UPDATE mine SET id = id")
    task.using(on=first, key="a").enqueue(1)
    task.using(on=second, key="b").enqueue(1)

    def cross(connection: psycopg.Connection[Any], key: str) -> bool:
        try:
            task.using(on=connection, key=key).enqueue(2)
            connection.commit()
        except psycopg.errors.DeadlockDetected:
            connection.rollback()
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        ends = [pool.submit(cross, first, "b"), pool.submit(cross, second, "a")]
        assert sorted(end.result() for end in ends) == [False, True]
    first.close()
    second.close()

    def told() -> int:
        found = eye("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        return int(found[0][0]) - before

    until(lambda: told() >= 1)
    assert told() == 1


# ---- encodings and values


@on_newest
@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_P13_a_database_that_cannot_hold_every_text_is_refused(
    server: servers.Server, make_app: Make, encoding: str
) -> None:
    """Finding P13."""
    name = f"{server._mark}{encoding.lower()}"
    text = f"CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(text.encode())
        try:
            with pytest.raises(InvalidSetting, match=f"{encoding}.*ENCODING 'UTF8'"):
                make_app(server.url_of(name)).counts()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def test_P13_our_connections_speak_utf8_whatever_the_role_says(
    make_app: Make, eye: Eye, url: str
) -> None:
    eye(f"ALTER DATABASE {urlsplit(url).path[1:]} SET client_encoding = 'LATIN1'")
    app = make_app(f"{url}&client_encoding=LATIN1")

    @app.task
    def say(text: str) -> str:
        return text

    job = say.enqueue("漢字")
    assert "漢字" in job.refresh().arguments


@pytest.mark.parametrize("output", ['"\ud800"', '"\x00"'])
def test_P13_a_value_that_cannot_be_stored_is_said_to_be_one(app: Towline, output: str) -> None:
    """Not that the database is in trouble: the others of a turn can be written."""
    app.runner.run(app.runner.store.enqueue([new()]))
    (held,) = app.runner.run(app.runner.store.claim(1, ["default"], 1))
    assert isinstance(held, Claimed)
    with pytest.raises(InvalidValue) as caught:
        app.runner.run(app.runner.store.finish([Ending(held, Outcome.COMPLETED, output=output)]))
    assert not isinstance(caught.value, StoreError)
    assert len(app.jobs(state="running")) == 1


# ---- secrets


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:S3C%RET@h/x",
        "postgresql://u:S3C@RET@h/x",
        "postgresql://u:S3C/RET@h/x",
        "postgresql://u:S3C#RET@h/x",
        "postgresql://u:S3C?RET@h/x",
        "postgresql://u:S3CRET@h:port/x",
        "postgresql://u:S3CRET@[::1/x",
        "postgresql://h/x?password=S3C%RET",
        "postgresql://h/x?user=u&password=S3C&RET",
    ],
)
def test_P15_X13_no_part_of_a_password_is_shown(url: str) -> None:
    """Finding P15: neither in what is said of the URL nor in what is said without a server."""

    def use() -> None:
        engine = engines.PostgresEngine(EngineSettings(url=url, prefix="t_", lock_timeout=0.1))
        assert "S3C" not in repr(engine)
        engine.prepare()

    with pytest.raises((InvalidSetting, StoreUnavailable)) as caught:
        use()
    assert "S3C" not in str(caught.value)
    assert "RET" not in str(caught.value)
    assert caught.value.__cause__ is None or "S3C" not in str(caught.value.__cause__)


# ---- callers' connections


@on_newest
def test_B9_a_connection_to_another_database_is_refused(task: Task[[int], int], empty: str) -> None:
    """Finding B9: the job would be where no worker looks."""
    with psycopg.connect(empty) as theirs:
        with pytest.raises(UnsupportedConnection, match="no worker would see"):
            task.using(on=theirs).enqueue(1)
    older = psycopg2.connect(empty)
    with pytest.raises(UnsupportedConnection, match="pooler=True"):
        task.using(on=older).enqueue(1)
    older.close()

    async def with_asyncpg() -> None:
        newer = await asyncpg.connect(empty)
        try:
            with pytest.raises(UnsupportedConnection, match="pooler=True"):
                await task.using(on=newer).aenqueue(1)
        finally:
            await newer.close()

    asyncio.run(with_asyncpg())


@on_newest
@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_P20_codecs_of_an_asyncpg_connection_do_not_reach_us(
    task: Task[[int], int], url: str, kind: str
) -> None:
    """Finding P20: numbers came as text, and a key was looked for without end."""

    async def main() -> None:
        theirs = await asyncpg.connect(url)
        try:
            await theirs.set_type_codec(
                kind, schema="pg_catalog", encoder=str, decoder=str, format="text"
            )
            job = await task.using(on=theirs, key="k").aenqueue(1)
            again = await task.using(on=theirs, key="k").aenqueue(2)
            assert (again.id, again.created) == (job.id, False)
            assert await theirs.fetchval(f"SELECT 5::{kind}") == "5"
        finally:
            await theirs.close()

    asyncio.run(asyncio.wait_for(main(), 30))


@on_newest
def test_P20_a_sequence_behind_its_table_says_what_to_do(
    app: Towline, task: Task[[int], int], eye: Eye
) -> None:
    task.enqueue(1)
    eye("ALTER SEQUENCE towline_job_ids RESTART")
    app.close()
    with pytest.raises(StoreError, match=r"setval\('public.towline_job_ids'"):
        task.enqueue(2)


@on_newest
def test_P18_a_transaction_in_two_phases_needs_notify_to_be_off(make_app: Make) -> None:
    """Finding P18: as docs/guides/run/postgres.md says; PostgreSQL prepares none that notifies."""
    with servers.durable_server(servers.startable()[-1]) as server:
        app, loud = make_app(server.url, notify=False), make_app(server.url)
        app.migrate()
        with closing(psycopg.connect(server.url)) as theirs:
            theirs.tpc_begin("quiet")
            job = app.task(add).using(on=theirs).enqueue(1)
            theirs.tpc_prepare()
            assert app.counts() == {}
            theirs.tpc_commit()
            assert job.refresh().state == "pending"
            theirs.tpc_begin("loud")
            loud.task(add).using(on=theirs).enqueue(2)
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
                theirs.tpc_prepare()
        app.close()
        loud.close()


# ---- together


def test_A2_close_beside_threads_that_use_the_app(app: Towline, task: Task[[int], int]) -> None:
    """Finding A2: nothing crashes or hangs, and all goes on with new connections."""
    stop = threading.Event()
    done: list[int] = []

    def use(number: int) -> int:
        while not stop.is_set():
            done.append(task.enqueue(number).id)
            app.job(done[-1])
        return number

    with ThreadPoolExecutor(4) as pool:
        users = [pool.submit(use, number) for number in range(4)]

        def gone_on(before: int) -> bool:
            return len(done) > before or any(user.done() for user in users)

        for _ in range(30):
            until(partial(gone_on, len(done)))
            app.close()
        stop.set()
        assert [user.result() for user in users] == [0, 1, 2, 3]
    assert len(set(done)) == len(done)


def test_A16_awaiting_calls_do_not_wait_for_asyncios_threads(task: Task[[int], int]) -> None:
    """Finding A16: its few threads may all sleep."""

    async def main() -> None:
        release = threading.Event()
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        asleep = loop.run_in_executor(None, release.wait, 60)
        await task.aenqueue(1)
        assert not release.is_set()
        release.set()
        await asleep

    task.enqueue(0)
    asyncio.run(asyncio.wait_for(main(), 30))


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_Q5_forks_beside_threads_that_read_and_write(app: Towline, task: Task[[int], int]) -> None:
    """The child's first call works whatever the parent's threads were doing."""
    stop = threading.Event()

    def use(number: int) -> None:
        while not stop.is_set():
            app.job(task.enqueue(number).id)

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use, number) for number in range(3)]
        try:
            for _ in range(5):
                pid = os.fork()
                if pid == 0:
                    try:
                        fine = app.job(task.enqueue(9).id).state == "pending"
                    except BaseException:
                        fine = False
                    os._exit(0 if fine else 1)
                assert os.waitpid(pid, 0)[1] == 0
        finally:
            stop.set()
        for user in users:
            user.result()
