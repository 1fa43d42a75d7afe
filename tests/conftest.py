"""Databases and clocks for every suite: throw-away files, and a clock that tests move."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Before the first of them is imported: an assertion in a module that tests share says what failed,
# as one in a test does. By name, since `tests` itself has been imported to get here.
SHARED = {f"tests.{path.stem}" for path in Path(__file__).parent.iterdir()}
pytest.register_assert_rewrite(*SHARED - sys.modules.keys())

from tests import brokers, browser, rights, servers  # noqa: E402
from tests.django import releases  # noqa: E402
from tests.kit import Clock  # noqa: E402
from tests.memory import memory  # noqa: E402
from towline import Towline  # noqa: E402

# Seconds that an app waits for others where a test does not say: a disk may stall for ten of them.
FAR = 60.0


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Where this test's database will lie."""
    return tmp_path / "app.db"


@pytest.fixture
def url(database: Path) -> str:
    return f"sqlite:///{database}"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def make_app(url: str) -> Iterator[Callable[..., Towline]]:
    """Open further apps on the same file; all are closed at the end."""
    apps: list[Towline] = []

    def make(url_: str = url, **settings: Any) -> Towline:
        app = Towline(url_, **{"lock_timeout": FAR, **settings})
        apps.append(app)
        return app

    yield make
    for app in apps:
        app.close()


@pytest.fixture
def app(make_app: Callable[..., Towline], clock: Clock) -> Towline:
    """An app with tables, on the clock that the test moves."""
    app = make_app(clock=clock)
    app.migrate()
    return app


# Folders whose tests mostly wait, for a lease, a timeout, another process; and those whose tests
# compute for seconds, and so begin first.
WAITING = ("faults", "demo", "worker", "cli", "wakes")
LONG = ("model", "races", "mutants", "postgres")
TAIL = 0.15  # of the others come after the last that waits, so that none is alone at the end


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put those that wait between those that compute, so that no core has nothing to do. What some
    of a file share is therefore kept for the session; but for a browser, whose loop would be in the
    way of others: those of a file that look through one stay together."""

    def place(item: pytest.Item, folders: tuple[str, ...]) -> int:
        folder = item.path.parent.name
        return folders.index(folder) if folder in folders else len(folders)

    waiting = [item for item in items if place(item, WAITING) < len(WAITING)]
    others = [item for item in items if place(item, WAITING) == len(WAITING)]
    waiting.sort(key=lambda item: place(item, WAITING))
    others.sort(key=lambda item: place(item, LONG))
    step = len(others) * (1 - TAIL) / max(len(waiting), 1)
    spread = [(number * step, item) for number, item in enumerate(waiting)]
    looking: dict[Path, float] = {}  # where the first of a file stands
    ordered = list(spread)
    for number, item in enumerate(others):
        together = "browser" in getattr(item, "fixturenames", ())
        place_of = looking.setdefault(item.path, float(number)) if together else float(number)
        ordered.append((place_of, item))
    ordered.sort(key=lambda pair: pair[0])
    items[:] = [item for _, item in ordered]


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("TOWLINE_URL", None)
    if place := memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(place))  # where tmp_path lies
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As a shell has it for what runs in its background. Tests and what they start are
        # interrupted on purpose.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.pluginmanager.register(servers)


def pytest_sessionstart() -> None:
    """What is collected stays: to look through it again and again while it grows frees nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Nor is it looked through while tests run, nor written to, which a fork would pay for."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Nothing is missing without a word."""
    if names := [*servers.skipped(), *brokers.skipped(), *rights.skipped(), *browser.skipped()]:
        terminalreporter.section("left out by TOWLINE_SKIP")
        terminalreporter.line(", ".join(names))
    if names := servers.left_out():
        terminalreporter.line(f"{', '.join(names)}: only `make proof` runs on it")
    if names := releases.left_out():
        terminalreporter.line(f"{', '.join(names)}: left out, for there is no Python 3.12 here")
