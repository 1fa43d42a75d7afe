"""Findings A22, B3: a worker does not wait for a database that can never be used as it is; it ends
with exit code 4 and one line that says what is wrong."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from tests import database as databases
from tests.cli.shop import APP, LIMIT, Shop
from tests.cluster import free_port
from tests.kit import package_for_all
from towline import Towline, TowlineError

FUTURE = "INSERT INTO towline_migration (name, applied_at) VALUES ('0099-future-breaking', 0)"
NO_DATABASE = 4
NOBODY = 65534
NOT_NEEDED = {"__main__", "integrations", "dashboard", "agent"}  # rooms, by a worker


def no_folder(folder: Path) -> str:
    return f"sqlite:///{folder}/nowhere/app.db"


def a_text_file(folder: Path) -> str:
    (folder / "text.db").write_text("this is not a database, though it is long enough. " * 100)
    return f"sqlite:///{folder}/text.db"


def a_directory(folder: Path) -> str:
    (folder / "directory.db").mkdir()
    return f"sqlite:///{folder}/directory.db"


def newer_tables(folder: Path) -> str:
    url = f"sqlite:///{folder}/newer.db"
    with closing(Towline(url)) as app:
        app.migrate()
    with closing(sqlite3.connect(folder / "newer.db")) as connection:
        connection.execute(FUTURE)
        connection.commit()
    return url


PLACES: dict[str, tuple[Callable[[Path], str], str]] = {
    "no folder": (no_folder, "folder of the database does not exist"),
    "a text file": (a_text_file, "not a database"),
    "a directory": (a_directory, "directory.db"),
    "newer tables": (newer_tables, "newer"),
}


@pytest.fixture(params=PLACES, ids=lambda name: name.replace(" ", "_"))
def unusable(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, str]:
    make, word = PLACES[request.param]
    return make(tmp_path), word


@pytest.mark.parametrize(
    "options", [[], ["--drain"], ["--processes", "2"]], ids=["plain", "drain", "processes"]
)
def test_the_command_ends_and_says_why(
    shop: Shop, unusable: tuple[str, str], options: list[str]
) -> None:
    url, word = unusable
    if options[:1] == ["--processes"]:
        done = shop.run("worker", APP, *options, code=NO_DATABASE, env={"SHOP_URL": url})
        lines = [line for line in done.stderr.splitlines() if word in line]
        assert lines, done.stderr
        assert "Traceback" not in done.stderr
    else:
        said = shop.refused("worker", APP, *options, code=NO_DATABASE, env={"SHOP_URL": url})
        assert word in said


def test_a_worker_beside_the_application_raises(unusable: tuple[str, str]) -> None:
    url, word = unusable
    with closing(Towline(url)) as app:
        with pytest.raises(TowlineError, match=word):
            with app.worker():
                pytest.fail("it began")


@pytest.mark.parametrize("drain", [False, True])
def test_no_permission(drain: bool) -> None:
    """The file is there and cannot be written by the user of the worker."""
    with tempfile.TemporaryDirectory() as name:  # those of pytest are not for other users
        folder = Path(name)
        folder.chmod(0o755)
        with databases.opened(databases.SQLITE, folder) as database:
            shop = Shop(folder, database.url)
            (folder / "app.db").chmod(0o444)
            folder.chmod(0o555)
            try:
                said = as_nobody(shop, "worker", APP, *(["--drain"] if drain else []))
            finally:
                folder.chmod(0o755)
            shop.close()
    assert said.startswith("towline: ")
    assert said.count("\n") == 1, said
    assert "written" in said


def as_nobody(shop: Shop, *words: str) -> str:
    """What a user says who may read and not write; the exit code says so. Root may always write,
    and becomes nobody."""
    program = (
        "import importlib.readers, os, pkgutil, sys, towline\n"
        "for found in pkgutil.walk_packages(towline.__path__, 'towline.'):\n"
        f"    if not {NOT_NEEDED} & {{*found.name.split('.')}}:\n"
        "        importlib.import_module(found.name)\n"  # nobody may not read Python itself here
        "if os.geteuid() == 0:\n"
        f"    os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "from towline.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    with package_for_all() as copy:
        found = shop.environment(PYTHONDONTWRITEBYTECODE="1")
        found["PYTHONPATH"] = os.pathsep.join([str(copy), found.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-c", program, *words], cwd=shop.folder, env=found,
            capture_output=True, text=True, timeout=LIMIT, check=False,
        )  # fmt: skip
    assert done.returncode == NO_DATABASE, done.stderr
    return done.stderr


def test_newer_tables_on_a_server(tmp_path: Path) -> None:
    with databases.opened(databases.newest(), tmp_path) as database:
        database.rows(FUTURE)
        shop = Shop(tmp_path, database.url)
        try:
            assert "newer" in shop.refused("worker", APP, "--drain", code=NO_DATABASE)
        finally:
            shop.close()


def test_a_server_that_is_away_is_waited_for(tmp_path: Path) -> None:
    """It may come: the worker says that it waits, works when it is there, and can be stopped
    before."""
    shop = Shop(tmp_path, f"postgresql://nobody@127.0.0.1:{free_port()}/nothing")
    try:
        worker = shop.start("worker", APP)
        worker.told("waits for its database")
        assert worker.process.poll() is None
        worker.signal()
        assert worker.ends() == 0
    finally:
        shop.close()


def test_a_server_that_comes_is_used(tmp_path: Path) -> None:
    with databases.opened(databases.newest(), tmp_path) as database:
        ((name,),) = database.rows("SELECT current_database()")
        change = f"ALTER DATABASE {name} ALLOW_CONNECTIONS ".encode()
        shop = Shop(tmp_path, database.url)
        try:
            job = shop.put("add", a=1, b=2)
            shop.app.close()
            with psycopg.connect(database.url, dbname="postgres", autocommit=True) as server:
                server.execute(change + b"false")
                try:
                    worker = shop.start("worker", APP, "--drain")
                    worker.told("waits for its database")
                finally:
                    server.execute(change + b"true")
            assert worker.ends() == 0
            assert shop.app.job(job).output == 3
        finally:
            shop.close()
