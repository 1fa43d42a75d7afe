"""Pages that are open while a worker works, a server goes away, a login ends; many of them at once.

In a real browser, on both engines where the engine has a part in it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, expect

from tests import database as databases
from tests.dashboard.serving import Served
from tests.dashboard.watching import Watched
from tests.speed import by_speed
from tests.until import until
from towline import INJECTED, Context, Next, Towline, dashboard

pytestmark = pytest.mark.timeout(900)  # the first may have to install the browser
LATE = 30_000  # milliseconds, on a busy machine
on_one = pytest.mark.parametrize("app", [databases.SQLITE], indirect=True)


class Busy:
    """A worker that runs, and jobs that go on when they are told to."""

    def __init__(self, app: Towline) -> None:
        self.go = threading.Event()
        self.broken = True

        @app.task
        def climb(ctx: Context = INJECTED) -> Next[str]:
            """Say how far it is, and wait there."""
            ctx.progress(0.25, "a quarter")
            while not self.go.wait(0.02):
                if ctx.cancelled:
                    raise RuntimeError("told to stop")
            ctx.progress(1.0, "all")
            return arrive.then()

        @app.task
        def arrive() -> str:
            return "there"

        @app.task(max_attempts=1)
        def pay() -> str:
            if self.broken:
                raise ConnectionError("the bank is away")
            return "paid"

        self.climb, self.pay = climb, pay


@pytest.fixture
def busy(app: Towline) -> Iterator[Busy]:
    app.migrate()
    busy = Busy(app)
    with app.worker(concurrency=4):
        yield busy
        busy.go.set()


def is_live(page: Page) -> None:
    expect(page.locator("body")).to_have_attribute("data-link", "there", timeout=LATE)


@pytest.mark.each_engine
@pytest.mark.usefixtures("brisk")
def test_every_page_while_a_worker_works(watched: Watched, app: Towline, busy: Busy) -> None:
    """What a worker does is seen on each page without loading it again."""
    page, job = watched.page, busy.climb.enqueue()
    page.goto(f"/jobs/{job.id}")
    page.evaluate("window.same = true")
    expect(page.locator("progress")).to_have_attribute("value", "0.25", timeout=LATE)
    expect(page.locator("h1 .state")).to_have_text("running")
    others = {
        "/": ".tiles li:nth-child(4) .figure",
        "/jobs?state=running": "tbody .state",
        "/queues": 'td[data-label="running"]',
        "/workers": 'td[data-label="busy slots"]',
        f"/chains/{job.id}": "rect.running",
        f"/chains/{job.id}/graph": "tow-graph .node.open",
        "/tasks": "tbody tr",
        "/doctor": "tbody tr",
        "/audit": ".empty",
    }
    for road, sign in others.items():
        more = watched.another()
        more.goto(road)
        expect(more.locator(sign).first).to_be_attached(timeout=LATE)
        more.close()
    busy.go.set()
    expect(page.locator("h1 .state")).to_have_text("completed", timeout=LATE)
    expect(page.get_by_text("continued by", exact=True)).to_be_visible()
    assert page.evaluate("window.same"), "it was not loaded again"
    assert job.result(timeout=30) == "there"
    assert watched.problems == []


@pytest.mark.each_engine
@pytest.mark.usefixtures("brisk")
def test_a_click_has_the_worker_do_it_again(watched: Watched, app: Towline, busy: Busy) -> None:
    page, job = watched.page, busy.pay.enqueue()
    page.goto(f"/jobs/{job.id}")
    expect(page.locator("h1 .state")).to_have_text("failed", timeout=LATE)
    expect(page.locator("summary", has_text="the bank is away")).to_be_visible()
    busy.broken = False
    page.keyboard.press("r")
    expect(page.locator("h1 .state")).to_have_text("completed", timeout=LATE)
    expect(page.locator(".attempts li")).to_have_count(2)
    found = app.job(job.id)
    assert (str(found.state), found.attempt) == ("completed", 2)
    assert [(line.action, line.by) for line in app.audit(job=job.id)] == [("retry", "dashboard")]
    running = busy.climb.enqueue()
    page.goto(f"/jobs/{running.id}")
    expect(page.locator("h1 .state")).to_have_text("running", timeout=LATE)
    asked: list[str] = []

    def yes(dialog: Dialog) -> None:
        asked.append(dialog.message)
        dialog.accept()

    page.on("dialog", yes)
    page.keyboard.press("c")
    expect(page.locator("h1 .state")).to_have_text("cancelled", timeout=LATE)
    assert asked == [f"Cancel job {running.id}? Its handler is told to stop."]
    assert app.job(running.id).ended_by == "dashboard"


@on_one
def test_more_pages_of_one_browser_than_it_has_connections_are_live(
    browser: Browser, server: Served, app: Towline, jobs: dict[str, int]
) -> None:
    """It has six connections to a site: all pages share one stream."""
    watched = Watched(browser, server)
    pages = [watched.page, *(watched.another() for _ in range(by_speed(7, 49)))]
    for number, page in enumerate(pages):
        page.goto(f"/jobs?limit={number % 5 + 10}")
    for page in pages:
        is_live(page)
    app.cancel(jobs["pending"])
    for page in (pages[0], pages[-1]):
        mail = page.locator("tr", has_text="mail").locator(".state")
        expect(mail).to_have_text("cancelled", timeout=LATE)
    watched.context.close()
    assert watched.problems == []


@on_one
def test_without_shared_workers_a_page_has_its_own_stream(
    browser: Browser, server: Served, app: Towline, jobs: dict[str, int]
) -> None:
    """As on some phones."""
    watched = Watched(browser, server)
    watched.context.add_init_script("delete window.SharedWorker")
    page = watched.page
    page.goto(f"/jobs/{jobs['pending']}")
    is_live(page)
    app.cancel(jobs["pending"])
    expect(page.locator("h1 .state")).to_have_text("cancelled", timeout=LATE)
    watched.context.close()
    assert watched.problems == []


class Proxy:
    """What a proxy says while there is nobody behind it; counts who asked for the stream."""

    def __init__(self) -> None:
        self.asked = 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 502, "headers": []})
        await send({"type": "http.response.body", "body": b"bad gateway"})
        self.asked += scope["path"] == "/live"


@on_one
def test_the_stream_comes_back_behind_a_proxy(
    browser: Browser, app: Towline, jobs: dict[str, int]
) -> None:
    """A browser gives up after an answer that is no stream; the page does not."""
    first = Served(dashboard.asgi(app))
    watched = Watched(browser, first)
    page = watched.page
    page.goto(f"/jobs/{jobs['pending']}")
    is_live(page)
    first.stop()
    behind = Proxy()
    proxy = Served(behind, port=first.port)
    expect(page.locator("#live-word")).to_have_text("reconnecting", timeout=LATE)
    app.cancel(jobs["pending"])
    until(lambda: behind.asked, "the proxy is asked")
    expect(page.locator("h1 .state")).to_have_text("pending")  # what was shown stays
    proxy.stop()
    again = Served(dashboard.asgi(app), port=first.port)
    try:
        expect(page.locator("#live-word")).to_have_text("live", timeout=LATE)
        expect(page.locator("h1 .state")).to_have_text("cancelled", timeout=LATE)
    finally:
        watched.context.close()
        again.stop()


@on_one
def test_X8_a_page_whose_login_has_ended_asks_for_it(
    browser: Browser, app: Towline, jobs: dict[str, int]
) -> None:
    """The server has another token now: what was shown goes, and the new one is asked for."""
    tokens = ["the first token of two", "the second token of two"]
    first = Served(dashboard.asgi(app, token=tokens[0]))
    watched = Watched(browser, first)
    page = watched.page
    page.goto("/jobs")
    page.get_by_label("Token").fill(tokens[0])
    page.get_by_role("button", name="Log in").click()
    page.goto(f"/jobs/{jobs['pending']}")
    is_live(page)
    first.stop()
    again = Served(dashboard.asgi(app, token=tokens[1]), port=first.port)
    try:
        expect(page.get_by_label("Token")).to_be_visible(timeout=LATE)
        expect(page.get_by_text("Arguments")).to_have_count(0)
        page.get_by_label("Token").fill(tokens[1])
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("h1")).to_have_text("Overview")
    finally:
        watched.context.close()
        again.stop()


@on_one
def test_X8_what_somebody_may_not_see_any_more_goes(
    browser: Browser, app: Towline, jobs: dict[str, int]
) -> None:
    staff = {"ann"}
    server = Served(dashboard.asgi(app, authorize=lambda _: "ann" in staff))
    watched = Watched(browser, server)
    page = watched.page
    page.goto(f"/jobs/{jobs['pending']}")
    is_live(page)
    staff.clear()
    app.cancel(jobs["pending"])
    expect(page.get_by_text("You may not see this any more")).to_be_visible(timeout=LATE)
    expect(page.get_by_text("Arguments")).to_have_count(0)
    watched.context.close()
    server.stop()


@on_one
def test_keys_act_on_the_row_that_is_marked(
    watched: Watched, app: Towline, jobs: dict[str, int]
) -> None:
    page = watched.page
    page.goto("/jobs?order=oldest")
    page.keyboard.press("j")
    page.keyboard.press("r")
    expect(page.locator("h1")).to_have_text("Retry 1 job?")
    page.get_by_role("button", name="retry 1 job").click()
    page.wait_for_url("**/jobs?order=oldest")
    assert str(app.job(jobs["bad"]).state) == "pending"
    for key in "jjkjjjc":  # down to the one that is scheduled
        page.keyboard.press(key)
    expect(page.locator("h1")).to_have_text("Cancel 1 job?")
    assert watched.problems == []


@on_one
def test_without_script_what_cannot_be_undone_asks_on_a_page(
    browser: Browser, server: Served, app: Towline, jobs: dict[str, int]
) -> None:
    watched = Watched(browser, server, java_script_enabled=False)
    page = watched.page
    page.goto(f"/jobs/{jobs['chain']}")
    page.get_by_role("button", name="delete").click()
    expect(page.locator("h1")).to_have_text("Delete 1 job?")
    assert app.job(jobs["chain"]).id, "it is still there"
    page.get_by_role("button", name="delete 1 job").click()
    page.wait_for_url("**/jobs")
    assert not [job for job in app.jobs() if job.chain_id == jobs["chain"]]
    watched.context.close()


@on_one
def test_charts_follow_the_colours_of_the_system(watched: Watched, jobs: dict[str, int]) -> None:
    page = watched.page
    page.goto("/")
    expect(page.locator("tow-chart canvas")).to_have_count(4)
    line = "document.querySelector('tow-chart').plot.series[1].stroke()"
    before = page.evaluate(line)
    page.emulate_media(color_scheme="dark")
    until(lambda: page.evaluate(line) != before, "the charts are drawn anew")
    expect(page.locator("tow-chart canvas")).to_have_count(4)
    assert watched.problems == []
