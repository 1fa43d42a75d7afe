"""Rows of attempts, as metrics count them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from tests.until import LIMIT
from towline import Towline, events
from towline.events import COMPLETED, EACH, Events, tally
from towline.events.kinds import AttemptEnded, Event, TelemetryDropped

Rows = Sequence[Any]


def test_rows_come_once_and_in_order_whoever_adds_them() -> None:
    seam, got = Events(), list[Any]()
    seam.count(None, got.extend)
    over = seam.over
    assert over is not None

    def add(first: int) -> None:
        for number in range(500):
            over.add([(first, number)], 1)

    threads = [threading.Thread(target=add, args=(first,)) for first in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert seam.flush(LIMIT)
    for first in range(4):
        assert [number for each, number in got if each == first] == list(range(500))
    seam.close()


def test_too_many_are_dropped_and_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_ROWS", 10)
    seam, free = Events(), threading.Event()
    told, dropped = list[Any](), list[TelemetryDropped]()
    seam.subscribe(dropped.append, [TelemetryDropped.name])

    def count(rows: Rows) -> None:
        free.wait(LIMIT)
        told.extend(rows)

    seam.count(None, count)
    assert seam.over is not None
    for number in range(100):
        seam.over.add([number], 1)
    free.set()
    assert seam.flush(LIMIT)
    assert len(told) + sum(event.count for event in dropped) == 100
    assert 0 < len(told) <= 21
    seam.close()


def test_T3_rows_are_counted_though_the_line_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when no others come, and none is said to be dropped."""
    monkeypatch.setattr(events, "MOST_WAITING", 0)
    seam, got, dropped = Events(), list[Any](), list[TelemetryDropped]()
    seam.subscribe(dropped.append, [TelemetryDropped.name])
    seam.count(None, got.extend)
    assert seam.over is not None
    seam.over.add([1, 2], 2)
    assert seam.flush(LIMIT)
    assert got == [1, 2]
    seam.over.add([3], 1)
    assert seam.flush(LIMIT)
    assert got == [1, 2, 3]
    assert dropped == []
    seam.close()


def test_T7_one_that_raises_keeps_nothing_from_others(caplog: pytest.LogCaptureFixture) -> None:
    def fails(rows: Rows) -> None:
        raise ValueError

    seam, got = Events(), list[Any]()
    seam.count(None, fails)
    seam.count(None, got.extend)
    assert seam.over is not None
    with caplog.at_level(logging.ERROR, "towline.events"):
        for _ in range(20):
            seam.over.add([1], 1)
            assert seam.flush(LIMIT)
    assert got == [1] * 20
    assert len(caplog.records) == 1  # once a minute
    seam.count_no_more(fails, got.extend)
    assert COMPLETED not in seam.wanted
    seam.close()


def test_who_only_counts_has_no_event_built(app: Towline) -> None:
    rows, ended = list[Any](), list[Event]()
    seam = app.runner.events
    seam.count(None, rows.extend)
    assert COMPLETED in seam.wanted
    assert EACH not in seam.wanted

    @app.task
    def nothing() -> None: ...

    @app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError

    app.on(AttemptEnded.name)(ended.append)
    assert EACH in seam.wanted
    app.off(ended.append)
    with app.worker():
        assert nothing.enqueue().result(LIMIT) is None
        fails.enqueue()
    assert seam.flush(LIMIT)
    task, queue, outcome, accepted, error_type, waited, lasted, span = rows[0]
    assert (task, queue, str(outcome), accepted) == ("nothing", "default", "completed", True)
    assert (error_type, span) == (None, None)
    assert waited >= 0
    assert lasted > 0
