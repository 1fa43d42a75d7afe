"""What a URL, a role and a server may be like: E3, and errors that say what to do."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from tests import servers
from tests.kit import claim, completed, new
from tests.postgres.conftest import add, on_newest
from tests.races.together import in_threads
from towline import Towline
from towline.errors import InvalidSetting, ReadOnlyDatabase, StoreError, StoreUnavailable
from towline.model import State
from towline.operation import Op, Query, Steps

Make = Callable[..., Towline]
Connect = Callable[..., psycopg.Connection[Any]]
Alter = Callable[[str], object]


@pytest.fixture
def alter(url: str, connect: Connect) -> Alter:
    """Give the database a setting, which connections opened from now on have."""
    eye = connect(autocommit=True)
    name = urlsplit(url).path[1:]
    return lambda setting: eye.execute(f"ALTER DATABASE {name} SET {setting}".encode())


def use(app: Towline) -> None:
    """Every kind of operation once: plain, keyed, many, read, a turn, retention."""
    task = app.task(add)
    first = task.enqueue(1)
    second = task.using(key="k", after=[first]).enqueue(2)
    app.enqueue_many([task.call(n) for n in range(300)])
    assert first.refresh().state == "pending"

    def steps() -> Steps[None]:
        held = yield from claim(app.runner.store, 5)
        assert held[0].job_id == first.id
        assert len((yield from app.runner.store.finish(list(map(completed, held)))).accepted) == 5

    app.runner.run(Op("steps", steps))
    assert second.refresh().state == "pending"
    assert app.cancel(second.id).state == "cancelled"
    assert app.retry(second.id).state == "pending"
    assert len(app.jobs(limit=10)) == 10
    app.prune()
    assert app.counts()["default"][State.PENDING] == 297


# ---- URLs


@pytest.mark.parametrize("scheme", ["postgres", "postgresql"])
def test_both_schemes_are_the_same(url: str, make_app: Make, scheme: str) -> None:
    app = make_app(scheme + url.removeprefix("postgresql"))
    assert app.task(add).enqueue(1).refresh().state == "pending"


@pytest.mark.parametrize("url", ["postgresql://[::1/x", "postgresql:///x?no_such_option=1"])
def test_a_url_that_is_none_says_what_one_is_like(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"postgresql://user@host/database"):
        Towline(url)


def test_a_url_may_set_what_we_set_by_default(url: str, make_app: Make) -> None:
    app = make_app(f"{url}&application_name=mine&connect_timeout=3")
    app.counts()
    with psycopg.connect(url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mine'"
        ).fetchone()
    assert found is not None
    assert found[0] >= 1


def test_without_the_driver_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidSetting, match=r"pip install -e '\.\[postgres\]'"):
        Towline("postgresql:///none")


def test_nothing_is_opened_before_the_first_use() -> None:
    Towline("postgresql://nobody@127.0.0.1:1/none").close()


@pytest.mark.parametrize("connections", [0, -1])
def test_a_pool_of_none_is_refused(connections: int) -> None:
    with pytest.raises(InvalidSetting, match="connections"):
        Towline("postgresql:///none", connections=connections)


# ---- a server that cannot be used


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_E3_a_server_that_is_not_there(make_app: Make) -> None:
    app = make_app(f"postgresql://me@127.0.0.1:{closed_port()}/mine", lock_timeout=1)
    for call in (
        app.counts,
        app.migrate,
        lambda: app.runner.run(app.runner.store.enqueue([new()])),
    ):
        with pytest.raises(
            StoreUnavailable, match=r"database mine cannot be reached: .*refused"
        ) as e:
            call()
        assert e.value.retry_safe


def test_E3_a_database_that_is_not_there(url: str, make_app: Make) -> None:
    other = urlsplit(url)._replace(path="/no_such_database").geturl()
    with pytest.raises(StoreUnavailable, match='"no_such_database" does not exist'):
        make_app(other).counts()


@pytest.fixture
def role(url: str) -> Iterator[Callable[[str], str]]:
    """Make a role with these attributes; gives the URL by which it comes."""
    name = f"{urlsplit(url).path[1:]}_role"

    def execute(text: str) -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(text.encode())

    def make(attributes: str) -> str:
        execute(f"CREATE ROLE {name} LOGIN {attributes}")
        execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}")
        execute(f"GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO {name}")
        place = urlsplit(url)
        return place._replace(netloc=f"{name}@{place.netloc.rpartition('@')[2]}").geturl()

    yield make
    execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_E3_no_room_for_a_connection(make_app: Make, role: Callable[[str], str]) -> None:
    app = make_app(role("CONNECTION LIMIT 0"), lock_timeout=1)
    with pytest.raises(StoreUnavailable, match="too many connections"):
        app.counts()


def test_a_role_with_room_for_one_connection_is_served_through_it(
    make_app: Make, role: Callable[[str], str]
) -> None:
    """Many threads share what there is; none is told that there is no room."""
    app = make_app(role("CONNECTION LIMIT 1"), connections=1, lock_timeout=30)
    task = app.task(add)
    task.enqueue(1)
    ids = in_threads(8, lambda n: task.enqueue(n).id)
    assert len(set(ids)) == 8


def test_all_connections_in_use_says_what_to_raise(url: str, make_app: Make) -> None:
    app = make_app(connections=1, lock_timeout=1)
    app.counts()

    def steps() -> Steps[None]:
        with pytest.raises(StoreUnavailable, match=r"all 1 connections .* raise connections="):
            app.counts()
        return
        yield

    app.runner.run(Op("inside", steps))


# ---- what a role may have set


@pytest.mark.parametrize("isolation", ["serializable", "repeatable read"])
def test_our_isolation_is_our_own(alter: Alter, make_app: Make, isolation: str) -> None:
    alter(f"default_transaction_isolation = '{isolation}'")
    app = make_app()
    use(app)

    def steps() -> Steps[None]:
        rows = yield Query("isolation", "SELECT current_setting('transaction_isolation')")()
        assert rows == [("read committed",)]

    app.runner.run(Op("look", steps))


@pytest.mark.parametrize(
    "setting",
    [
        "enable_indexscan = off", "plan_cache_mode = force_generic_plan", "jit = on",
        "DateStyle = 'German'", "TimeZone = 'Asia/Kathmandu'", "bytea_output = 'escape'",
        "standard_conforming_strings = off", "search_path = ''", "client_encoding = 'LATIN1'",
        "default_transaction_deferrable = on", "synchronous_commit = off", "lc_messages = 'C'",
        "idle_session_timeout = '200ms'", "lock_timeout = '1ms'", "extra_float_digits = -15",
    ],
)  # fmt: skip
@on_newest
def test_a_roles_settings_do_not_matter(alter: Alter, make_app: Make, setting: str) -> None:
    alter(setting)
    use(make_app())


def test_a_statement_timeout_of_the_role_is_not_for_our_transactions(
    alter: Alter, make_app: Make
) -> None:
    alter("statement_timeout = '5ms'")
    app = make_app()

    def steps() -> Steps[None]:
        yield Query("slow", "SELECT pg_sleep(0.1)")()

    app.runner.run(Op("slow", steps))
    app.runner.run(Op("slow", steps, reads=True))


def test_E3_what_is_cancelled_says_so(app: Towline) -> None:
    """As by an administrator, or by the role's statement_timeout where a statement is all."""

    def steps() -> Steps[None]:
        yield Query("cancel", "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(1)")()

    with pytest.raises(StoreUnavailable, match=r"slow was cancelled .*statement_timeout") as e:
        app.runner.run(Op("slow", steps))
    assert e.value.retry_safe
    assert app.counts() == {}


def test_a_read_only_default_is_respected(alter: Alter, make_app: Make) -> None:
    alter("default_transaction_read_only = on")
    app = make_app()
    assert app.counts() == {}
    with pytest.raises(ReadOnlyDatabase, match=r"read-only.* name the primary"):
        app.runner.run(app.runner.store.enqueue([new()]))
    with pytest.raises(ReadOnlyDatabase, match="read-only"):
        app.pause("default")


# ---- servers of one's own


@pytest.fixture
def own_server() -> Iterator[servers.DurableServer]:
    with servers.durable_server(servers.startable()[-1]) as server:
        yield server


def test_a_replica_says_to_name_the_primary(
    own_server: servers.DurableServer, make_app: Make
) -> None:
    app = make_app(own_server.url)
    task = app.task(add)
    job = task.enqueue(1)
    app.close()
    own_server.stop("fast")
    data = own_server._cluster.data
    (data / "standby.signal").touch()
    os.chown(data / "standby.signal", data.stat().st_uid, data.stat().st_gid)
    own_server.start()
    assert app.job(job.id).state == "pending"  # reading is fine
    for call in (lambda: task.enqueue(2), lambda: app.cancel(job.id), app.prune):
        with pytest.raises(ReadOnlyDatabase, match="a replica cannot be used, name the primary"):
            call()
    with pytest.raises((ReadOnlyDatabase, StoreError), match=r"read-only|recovery"):
        app.vacuum()


def test_a_wrong_password_is_said(own_server: servers.DurableServer, make_app: Make) -> None:
    with psycopg.connect(own_server.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE careful LOGIN SUPERUSER PASSWORD 'right'")
        rules = Path(own_server._cluster.data / "pg_hba.conf")
        rules.write_text("host all all 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        connection.execute("SELECT pg_reload_conf()")
        place = f"127.0.0.1:{own_server.port}/postgres"
        app = make_app(f"postgresql://careful:right@{place}")
        app.counts()
        app = make_app(f"postgresql://careful:wrong@{place}", lock_timeout=1)
        with pytest.raises(StoreUnavailable, match="password authentication failed") as e:
            app.counts()
        assert "wrong" not in str(e.value)
