"""The pages of lanes and of a group in a real browser: whole, usable by everybody, and at work."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.dashboard.conftest import HOSTILE, MARKUP
from tests.dashboard.test_browser import on_one, violations
from tests.dashboard.watching import Watched
from tests.until import until
from towline import Towline
from towline.app.group import Group

pytestmark = pytest.mark.timeout(900)


@pytest.fixture
def group(app: Towline) -> Group[None]:
    """Two lanes, in one of which a job runs, under limits; a group of which one has failed."""

    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    @app.task
    def part(n: int) -> None: ...

    for tenant in (MARKUP, MARKUP, "acme", "acme"):
        send.enqueue(tenant)
    app.set_limit("mail", concurrency=4, rate=100, per=60, by=HOSTILE)
    app.set_limit("mail", lane="*", concurrency=1)
    app.runner.run(app.runner.store.claim(1, ["mail"], 1))
    group = app.enqueue_group([part.call(n) for n in range(5)])
    app.fail(next(iter(app.blockers(group.id))).chain_id, HOSTILE)
    return group


@on_one
def test_X10_X11_the_pages_of_lanes_and_groups_are_whole_and_fit_a_phone(
    watched: Watched, group: Group[None]
) -> None:
    page = watched.page
    page.on("dialog", lambda dialog: watched.problems.append(dialog.message))
    for road in ("/queues", "/lanes?queue=mail", "/lanes?queue=none", f"/groups/{group.id}"):
        page.goto(road)
        expect(page.locator("h1")).to_be_visible()
        assert "taken" not in page.title(), road
        assert watched.problems == [], road
        assert violations(page, runOnly=["wcag2a", "wcag2aa", "wcag21aa"]) == "", road
        page.emulate_media(color_scheme="dark")
        assert violations(page, runOnly=["color-contrast"]) == "", road
        page.emulate_media(color_scheme="light")
        watched.problems.clear()  # axe tries styles that the page's policy forbids
        page.set_viewport_size({"width": 360, "height": 740})
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, road
        page.set_viewport_size({"width": 1280, "height": 800})


@pytest.mark.each_engine
def test_G11_F2_a_limit_is_set_and_a_group_cancelled_by_clicks(
    watched: Watched, app: Towline, group: Group[None]
) -> None:
    page = watched.page
    page.on("dialog", lambda dialog: dialog.accept())
    page.goto("/lanes?queue=mail")
    page.get_by_label("lane", exact=True).fill("acme")
    page.get_by_label("at a time").fill("3")
    page.get_by_role("button", name="set this limit").click()
    expect(page.locator("main")).to_contain_text("lane acme")
    assert [(each.lane, each.concurrency) for each in app.limits("mail")][-1] == ("acme", 3)
    page.get_by_role("link", name="acme", exact=True).click()
    expect(page.locator("tbody tr")).to_have_count(2)  # the jobs of that lane
    page.goto(f"/groups/{group.id}")
    expect(page.locator("main")).to_contain_text("1 of 5 ended, 1 failed")
    page.get_by_role("button", name="cancel group").click()
    expect(page.locator("main")).to_contain_text("5 of 5 ended")
    until(lambda: group.refresh().state == "cancelled", "it is cancelled")
    assert watched.problems == []
