"""What pages of the dashboard may cost a database: one look for all who ask the same, and a small
part of the time for all of them together."""

from __future__ import annotations

import pytest

from towline.dashboard import live
from towline.dashboard.live import Looks


class Time:
    """A clock that moves when somebody looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.looked = 0.0  # seconds
        monkeypatch.setattr("towline.dashboard.live.time.monotonic", lambda: self.now)

    def look(self, seconds: float) -> str:
        self.now += seconds
        self.looked += seconds
        return "seen"


def test_a_look_is_shared_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    time, looks = Time(monkeypatch), Looks()
    for _ in range(5):
        assert looks.get("/", lambda: time.look(0.001)) == "seen"
    assert time.looked == pytest.approx(0.001)
    time.now += live.KEPT
    looks.get("/", lambda: time.look(0.001))
    looks.forget()
    looks.get("/", lambda: time.look(0.001))
    assert time.looked == pytest.approx(0.003)


@pytest.mark.parametrize("pages", [1, 10])
def test_many_pages_together_look_for_a_small_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    """Each asks ten times a second, and each look takes 50 ms."""
    time, looks = Time(monkeypatch), Looks()
    while time.now < 1100:
        time.now += 0.1
        for page in range(pages):
            looks.get(page, lambda: time.look(0.05))
    assert time.looked <= 1.2 * 100 * live.SHARE


def test_a_page_is_never_older_than_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    time, looks = Time(monkeypatch), Looks()
    looks.get("/", lambda: time.look(5))
    time.now += live.LONGEST
    looks.get("/", lambda: time.look(5))
    assert time.looked == 10
