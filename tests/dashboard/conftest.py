"""Cases run against a dashboard behind a real server, on an engine; on each where it says so, or in
a proof."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect, sync_playwright

from tests import database as databases
from tests.browser import SWITCHES, chromium
from tests.dashboard.serving import Served, served
from tests.dashboard.watching import Watched
from tests.speed import PROOF, engines_of
from towline import Cron, Next, Towline, dashboard
from towline.dashboard import live

# A name may hold that, and no more; any other text also what turns and moves other text.
MARKUP = "<img src=x onerror=document.title='taken'><script>alert(1)</script>\"'&{{ 7 * 7 }}"
HOSTILE = f"{MARKUP}\u202e\x1b[31m"

expect.set_options(timeout=30_000)  # milliseconds: other tests have the cores, too


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    named = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    here = metafunc.module.__dict__.get("app")  # a file may have one of its own
    if "app" in metafunc.fixturenames and "app" not in named and here is None:
        names = engines_of(metafunc, [databases.SQLITE, databases.newest()])
        metafunc.parametrize("app", names, indirect=True)


@pytest.fixture
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Towline]:
    with databases.opened(request.param, tmp_path) as database:
        app = Towline(database.url)
        yield app
        app.close()


@pytest.fixture
def client(app: Towline) -> Iterator[httpx.Client]:
    """Who asks the dashboard from its own machine."""
    with served(dashboard.asgi(app)) as client:
        yield client


@pytest.fixture
def jobs(app: Towline) -> dict[str, int]:
    """One job of each kind, run by a real worker; X11: with what stored text may try."""

    @app.task(max_attempts=1)
    def bad(text: str) -> None:
        """Fails always."""
        raise ValueError(text)

    @app.task
    def first(n: int) -> Next[int]:
        return second.then(n)

    @app.task
    def second(n: int) -> int:
        return n + 1

    ids = {"bad": bad.enqueue(HOSTILE).id, "chain": first.enqueue(1).id}
    app.worker(concurrency=2, drain=True).run()
    ids["later"] = second.using(delay=3600).enqueue(5).id
    ids["waiting"] = second.using(after=[ids["later"]]).enqueue(6).id
    app.set_schedule("nightly", second.call(1), Cron("0 3 * * *", tz="Europe/Berlin"))
    ids["pending"] = second.using(queue="mail", label=MARKUP).enqueue(7).id
    return ids


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who watches hears and sees sooner; in a proof, when everybody does."""
    if not PROOF:
        monkeypatch.setattr(live, "BEAT", live.BEAT / 5)
        monkeypatch.setattr(live, "KEPT", live.KEPT / 5)
        monkeypatch.setattr(live, "LONGEST", live.LONGEST / 5)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=SWITCHES)
        yield browser
        browser.close()


@pytest.fixture
def server(app: Towline) -> Iterator[Served]:
    server = Served(dashboard.asgi(app))
    yield server
    server.stop()


@pytest.fixture
def watched(browser: Browser, server: Served) -> Iterator[Watched]:
    watched = Watched(browser, server)
    yield watched
    watched.context.close()
