"""P1, P2, P3: LISTEN has a connection of its own, comes back by itself, and is only a hint."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

from tests import database as databases
from tests import servers
from tests.database import Database
from tests.kit import new
from tests.sqlite.processes import OtherProcess
from tests.until import until
from tests.wakes.rings import Rings
from tests.wakes.writer import writer
from towline import Towline
from towline.errors import InvalidSetting
from towline.postgres.engine import PostgresEngine
from towline.postgres.listen import PostgresListen

SESSIONS = """
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'
"""


@pytest.fixture(params=servers.servers())
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A fresh database on each server, with our tables."""
    with databases.opened(request.param, tmp_path) as database:
        yield database


@pytest.fixture
def url(database: Database) -> str:
    return database.url


@pytest.fixture
def app(url: str, make_app: Callable[..., Towline]) -> Towline:
    return make_app(url)


@pytest.fixture
def other(url: str) -> Iterator[OtherProcess]:
    with writer(url) as other:
        yield other


def engine_of(app: Towline) -> PostgresEngine:
    assert isinstance(app.runner.engine, PostgresEngine)
    return app.runner.engine


def enqueue(app: Towline, queue: str = "default") -> None:
    app.runner.run(app.runner.store.enqueue([new(queue=queue)]))


@contextmanager
def listening(
    app: Towline, listen_url: str | None = None, *, ends: bool = False
) -> Iterator[tuple[PostgresListen, Rings]]:
    """Somebody who listens; the first ring has come."""
    rings = Rings()
    listen = PostgresListen(engine_of(app), listen_url, ends=ends)
    listen.start(rings)
    try:
        assert rings.take() == [None]
        yield listen, rings
    finally:
        listen.stop()


# ---- what is heard


@pytest.mark.parametrize("order", ["enqueue FULL some", "enqueue NORMAL some", "caller some"])
def test_P2_a_commit_of_another_process_rings_with_its_queue(
    app: Towline, other: OtherProcess, order: str
) -> None:
    with listening(app) as (_, rings):
        for _ in range(10):
            other.do(order)
            assert rings.take() == [{"some"}]


def test_P2_rings_of_one_moment_are_one(app: Towline) -> None:
    with listening(app) as (_, rings):
        app.runner.run(
            app.runner.store.enqueue([new(queue=queue) for queue in ("a", "b", "a", "c")])
        )
        heard = [queue for queues in rings.take() for queue in queues or "?"]
        assert sorted(heard) == ["a", "b", "c"]


def test_P3_what_is_not_announced_does_not_ring(app: Towline, other: OtherProcess) -> None:
    with listening(app) as (_, rings):
        other.do("silent")
        other.do("insert")
        other.do("enqueue FULL last")
        assert rings.take() == [{"last"}]


def test_P3_without_notify_nobody_listens(make_app: Callable[..., Towline], url: str) -> None:
    assert engine_of(make_app(url, notify=False)).wakes() == []
    assert [type(wake) for wake in engine_of(make_app(url)).wakes()] == [PostgresListen]


# ---- chains that end


def test_W6_ended_chains_are_told_to_those_who_wait_for_one(app: Towline) -> None:
    """Not to workers, who would look for work each time; and work is not told to those who wait."""
    with listening(app) as (worker, working), listening(app, ends=True) as (_, waiting):
        worker.tell_ended()
        assert waiting.take() == [None]
        enqueue(app, "last")
        assert working.take() == [{"last"}]
        worker.tell_ended()
        assert waiting.take() == [None]


def test_S3_many_ends_are_told_a_few_times_and_the_last_is_not_lost(app: Towline) -> None:
    """At most one word every 20 ms; whatever ended after it was sent is sent again."""
    ended = threading.Event()
    rings = Rings(lambda: int(ended.is_set()))
    with listening(app) as (worker, _):
        waiter = PostgresListen(engine_of(app), ends=True)
        waiter.start(rings)
        try:
            heard = len(rings.take())
            for _ in range(2000):
                worker.tell_ended()
            ended.set()
            worker.tell_ended()
            rings.wait_until_seen(1)
            heard += len(rings.take())
        finally:
            waiter.stop()
    assert heard < 2000


def test_P2_nobody_is_told_by_one_that_has_not_started(app: Towline) -> None:
    listen = PostgresListen(engine_of(app))
    listen.tell_ended()
    listen.tell(["default"])
    listen.stop()
    with listening(app) as (_, rings):
        enqueue(app)
        assert rings.take() == [{"default"}]


# ---- coming back


def sessions(url: str) -> list[int]:
    """Those that listen."""
    with psycopg.connect(url, autocommit=True) as eye:
        return [pid for (pid,) in eye.execute(SESSIONS)]


def end_session(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as eye:
        (pid,) = sessions(url)
        eye.execute("SELECT pg_terminate_backend(%s)", [pid])


def test_P1_a_killed_session_comes_back_and_rings(
    app: Towline, url: str, other: OtherProcess
) -> None:
    with listening(app) as (_, rings):
        for _ in range(3):
            end_session(url)
            assert rings.take() == [None]
            other.do("enqueue FULL some")
            assert rings.take() == [{"some"}]


def test_P2_it_is_no_connection_of_the_pool(make_app: Callable[..., Towline], url: str) -> None:
    app = make_app(url, connections=1)
    with listening(app) as (_, rings):
        enqueue(app)
        assert rings.take() == [{"default"}]


def test_P1_a_server_that_crashes_is_heard_again() -> None:
    name = servers.startable()[-1]
    with servers.durable_server(name) as server:
        url = server.create()
        with closing(Towline(url)) as app:
            app.migrate()
            with listening(app) as (_, rings):
                for _ in range(2):
                    server.stop("immediate")
                    server.start()
                    assert rings.take_until(None)
                    with closing(Towline(url)) as fresh:
                        enqueue(fresh, "some")
                    assert {"some"} in rings.take_until({"some"})


def test_P1_a_server_that_is_away_at_the_start_is_heard_later() -> None:
    name = servers.startable()[-1]
    with servers.durable_server(name) as server:
        url = server.create()
        with closing(Towline(url)) as app:
            app.migrate()
            app.close()
            server.stop("fast")
            rings = Rings()
            listen = PostgresListen(engine_of(app))
            listen.start(rings)
            try:
                server.start()
                assert rings.take() == [None]
            finally:
                listen.stop()


def test_P2_a_direct_address_beside_a_pooler(make_app: Callable[..., Towline], url: str) -> None:
    """The app's own URL leads nowhere here, so that it cannot be what is heard."""
    blind = make_app("postgresql://nobody@127.0.0.1:1/nothing")
    with listening(blind, url) as (_, rings):
        enqueue(make_app(url))
        assert rings.take() == [{"default"}]


def test_P2_a_direct_address_that_is_none_is_refused(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match="postgresql://"):
        PostgresListen(engine_of(app), "postgresql://[")


# ---- the end of it


def test_P2_stop_leaves_nothing_behind(app: Towline, url: str) -> None:
    before = len(os.listdir("/dev/fd"))
    with listening(app) as (listen, _):
        listen.stop()
        listen.stop()
    assert threads() == []
    assert len(os.listdir("/dev/fd")) == before
    until(lambda: not sessions(url))


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "towline listen"]


def test_P2_it_stops_while_the_server_is_away(make_app: Callable[..., Towline]) -> None:
    listen = PostgresListen(engine_of(make_app("postgresql://nobody@127.0.0.1:1/nothing")))
    listen.start(Rings())
    listen.stop()
    assert threads() == []
