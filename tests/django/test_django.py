"""Django: its own tests, the contract on each release and engine, a live project with a kill."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.agent import by_hand
from tests.django import releases
from tests.django.releases import HERE, OWN, ROOT, run
from tests.postgres.catalogue import catalogue
from tests.speed import by_speed
from towline import Towline

pytestmark = pytest.mark.timeout(900)  # without `make test` the first installs Django 6

SHOP = ROOT / "examples" / "django_shop"
SETTINGS = {"DJANGO_SETTINGS_MODULE": "contract.settings"}
ENGINES = ("sqlite", "postgres")

# Of Django's own tests of its immediate backend those cannot hold that say what it cannot do.
IMMEDIATE = "tasks.test_immediate_backend.ImmediateBackendTestCase."
CANNOT_HOLD = {
    IMMEDIATE + "test_cannot_get_result": "results can be read, but not inside an event loop",
    IMMEDIATE + "test_cannot_refresh_result": "results can be read again",
    IMMEDIATE + "test_cannot_pass_run_after": "run_after is kept",
}


@contextmanager
def place(engine: str, folder: Path) -> Iterator[str]:
    """What CONTRACT_DATABASE and SHOP_DATABASE are given."""
    if engine == "sqlite":
        yield str(folder / "app.db")
    else:
        with servers.server(servers.servers()[-1]).database() as url:
            yield url


def live(engine: str, folder: Path, *words: str) -> Any:
    with place(engine, folder) as database:
        given = {**SETTINGS, "CONTRACT_DATABASE": database}
        return json.loads(run(["live.py", *words], given=given).stdout.splitlines()[-1])


@pytest.mark.parametrize("release", releases.found())
def test_I1_djangos_own_tests_pass_as_pinned(release: str) -> None:
    releases.install()
    done = run(["own_tests.py", str(releases.source(release))], release)
    told = json.loads(done.stdout.splitlines()[-1])
    assert set(told["bad"]) == set(CANNOT_HOLD)
    assert told["ran"] > 70


CONTRACT = [
    (OWN, "postgres"),
    *((release, "sqlite") for release in releases.found()),
    *by_speed([], [(OWN, "sqlite"), *((release, "postgres") for release in releases.found())]),
]


@pytest.mark.parametrize(("release", "engine"), CONTRACT)
def test_I1_I2_I4_I5_I7_the_contract_holds(release: str, engine: str, tmp_path: Path) -> None:
    with place(engine, tmp_path) as database:
        given = {**SETTINGS, "CONTRACT_DATABASE": database}
        done = run(
            ["-m", "django", "test", "contract", "--pattern=cases_*.py", "--noinput"],
            release,
            given=given,
        )
    (ran,) = re.findall(r"^Ran (\d+) tests", done.stderr, re.MULTILINE)
    assert int(ran) > 40


@pytest.mark.parametrize("engine", by_speed(ENGINES[1:], ENGINES))
def test_I3_the_task_of_a_killed_worker_is_run_again(engine: str, tmp_path: Path) -> None:
    told = live(engine, tmp_path, "kill", str(tmp_path))
    assert told["by"] != told["killed"]
    del told["by"], told["killed"]
    assert told == {"status": "SUCCESSFUL", "attempts": 2, "errors": ["LeaseLost"], "workers": 2}


@pytest.mark.parametrize(("number", "age"), [(by_speed("200", "1000"), "600"), ("100", "0")])
def test_I6_attempts_leave_no_more_connections_than_slots(
    number: str, age: str, tmp_path: Path
) -> None:
    """Awaiting handlers have one thread for Django's queries, which is a slot of theirs. Without
    CONN_MAX_AGE none is left at all."""
    told = live("postgres", tmp_path, "connections", number, "4", age)
    assert told["left"] <= 4 + 1
    if age == "0":
        assert told["left in the end"] == 0
        assert told["apart"], "run_in='process' ran in the worker, or not at all"
        number = str(int(number) + 1)
    assert told["completed"] == int(number)


def test_I7_a_page_of_the_admin_costs_the_same_beside_any_number_of_jobs(tmp_path: Path) -> None:
    sizes = by_speed(("2000", "20000"), ("2000", "1000000"))
    for asked, (few, many) in live("sqlite", tmp_path, "pages", *sizes).items():
        assert many <= 1.5 * few + 100, f"?{asked}: {few} steps, then {many}"


@pytest.mark.parametrize("engine", ENGINES)
def test_I8_migrate_makes_the_schema_that_the_app_makes(engine: str, tmp_path: Path) -> None:
    with place(engine, tmp_path) as djangos, place(engine, tmp_path / "..") as ours:
        given = {**SETTINGS, "CONTRACT_DATABASE": djangos}
        run(["-m", "django", "migrate", "--verbosity=0"], given=given)
        assert schema(djangos) == schema_of_the_app(ours)
        # Both ways lead on from each other.
        with closing(Towline(url_of(djangos))) as app:
            assert app.migrate() == []


def url_of(place: str) -> str:
    return place if place.startswith("postgresql:") else f"sqlite:///{place}"


def schema_of_the_app(place: str) -> Any:
    place = place.replace("app.db", "ours.db")
    with closing(Towline(url_of(place))) as app:
        app.migrate()
    return schema(place)


def schema(place: str) -> Any:
    if place.startswith("postgresql:"):
        found = catalogue(place)
        return {
            about: [row for row in rows if "towline_" in str(row)] for about, rows in found.items()
        }
    with closing(sqlite3.connect(place)) as connection:
        return connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE name LIKE 'towline_%' ORDER BY name"
        ).fetchall()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_example_passes_its_own_tests(engine: str, tmp_path: Path) -> None:
    release = (releases.found() or [OWN])[-1] if engine == "sqlite" else OWN
    with place(engine, tmp_path) as database:
        given = {"SHOP_FILE": database} if engine == "sqlite" else {"SHOP_DATABASE": database}
        done = run(["manage.py", "test", "--noinput"], release, path=SHOP, given=given)
        if release != OWN:
            run(["manage.py", "makemigrations", "--check"], release, path=SHOP, given=given)
    assert "Ran 4 tests" in done.stderr


PRINTS = """
import os
print("hello from the settings")
os.write(1, b"below Python\\n")
from contract.settings import *
TASKS["reports"] = {**TASKS["default"], "OPTIONS": {"prefix": "reports_"}}
"""


@pytest.fixture
def printing(tmp_path: Path) -> dict[str, str]:
    """Of a project whose settings print, in a folder of its own: what its commands are given."""
    (tmp_path / "prints.py").write_text(PRINTS)
    (tmp_path / "manage.py").write_text((SHOP / "manage.py").read_text())
    return {
        "DJANGO_SETTINGS_MODULE": "prints",
        "CONTRACT_DATABASE": str(tmp_path / "app.db"),
        "PYTHONPATH": os.pathsep.join(map(str, (HERE, ROOT))),
    }


def test_I1_an_entry_of_tasks_is_named_before_the_command(
    printing: dict[str, str], tmp_path: Path
) -> None:
    for words in (["--tasks=reports", "migrate"], ["--tasks", "reports", "stats", "--tasks"]):
        run(["manage.py", "towline", *words], path=tmp_path, given=printing)
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        made = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    assert ("reports_job",) in made
    assert ("towline_job",) not in made


@pytest.mark.parametrize(("words", "alias"), [([], "default"), (["--tasks=reports"], "reports")])
def test_A5_agents_are_served_by_the_command_that_a_refusal_names(
    printing: dict[str, str], tmp_path: Path, words: list[str], alias: str
) -> None:
    """What settings print has gone to stdout when `manage.py towline` begins, and goes to stderr
    behind `towline mcp`."""
    run(["manage.py", "towline", *words, "migrate"], path=tmp_path, given=printing)
    refused = run(
        ["manage.py", "towline", *words, "mcp"], path=tmp_path, given=printing, check=False
    )
    assert refused.returncode == 2
    assert "jsonrpc" not in refused.stdout
    (command,) = re.findall(r"`(.*?)`", refused.stderr)
    assert command.endswith(f"towline mcp towline.integrations.django.target:{alias}")
    del printing["DJANGO_SETTINGS_MODULE"]  # which the command says
    place = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    visited = by_hand.visit(
        ["bash", "-c", command], tmp_path, {**os.environ, **printing, "PATH": place}
    )
    assert visited.code == 0, visited.errors
    hello, overview = visited.messages
    assert hello["result"]["serverInfo"]["name"] == "towline"
    assert overview["result"]["structuredContent"]["queues"] == {}
    assert "hello from the settings" in visited.errors
    assert "below Python" in visited.errors


def test_nothing_of_the_project_is_a_test_of_pytest() -> None:
    assert not list((HERE / "contract").rglob("test_*.py"))
