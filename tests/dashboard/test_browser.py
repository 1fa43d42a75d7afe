"""The dashboard in a real browser, with a real worker behind it, on both engines.

X10: no request leaves the host. X11: markup in stored text does nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests import database as databases
from tests.browser import SWITCHES, chromium
from tests.dashboard.serving import Served
from tests.speed import PROOF
from towline import Towline, dashboard

pytestmark = pytest.mark.timeout(900)  # the first may have to install the browser
# What a page looks like does not hang on the engine.
on_one = pytest.mark.parametrize("app", [databases.SQLITE], indirect=True)


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


class Watched:
    """A page, with what it asked for and what went wrong in it."""

    def __init__(self, browser: Browser, server: Served, **settings: Any) -> None:
        self.context = browser.new_context(base_url=server.url, **settings)
        self.page: Page = self.context.new_page()
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda told: self.problems.append(told.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))


@pytest.fixture
def watched(browser: Browser, server: Served) -> Iterator[Watched]:
    watched = Watched(browser, server)
    yield watched
    watched.context.close()


def roads(jobs: dict[str, int]) -> list[str]:
    pages = ["/", "/jobs", "/jobs?state=failed", "/queues", "/tasks", "/workers", "/doctor"]
    return [
        *pages,
        *(f"/jobs/{id}" for id in jobs.values()),
        f"/chains/{jobs['chain']}",
        f"/chains/{jobs['waiting']}/graph",
    ]


@on_one
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_X10_X11_every_page_is_whole_fits_a_phone_and_can_be_used_by_everybody(
    browser: Browser, server: Served, jobs: dict[str, int], scheme: str
) -> None:
    """Nothing goes wrong, no request leaves the host, axe-core finds nothing against WCAG 2 AA, and
    on a phone nothing is wider than the screen."""
    watched = Watched(browser, server, color_scheme=scheme)
    page, axe = watched.page, Axe()
    pages = roads(jobs)
    for road in pages if PROOF else pages[scheme == "dark" :: 2]:  # a page looks alike in both
        page.set_viewport_size({"width": 1280, "height": 800})
        page.goto(road)
        expect(page.locator("h1")).to_be_visible()
        assert "taken" not in page.title(), road
        assert watched.problems == [], road
        found = axe.run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"]})
        assert found.violations_count == 0, (road, found.generate_report())
        watched.problems.clear()  # axe tries styles that the page's policy forbids
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, road
    assert [url for url in watched.asked if not url.startswith(server.url)] == []
    watched.context.close()


@pytest.mark.each_engine
def test_clicks_change_what_is_stored(watched: Watched, app: Towline, jobs: dict[str, int]) -> None:
    page = watched.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"/jobs/{jobs['bad']}")
    page.get_by_role("button", name="retry").click()
    page.wait_for_url(f"**/jobs/{jobs['bad']}")
    assert str(app.job(jobs["bad"]).state) == "pending"
    page.get_by_role("button", name="cancel").click()
    expect(page.locator("h1 .state")).to_have_text("cancelled")
    assert app.job(jobs["bad"]).ended_by == "dashboard"
    page.goto(f"/jobs/{jobs['later']}")
    page.get_by_role("button", name="run now").click()
    expect(page.locator("h1 .state")).to_have_text("pending")
    page.goto("/queues")
    page.get_by_role("button", name="pause queue mail").click()
    expect(page.get_by_role("button", name="resume queue mail")).to_be_visible()
    assert app.paused() == ["mail"]
    page.goto("/jobs?state=cancelled")
    page.get_by_role("button", name="retry all that fit").click()
    expect(page.get_by_text("No job fits")).to_be_visible()
    assert str(app.job(jobs["bad"]).state) == "pending"
    page.goto(f"/jobs/{jobs['chain']}")
    page.get_by_role("button", name="delete").click()
    page.wait_for_url("**/jobs")
    assert not [job for job in app.jobs() if job.chain_id == jobs["chain"]]
    assert watched.problems == []


@pytest.mark.each_engine
def test_a_change_is_seen_without_loading_the_page_again(
    watched: Watched, app: Towline, jobs: dict[str, int]
) -> None:
    page = watched.page
    page.goto(f"/jobs/{jobs['pending']}")
    page.evaluate("window.same = true")
    expect(page.locator("body")).to_have_attribute("data-link", "there")
    app.cancel(jobs["pending"], by="ann")
    expect(page.locator("h1 .state")).to_have_text("cancelled", timeout=30_000)
    assert page.evaluate("window.same")
    page.keyboard.press("p")
    expect(page.locator("#live-word")).to_have_text("paused")
    app.retry(jobs["pending"])
    page.wait_for_timeout(2500)
    expect(page.locator("h1 .state")).to_have_text("cancelled")
    page.keyboard.press("p")
    expect(page.locator("h1 .state")).to_have_text("pending", timeout=30_000)


@on_one
def test_keys_lead_everywhere(watched: Watched, jobs: dict[str, int]) -> None:
    page = watched.page
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("j")
    page.wait_for_url("**/jobs")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*")
    page.keyboard.press("/")
    page.keyboard.type("bad")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs?q=bad")
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("h1").click()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()


@on_one
def test_the_stream_comes_back_after_a_restart(
    browser: Browser, app: Towline, jobs: dict[str, int]
) -> None:
    server = Served(dashboard.asgi(app))
    watched = Watched(browser, server)
    page = watched.page
    page.goto(f"/jobs/{jobs['pending']}")
    expect(page.locator("body")).to_have_attribute("data-link", "there")
    server.stop()
    expect(page.locator("#live-word")).to_have_text("reconnecting", timeout=30_000)
    app.cancel(jobs["pending"])
    again = Served(dashboard.asgi(app), port=server.port)
    try:
        expect(page.locator("h1 .state")).to_have_text("cancelled", timeout=30_000)
    finally:
        watched.context.close()
        again.stop()
