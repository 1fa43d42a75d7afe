"""The fixtures, in a pytest of their own, and what they cost where nobody uses them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.shape.source import ROOT

SHOP = """
from towline import Towline

app = Towline("sqlite:////nowhere/at/all.db")
other = 7

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""

TESTS = """
from shop import add, app
from towline.testing import assert_enqueued

def test_one(towline_app, towline_drain):
    assert towline_app is app
    job = add.enqueue(1, 2)
    assert towline_drain() == 1
    assert job.result(timeout=0) == 3

def test_two(towline_app, towline_clock, towline_drain):
    assert_enqueued(add, times=0)
    add.using(delay=60).enqueue(1, 2)
    assert towline_drain() == 0
    towline_clock.advance(60)
    assert towline_drain(raising=False) == 1
"""


def pytest_in(folder: Path, *, app: str = "", tests: str) -> subprocess.CompletedProcess[str]:
    """Run pytest on a test file, with the plugin and no other."""
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(tests)
    (folder / "pytest.ini").write_text(f"[pytest]\npythonpath = .\ntowline_app = {app}\n")
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", "-q", "-p", "towline.pytest_plugin"],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_the_app_of_the_setting_is_isolated_for_each_test(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, app="shop:app", tests=TESTS)
    assert "2 passed" in done.stdout, done.stdout


def test_without_a_setting_there_is_a_new_app(tmp_path: Path) -> None:
    tests = "def test_it(towline_app):\n    assert towline_app.registry == {}\n"
    done = pytest_in(tmp_path, tests=tests)
    assert "1 passed" in done.stdout, done.stdout


def test_a_setting_that_names_something_else_says_so(tmp_path: Path) -> None:
    done = pytest_in(tmp_path, app="shop:other", tests="def test_it(towline_app): ...\n")
    assert "towline_app = 'shop:other' is 7, which is no Towline app" in done.stdout


def test_nothing_is_imported_until_a_fixture_is_used(tmp_path: Path) -> None:
    tests = (
        "import sys\n"
        "def test_it():\n"
        "    mine = sorted(name for name in sys.modules if name.startswith('towline'))\n"
        "    assert mine == ['towline', 'towline.pytest_plugin', 'towline.version']\n"
    )
    done = pytest_in(tmp_path, app="shop:app", tests=tests)
    assert "1 passed" in done.stdout, done.stdout
