"""jobs --follow, job --follow."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.shop import APP, LIMIT, Shop
from tests.cli.terminal import Terminal
from tests.kit import new
from tests.until import until


class Followed:
    """A command that goes on; what it printed is in a file."""

    def __init__(self, shop: Shop, *words: str) -> None:
        self._path = shop.folder / "followed"
        with self._path.open("w") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-m", "towline", *words],
                cwd=shop.folder, env=shop.environment(), stdout=out, start_new_session=True,
            )  # fmt: skip

    @property
    def lines(self) -> list[str]:
        return self._path.read_text().splitlines()

    def shows(self, *words: str) -> None:
        """A line with all of these words."""
        until(lambda: any(all(w in line for w in words) for line in self.lines), " ".join(words))

    def interrupted(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(LIMIT)


@contextmanager
def following(shop: Shop, *words: str) -> Iterator[Followed]:
    followed = Followed(shop, *words)
    try:
        yield followed
    finally:
        if followed.process.poll() is None:
            followed.process.kill()
        followed.process.wait()


@pytest.mark.each_engine
def test_jobs_are_followed(any_shop: Shop) -> None:
    """Those that are there, then each that comes or changes, until Ctrl-C."""
    for n in range(3):
        any_shop.put("add", a=n, b=n)
    with following(any_shop, "jobs", APP, "--follow", "--limit", "2") as followed:
        followed.shows(" 3  ", "pending")
        assert len(followed.lines) == 2
        new_one = any_shop.put("say", text="x")
        followed.shows(f" {new_one}  pending", "say", "default")
        any_shop.app.cancel(1)
        followed.shows(" 1  cancelled", "add")
        any_shop.app.complete(new_one, "said")
        followed.shows(f" {new_one}  completed", "say")
        assert followed.interrupted() == 130


def test_how_far_each_is_makes_no_line_of_many(shop: Shop) -> None:
    """Or it would be most of them; the lines there are say it."""
    job = shop.put("climb", name="one")
    shop.start("worker", APP)
    shop.began("one")
    with following(shop, "jobs", APP, "--follow") as followed:
        followed.shows(f" {job}  running", "25% a quarter")
        shop.go("one")
        followed.shows(f" {job}  completed")
        assert len(followed.lines) == 2


def test_what_fits_is_followed(any_shop: Shop) -> None:
    """With --json a document a line; more at once than a page has."""
    any_shop.put("add", a=1, b=1)
    with following(any_shop, "jobs", APP, "--follow", "--json", "--task", "add") as followed:
        followed.shows('"id": 1,')
        any_shop.put("say", text="x")
        any_shop.app.runner.run(any_shop.app.runner.store.enqueue([new("add")] * 500))
        until(lambda: len(followed.lines) >= 501, "all of them")
        found = [json.loads(line) for line in followed.lines]
        assert {job["task"] for job in found} == {"add"}
        assert [job["id"] for job in found] == [1, *range(3, 503)]
    assert "no --cursor" in any_shop.refused("jobs", APP, "--follow", "--oldest", code=2)


@pytest.mark.each_engine
def test_a_job_is_followed_to_the_end_of_its_chain(any_shop: Shop) -> None:
    """0 when that completed, 1 when it failed or was cancelled."""
    chain = any_shop.store(new("fetch", arguments='{"n": 1}', queue="mail"))
    bad = any_shop.store(new("bad", arguments='{"secret": "x"}', max_attempts=1))
    later = any_shop.store_later()
    any_shop.app.cancel(later)
    with following(any_shop, "job", APP, str(chain), "--follow") as followed:
        followed.shows(f" {chain}  pending")
        any_shop.run("worker", APP, "--drain")
        assert followed.process.wait(LIMIT) == 0
        followed.shows("completed  add  mail")
    assert "ValueError: this cannot work" in any_shop.text("job", APP, str(bad), "--follow", code=1)
    assert "cancelled" in any_shop.text("job", APP, str(later), "--follow", code=1)
    assert "no job 999" in any_shop.refused("job", APP, "999", "--follow", code=1)


def test_progress_has_a_bar_at_a_terminal(shop: Shop, tmp_path: Path) -> None:
    """On stderr; stdout has the lines, elsewhere the progress is in them."""
    job = shop.put("climb", name="one")
    shop.start("worker", APP)
    shop.began("one")
    with following(shop, "job", APP, str(job), "--follow") as followed:
        followed.shows("running", "25% a quarter")
        with (tmp_path / "out").open("w") as out:
            with Terminal(shop, "job", APP, str(job), "--follow", stdout=out.fileno()) as terminal:
                terminal.sees("a quarter")
                terminal.sees("25%")
                with Terminal(shop, "job", APP, str(job), "--follow") as both:
                    both.sees(" · 25% a quarter\r\n")  # a line, above the bar
                    both.sees("25%")
                    shop.go("one")
                    assert both.ends() == 0
                assert terminal.ends() == 0
                assert "progress.percentage" not in terminal.shown
        assert followed.process.wait(LIMIT) == 0
    states = [line.split()[2] for line in (tmp_path / "out").read_text().splitlines()]
    assert states == ["running", "completed"]
