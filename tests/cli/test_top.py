"""top: the screen on a real database, driven by textual's own pilot."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import DataTable, Sparkline, Static

from tests.cli.shop import APP, LIMIT, Shop
from tests.cli.terminal import Terminal
from tests.kit import new
from towline.cli.top.look import look_at
from towline.cli.top.screen import Ask, Top

Script = Callable[[Pilot[None], Top], Awaitable[None]]


def play(shop: Shop, script: Script) -> None:
    """Run the screen, which looks only when it is told to, and do this with it."""

    async def run() -> None:
        top = Top(shop.app, every=3600.0)
        async with top.run_test(size=(140, 50)) as pilot:
            await settled(pilot, top)
            await script(pilot, top)

    asyncio.run(asyncio.wait_for(run(), LIMIT))


async def settled(pilot: Pilot[None], top: Top) -> None:
    """Until what was asked for is done and shown."""
    await pilot.pause()
    await top.workers.wait_for_complete()
    await pilot.pause()


def rows(top: Top, name: str) -> list[list[str]]:
    table: DataTable[Any] = top.screen_stack[0].query_one(f"#{name}", DataTable)
    return [[cell.plain for cell in table.get_row_at(row)] for row in range(table.row_count)]


def said(top: Top) -> list[str]:
    return [str(notification.message) for notification in top._notifications]


@pytest.fixture
def busy(any_shop: Shop) -> Shop:
    """Ended jobs of two tasks, of which one fails; some that wait; one that runs."""
    any_shop.put("add", a=1, b=1)
    any_shop.store(new("bad", arguments='{"secret": "x"}', max_attempts=1))
    any_shop.store(new("fetch", arguments='{"n": 1}', queue="mail"))
    any_shop.run("worker", APP, "--drain")
    any_shop.put("hold", name="one")
    any_shop.start("worker", APP, "--name", "w1", "--concurrency", "3")
    any_shop.began("one")
    any_shop.app.pause("other")
    return any_shop


@pytest.mark.each_engine
def test_it_shows_the_whole(busy: Shop) -> None:
    async def script(pilot: Pilot[None], top: Top) -> None:
        queues = {row[0]: row[1:] for row in rows(top, "queues")}
        assert queues["default"] == ["", "", "1", "", "", "1"]
        assert (list(queues), queues["other"][0]) == (["default", "mail", "other"], "paused")
        (running,) = rows(top, "running")
        assert running[1:4] == ["hold", "default", "w1"]
        (worker,) = rows(top, "workers")
        assert (worker[0], worker[2], worker[4]) == ("w1", "1/3", "default, mail")
        (failure,) = rows(top, "failures")
        assert (failure[0], failure[1], failure[2]) == ("1", "bad", "ValueError")
        text = str(top.query_one("#summary", Static).render())
        assert "1 worker, 1 of 3 slots busy" in text
        assert "last hour 4 ended, 1 failed" in text
        assert sum(top.query_one("#ended", Sparkline).data or []) == 4
        assert sum(top.query_one("#failed", Sparkline).data or []) == 1

    play(busy, script)


def test_rates_come_from_the_roll_ups(busy: Shop) -> None:
    """Also of what has been deleted since."""
    before = look_at(busy.app)
    assert (sum(before.ended), sum(before.failed), len(before.ended)) == (4, 1, 60)
    busy.app.delete_many(everything=True)
    assert sum(look_at(busy.app).ended) == 4


@pytest.mark.each_engine
def test_a_queue_is_paused_and_goes_on(busy: Shop) -> None:
    async def script(pilot: Pilot[None], top: Top) -> None:
        await pilot.press("down", "p")  # the first table has the focus
        await settled(pilot, top)
        assert busy.app.paused() == ["mail", "other"]
        assert said(top) == ["queue mail is paused"]
        assert rows(top, "queues")[1][1] == "paused"
        await pilot.press("p")  # where the cursor has stayed
        await settled(pilot, top)
        assert busy.app.paused() == ["other"]

    play(busy, script)


@pytest.mark.each_engine
def test_a_job_is_cancelled_after_a_question(busy: Shop) -> None:
    (job,) = busy.app.jobs(state="running")

    async def script(pilot: Pilot[None], top: Top) -> None:
        for answer, state in (("n", "running"), ("escape", "running"), ("y", "cancelled")):
            await pilot.press("c")
            await pilot.pause()
            assert isinstance(top.screen, Ask)
            assert top.screen.question == f"Cancel job {job.id}?"
            await pilot.press(answer)
            await settled(pilot, top)
            assert busy.state(job.id) == state
        assert rows(top, "running") == []
        await pilot.press("c")  # nothing is left to cancel
        assert not isinstance(top.screen, Ask)

    play(busy, script)


@pytest.mark.each_engine
def test_what_failed_is_retried_after_a_question(busy: Shop) -> None:
    (job,) = busy.app.jobs(state="failed")
    busy.app.pause("default")

    async def script(pilot: Pilot[None], top: Top) -> None:
        await pilot.press("r")
        await pilot.pause()
        assert isinstance(top.screen, Ask)
        assert top.screen.question == "Retry every failed job of task bad?"
        await pilot.press("y")
        await settled(pilot, top)
        assert busy.state(job.id) == "pending"
        assert rows(top, "failures") == []

    play(busy, script)


def test_what_goes_wrong_is_said(shop: Shop) -> None:
    """And the screen stays."""
    job = shop.put("add", a=1, b=1)

    async def script(pilot: Pilot[None], top: Top) -> None:
        shop.app.cancel(job)
        top.act(lambda: shop.app.cancel(job), "never said")
        await settled(pilot, top)
        assert said(top) == [f"job {job} is cancelled and cannot be cancelled any more"]

    play(shop, script)


def test_text_of_others_is_text(shop: Shop) -> None:
    """X11: neither markup nor what a terminal obeys."""
    job = shop.store(new("[red]boom\x1b[2J[/red]", queue="[b]q[/b]"))
    shop.app.fail(job, "no")

    async def script(pilot: Pilot[None], top: Top) -> None:
        assert rows(top, "queues")[0][0] == "[b]q[/b]"
        assert rows(top, "failures")[0][1] == r"[red]boom\x1b[2J[/red]"
        await pilot.press("r")
        await pilot.pause()
        assert r"[red]boom\x1b[2J[/red]" in str(top.screen.query_one(Static).render())
        await pilot.press("n")

    play(shop, script)


def test_at_a_terminal(shop: Shop) -> None:
    """The real command; q ends it, and Ctrl-C."""
    shop.put("add", a=1, b=1)
    for key in ("q", "\x03"):
        with Terminal(shop, "top", APP, "--every", "0.2") as terminal:
            terminal.sees("running jobs (c)")
            terminal.sees("default")
            terminal.types(key)
            assert terminal.ends() == 0
    assert "a terminal" in shop.refused("top", APP, code=2)
    assert "at least" in shop.refused("top", APP, "--every", "0.01", code=2)


def test_without_the_extra_it_says_how_to_get_it(shop: Shop) -> None:
    hidden = "import sys; sys.modules['textual'] = None; from towline.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", hidden, "top", APP],
        cwd=shop.folder, env=shop.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "towline: top needs textual: pip install -e '.[top]'\n"
