"""The servers that tests run on: shared by a run, gone after it, and never silently missing."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests import cluster, rights, servers
from tests.servers import MissingServer, durable_server, run_folder, server

ROOT = Path(__file__).parents[2]
NEWEST = servers.startable()[-1:]

JOIN = """
import sys
from pathlib import Path
from tests import servers
servers.join_run(Path(sys.argv[1]))
print(servers.server(sys.argv[2]).url)
"""

WAIT = """
import sys
from tests import servers
port = servers.server(sys.argv[1]).port
run = servers.run_folder()
print(port, run, (run / "memory").resolve(), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", servers.servers())
def test_a_database_is_a_copy_of_its_template(name: str) -> None:
    prepared: list[str] = []

    def prepare(url: str) -> None:
        prepared.append(url)
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE mine (id bigint)")

    here = server(name)
    kind = f"copied_{os.getpid()}"
    template = here.template(kind, prepare)
    assert here.template(kind, prepare) == template
    assert len(prepared) == 1
    with here.database(template) as one, here.database(template) as two:
        with psycopg.connect(one) as connection:
            connection.execute("INSERT INTO mine VALUES (1)")
        with psycopg.connect(two) as connection:
            assert connection.execute("SELECT count(*) FROM mine").fetchone() == (0,)


@pytest.mark.parametrize("name", servers.servers())
def test_a_database_is_dropped_under_its_connections(name: str) -> None:
    with server(name).database() as url:
        connection = psycopg.connect(url)
    with connection, pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(url)


@pytest.mark.parametrize("name", NEWEST)
def test_a_server_is_also_reached_over_tcp(name: str) -> None:
    here = server(name)
    with here.database() as url, psycopg.connect(here.over_tcp(url)) as connection:
        assert connection.info.host == "127.0.0.1"
        assert connection.info.dbname == conninfo_to_dict(url)["dbname"]


@pytest.mark.parametrize("name", NEWEST)
def test_processes_of_a_run_share_its_server(name: str) -> None:
    joined = subprocess.check_output(
        [sys.executable, "-c", JOIN, run_folder(), name], cwd=ROOT, text=True
    )
    assert joined.strip() == server(name).url


@pytest.mark.parametrize("name", NEWEST)
def test_a_killed_run_leaves_nothing_behind(name: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", WAIT, name],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as run:
        assert run.stdout is not None
        port, *folders = run.stdout.readline().split()
        assert is_listening(int(port))
        assert all(os.path.exists(folder) for folder in folders)
        run.send_signal(signal.SIGKILL)
    while is_listening(int(port)) or any(os.path.exists(folder) for folder in folders):
        time.sleep(0.05)  # until the timeout of the test


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("name", NEWEST)
def test_a_durable_server_comes_back_from_a_crash_with_what_was_committed(name: str) -> None:
    with durable_server(name) as crashing:
        first = crashing.pid
        with psycopg.connect(crashing.url) as connection:
            connection.execute("CREATE TABLE mine (id bigint)")
        connection = psycopg.connect(crashing.url)
        connection.execute("INSERT INTO mine VALUES (1)")
        crashing.stop("immediate")
        assert crashing.pid is None
        connection.close()
        crashing.start()
        assert crashing.pid not in (None, first)
        with psycopg.connect(crashing.url) as connection:
            assert connection.execute("SELECT count(*) FROM mine").fetchone() == (0,)
            assert connection.execute("SHOW fsync").fetchone() == ("on",)


@pytest.mark.parametrize("name", NEWEST)
def test_a_copy_of_the_programs_runs_as_the_original(name: str) -> None:
    """Needed where those who may run PostgreSQL cannot see the folder of the sources."""
    programs = servers.programs_of(name)
    copied = cluster.copy(programs, run_folder())
    assert cluster.version(copied) == cluster.version(programs)
    assert any(starter.can_run(copied, run_folder()) for starter in cluster.starters())


def test_a_missing_server_fails_and_says_what_to_do() -> None:
    with pytest.raises(MissingServer, match="TOWLINE_SKIP=postgres12 "):
        server("postgres 12")


def test_a_missing_right_fails_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "WAYS", (["nobody-has-this"], ["false"]))
    monkeypatch.delenv("TOWLINE_SKIP", raising=False)
    rights._way.cache_clear()
    with pytest.raises(rights.MissingRight, match="TOWLINE_SKIP=mount "):
        rights.mounting()


@pytest.mark.parametrize(
    ("listed", "name", "skipped"),
    [
        ("postgres16", "postgres 16", True),
        ("redis, Postgres-16", "postgres 16", True),
        ("postgres16", "postgres 18", False),
        ("postgres16", "postgres 16 installed", False),
        ("postgres-installed", "postgres 15 installed", True),
        ("postgres15installed", "postgres 15 installed", True),
        ("postgres-installed", "postgres 16", False),
        ("", "postgres 16", False),
    ],
)
def test_a_server_is_left_out_only_by_name(
    listed: str, name: str, skipped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOWLINE_SKIP", listed)
    assert servers.is_skipped(name) is skipped


def test_the_summary_says_what_was_left_out() -> None:
    environment = {**os.environ, "TOWLINE_SKIP": "postgres16,mount"}
    environment.pop("TOWLINE_TEST_PG", None)
    said = subprocess.check_output(
        [
            sys.executable,
            "-m",
            "pytest",
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            __file__,
        ],
        cwd=ROOT,
        env=environment,
        text=True,
    )
    assert "[postgres 16]" not in said
    assert "left out by TOWLINE_SKIP" in said
    assert said.splitlines().count("postgres 16, mount") == 1
