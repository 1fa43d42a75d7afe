"""The dashboard in a real browser, with a real worker behind it, on both engines.

X10: no request leaves the host. X11: markup in stored text does nothing.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from playwright.sync_api import Browser, Page, Route, expect

from tests import database as databases
from tests.dashboard.hostile import store_hostile
from tests.dashboard.serving import Served
from tests.dashboard.watching import Watched
from tests.kit import new
from tests.until import until
from towline import Towline, dashboard
from towline.dashboard import live

pytestmark = pytest.mark.timeout(900)  # the first may have to install the browser
DONE = ("retried", "cancelled", "retried")  # to the one that failed
# What a page looks like does not hang on the engine.
on_one = pytest.mark.parametrize("app", [databases.SQLITE], indirect=True)

FETCHED_ANEW = "new Promise(on => { document.addEventListener('htmx:after:swap', on); changed() })"


def roads(jobs: dict[str, int], strange: dict[str, int]) -> list[str]:
    pages = [
        "/",
        "/jobs",
        "/jobs?state=failed",
        "/queues",
        "/tasks",
        "/schedules",
        "/workers",
        "/doctor",
        "/audit",
    ]
    return [
        *pages,
        "/tasks?task=bad",
        "/schedules?name=nightly",
        *(f"/jobs/{jobs[name]}" for name in ("chain", "later", "pending")),
        *(f"/jobs/{id}" for id in strange.values()),
        *(f"/many?action={action}&all=1&task=second" for action in ("delete", "retry")),
        f"/chains/{jobs['chain']}",
        f"/chains/{strange['runs']}",
        f"/chains/{strange['waits']}/graph",
    ]


def violations(page: Page, **options: Any) -> str:
    """What axe-core finds. It is half a megabyte, which a page is given once."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    given = json.dumps({"resultTypes": ["violations"], **options})
    found = AxeResults(page.evaluate(f"axe.run({given})"))
    return found.generate_report() if found.violations_count else ""


@on_one
@pytest.mark.parametrize("half", [0, 1])
def test_X10_X11_every_page_is_whole_fits_a_phone_and_can_be_used_by_everybody(
    browser: Browser, server: Served, app: Towline, jobs: dict[str, int], half: int
) -> None:
    """Nothing goes wrong, stored text does nothing, no request leaves the host, axe-core finds
    nothing against WCAG 2 AA in light and dark, and on a phone nothing is wider than the screen."""
    watched = Watched(browser, server)
    page = watched.page
    page.on("dialog", lambda dialog: watched.problems.append(dialog.message))
    for road in roads(jobs, store_hostile(app))[half::2]:
        page.goto(road)
        expect(page.locator("h1")).to_be_visible()
        if road == "/":
            expect(page.locator("tow-chart canvas")).to_have_count(4)
        assert "taken" not in page.title(), road
        assert watched.problems == [], road
        assert violations(page, runOnly=["wcag2a", "wcag2aa", "wcag21aa"]) == "", road
        page.emulate_media(color_scheme="dark")  # where only colours are others
        assert violations(page, runOnly=["color-contrast"]) == "", road
        page.emulate_media(color_scheme="light")
        watched.problems.clear()  # axe tries styles that the page's policy forbids
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, road
        page.set_viewport_size({"width": 1280, "height": 800})
    assert [url for url in watched.asked if not url.startswith(server.url)] == []
    watched.context.close()


@on_one
def test_X11_X12_what_the_script_writes_is_text_too(watched: Watched, app: Towline) -> None:
    """The graph, a value that is revealed, a call that is copied."""
    strange = store_hostile(app)
    page = watched.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"/chains/{strange['waits']}/graph")
    expect(page.locator("tow-graph .node")).to_have_count(4)
    graph = page.locator("tow-graph").evaluate("graph => graph.shadowRoot.textContent")
    page.goto(f"/jobs/{strange['good']}")
    expect(page.locator("[data-index='1']")).to_have_text('"***"')
    page.keyboard.press("p")  # what is fetched anew is neither "copied" nor selected
    page.get_by_text("Copy as").click()
    page.locator("[data-copy=copy-json]").click()
    expect(page.locator("[data-copy=copy-json]")).not_to_have_text("copy")
    copied = page.evaluate("getSelection().toString()")
    page.keyboard.press("p")
    page.get_by_role("button", name="reveal").click()
    expect(page.locator("[data-index='1']")).to_contain_text("<script>alert(1)</script>")
    for text in (graph, copied, page.locator("main").text_content() or ""):
        assert "<img src=x" in text
        assert not {"\u202e", "\x1b"} & {*text}
    assert json.loads(copied)["arguments"]["api_token"] == "***"
    assert watched.problems == []


@on_one
def test_a_thousand_nodes_are_drawn_at_once(watched: Watched, app: Towline) -> None:
    """All alike, and all different: a few nodes each, which say how many they are."""
    store = app.runner.store
    for names in ([f"part{n}" for n in range(1000)], ["part"] * 1000):
        parts = app.runner.run(store.enqueue([new(name) for name in names]))
        (join,) = app.runner.run(store.enqueue([new("join", after=[p.record.id for p in parts])]))
        watched.page.goto(f"/chains/{join.record.id}/graph")
        expect(watched.page.locator("tow-graph .node")).to_have_count(2)
        expect(watched.page.locator("tow-graph .small").last).to_contain_text("× 1000")
    assert watched.problems == []


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
    page.get_by_label("all that fit the filter").check()
    page.get_by_role("button", name="retry…").click()
    page.get_by_role("button", name="retry 1 job").click()
    expect(page.get_by_text("No job fits")).to_be_visible()
    assert str(app.job(jobs["bad"]).state) == "pending"
    page.goto(f"/jobs/{jobs['bad']}")
    told = page.locator(".told li")
    expect(told).to_have_text([re.compile(f"^{did} by dashboard") for did in DONE])
    page.goto(f"/jobs/{jobs['chain']}")
    page.get_by_role("button", name="delete").click()
    page.wait_for_url("**/jobs")
    assert not [job for job in app.jobs() if job.chain_id == jobs["chain"]]
    assert watched.problems == []


@on_one
@pytest.mark.usefixtures("brisk")
def test_a_page_that_sent_a_form_does_not_fetch_itself(
    watched: Watched, jobs: dict[str, int]
) -> None:
    """It hears of the change that it asked for before the answer comes, and is gone by then."""
    page = watched.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto(f"/jobs/{jobs['chain']}")
    expect(page.locator("body[data-link]")).to_be_attached()

    def answer_late(route: Route) -> None:
        answer = route.fetch(max_redirects=0)
        page.wait_for_timeout(1000)  # milliseconds: it is heard in a fifth of that
        route.fulfill(response=answer)

    page.route("**/do/delete", answer_late)
    page.get_by_role("button", name="delete").click()
    page.wait_for_url("**/jobs")
    assert watched.problems == []


@pytest.mark.each_engine
def test_K4_two_jobs_are_selected_by_keys_shown_and_deleted(
    watched: Watched, app: Towline, jobs: dict[str, int]
) -> None:
    """What is selected stays so when the page is fetched anew; what cannot be deleted is said."""
    page = watched.page
    page.goto("/jobs?order=oldest")
    expect(page.locator("body")).to_have_attribute("data-link", "there")
    for key in "jxjx":  # the failed one, and the first of the chain
        page.keyboard.press(key)
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_label(f"select job {jobs['later']}").check()
    app.cancel(jobs["pending"], by="ann")
    expect(page.locator("tr", has_text="mail").locator(".state")).to_have_text(
        "cancelled", timeout=30_000
    )
    expect(page.get_by_text("3 selected")).to_be_visible()
    assert page.locator('input[name="pick"]:checked').count() == 3
    page.keyboard.press("d")
    expect(page.locator("h1")).to_have_text("Delete 2 jobs?")
    needs = f"job {jobs['waiting']} waits for it"
    expect(page.get_by_text(f"passed over: {needs}")).to_be_visible()
    assert app.job(jobs["bad"]).state == "failed", "nothing is done yet"
    page.get_by_role("button", name="delete 2 jobs").click()
    page.wait_for_url("**/jobs?order=oldest")
    left = {job.chain_id for job in app.jobs()}
    assert left == {jobs["later"], jobs["waiting"], jobs["pending"]}
    lines = [line for line in app.audit() if line.action == "delete"]
    assert {line.by for line in lines} == {"dashboard"}
    assert sum(line.number or 0 for line in lines) == 2
    assert watched.problems == []


@on_one
def test_without_script_many_are_chosen_and_done_by_plain_forms(
    browser: Browser, server: Served, app: Towline, jobs: dict[str, int]
) -> None:
    watched = Watched(browser, server, java_script_enabled=False)
    page = watched.page
    page.goto("/jobs")
    for name in ("later", "pending"):
        page.get_by_label(f"select job {jobs[name]}").check()
    page.get_by_role("button", name="run now…").click()
    expect(page.get_by_text("1 other will be passed over")).to_be_visible()
    page.get_by_role("button", name="run now 1 job").click()
    page.wait_for_url("**/jobs")
    assert str(app.job(jobs["later"]).state) == "pending"
    watched.context.close()


@pytest.mark.each_engine
@pytest.mark.usefixtures("brisk")
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
    page.wait_for_timeout(2500 * live.BEAT)
    expect(page.locator("h1 .state")).to_have_text("cancelled")
    page.keyboard.press("p")
    expect(page.locator("h1 .state")).to_have_text("pending", timeout=30_000)


@on_one
def test_a_change_does_not_take_a_button_away_that_is_being_pressed(
    watched: Watched, app: Towline, jobs: dict[str, int]
) -> None:
    """Between press and release the page stays as it is: the click would be lost."""
    page = watched.page
    page.goto(f"/jobs/{jobs['pending']}")
    expect(page.locator("body")).to_have_attribute("data-link", "there")
    page.locator("h1").hover()
    page.mouse.down()
    app.cancel(jobs["pending"], by="ann")
    until(lambda: bool(page.evaluate("missed")))  # it was fetched, and not shown
    expect(page.locator("h1 .state")).to_have_text("pending")
    page.mouse.up()
    expect(page.locator("h1 .state")).to_have_text("cancelled", timeout=30_000)


@on_one
def test_what_asks_first_works_on_a_page_that_was_fetched_anew(
    watched: Watched, app: Towline, jobs: dict[str, int]
) -> None:
    """There the tick that the form wants without script is a control that nobody can see."""
    page = watched.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("/schedules?name=nightly")
    expect(page.locator("noscript input")).to_have_count(0)
    page.evaluate(FETCHED_ANEW)
    expect(page.locator("noscript input[required]")).to_have_count(1)
    page.get_by_role("button", name="delete schedule nightly").click()
    expect(page.get_by_text("No schedule yet")).to_be_visible()
    assert list(app.schedules()) == []


@on_one
def test_what_was_opened_stays_open_on_a_page_that_was_fetched_anew(
    watched: Watched, app: Towline, jobs: dict[str, int]
) -> None:
    page = watched.page
    page.goto(f"/jobs/{jobs['pending']}")
    page.get_by_text("Copy as").click()
    page.evaluate("document.querySelector('h1').firstElementChild.textContent = 'stale'")
    page.evaluate(FETCHED_ANEW)
    expect(page.locator("h1 .state")).to_have_text("pending")
    expect(page.locator("[data-copy=copy-json]")).to_be_visible()


@on_one
def test_the_row_that_keys_marked_stays_marked(watched: Watched, jobs: dict[str, int]) -> None:
    page = watched.page
    page.goto("/jobs")
    page.keyboard.press("j")
    page.keyboard.press("j")
    marked = page.locator("tbody tr.here")
    address = marked.get_attribute("data-href")
    page.evaluate(FETCHED_ANEW)
    expect(marked).to_have_count(1)
    assert marked.get_attribute("data-href") == address
    page.keyboard.press("k")  # one up from there, not from the top
    expect(page.locator("tbody tr").first).to_have_class("here")


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


def test_schedules_are_run_paused_and_deleted_by_their_buttons(
    watched: Watched, app: Towline, jobs: dict[str, int]
) -> None:
    page = watched.page
    page.goto("/schedules")
    page.get_by_role("button", name="run now schedule nightly").click()
    dot = page.get_by_role("link", name=re.compile(r"^job \d+, pending$"))
    expect(dot).to_be_visible()
    page.get_by_role("button", name="pause schedule nightly").click()
    expect(page.locator(".state.paused")).to_be_visible()
    assert violations(page, runOnly=["wcag2a", "wcag2aa", "wcag21aa"]) == ""
    watched.problems.clear()  # axe tries styles that the page's policy forbids
    page.get_by_role("button", name="resume schedule nightly").click()
    expect(page.locator(".state.paused")).to_have_count(0)
    page.get_by_role("link", name="nightly", exact=True).click()
    expect(page.locator("ol.ticks li")).to_have_count(5)
    dot.click()
    page.get_by_role("link", name="nightly", exact=True).click()
    expect(page.locator("h1")).to_contain_text("nightly")
    page.on("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="delete schedule nightly").click()
    expect(page.get_by_text("No schedule yet")).to_be_visible()
    # The page may just have been fetching itself, when there was no such schedule any more.
    assert [told for told in watched.problems if "404" not in told] == []
