"""The event seam: subscribers run on a thread of their own, behind a bounded line."""

from __future__ import annotations

import logging
import os
import threading
from typing import Any

import pytest

from towline import events as seam
from towline.errors import InvalidSetting
from towline.events import COMPLETED, EACH, EACH_BEGIN, Events
from towline.events.kinds import EVENTS, Event, JobParked, JobSwept, TelemetryDropped

LIMIT = 30.0


def test_a_subscriber_gets_what_it_asked_for_in_order_on_another_thread() -> None:
    events, got = Events(), []
    events.subscribe(lambda event: got.append((event.count, threading.get_ident())), ["job.swept"])
    for count in range(100):
        events.publish(JobSwept(count=count))
        events.publish(JobParked(task="t", count=count))
    assert events.flush(LIMIT)
    assert [count for count, _ in got] == list(range(100))
    assert {thread for _, thread in got}.isdisjoint({threading.get_ident()})
    events.close()


def test_without_a_name_it_gets_every_event() -> None:
    events, got = Events(), list[Event]()
    events.subscribe(got.append)
    events.publish(JobSwept(count=1))
    events.publish(JobParked(task="t", count=1))
    assert events.flush(LIMIT)
    assert [event.name for event in got] == ["job.swept", "job.parked"]
    assert events.wanted == {*EVENTS, COMPLETED, EACH, EACH_BEGIN}


def test_nobody_subscribed_nothing_is_kept_and_no_thread_runs() -> None:
    events = Events()
    events.publish(JobSwept(count=1))
    assert events._thread is None
    assert events._line.empty()
    assert events.wanted == frozenset()
    assert not events.wants_operations


def test_an_unknown_name_is_refused_and_says_which_there_are() -> None:
    with pytest.raises(InvalidSetting, match=r"no event 'job\.sweeped'; there are job\.enqueued"):
        Events().subscribe(print, ["job.sweeped"])


def test_who_wants_trouble_only_does_not_make_completed_attempts_events() -> None:
    events = Events()
    events.subscribe(print, ["attempt.ended"], trouble_only=True)
    assert "attempt.ended" in events.wanted
    assert COMPLETED not in events.wanted
    events.subscribe(print, ["attempt.ended"])
    assert COMPLETED in events.wanted


def test_a_subscriber_that_raises_stays_and_is_logged_once_with_a_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events, got = Events(), []

    def failing(event: Any) -> None:
        got.append(event)
        raise ValueError("no")

    events.subscribe(failing, ["job.swept"])
    later: list[Event] = []
    events.subscribe(later.append, ["job.swept"])
    with caplog.at_level(logging.ERROR, "towline.events"):
        for count in range(5):
            events.publish(JobSwept(count=count))
        assert events.flush(LIMIT)
    assert len(got) == len(later) == 5
    assert [record.getMessage() for record in caplog.records] == [
        "a subscriber of job.swept failed (1 times since the last such line)"
    ]


def test_what_does_not_fit_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "MOST_WAITING", 10)
    events, got = Events(), []
    entered, gate = threading.Event(), threading.Event()

    def slow(event: Event) -> None:
        entered.set()
        gate.wait(LIMIT)
        got.append(event)

    events.subscribe(slow, ["job.swept", "telemetry.dropped"])
    events.publish(JobSwept(count=0))
    assert entered.wait(LIMIT)
    for count in range(1, 31):
        events.publish(JobSwept(count=count))
    gate.set()
    assert events.flush(LIMIT)
    assert events.flush(LIMIT)
    assert [event.count for event in got if isinstance(event, JobSwept)] == list(range(11))
    assert sum(event.count for event in got if isinstance(event, TelemetryDropped)) == 20


def test_a_thread_without_events_ends_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "IDLE", 0.01)
    events, got = Events(), list[Event]()
    events.subscribe(got.append, ["job.swept"])
    for count in range(3):
        events.publish(JobSwept(count=count))
        assert events.flush(LIMIT)
        thread = events._thread
        if thread is not None:
            thread.join(LIMIT)
        assert events._thread is None
    assert len(got) == 3


def test_close_tells_what_waits_and_ends_the_thread() -> None:
    events, got = Events(), list[Event]()
    events.subscribe(got.append, ["job.swept"])
    for count in range(1000):
        events.publish(JobSwept(count=count))
    thread = events._thread
    events.close()
    assert len(got) == 1000
    assert thread is not None
    thread.join(LIMIT)
    assert not thread.is_alive()


def test_a_forked_child_has_an_empty_line_and_a_thread_of_its_own() -> None:
    events, got = Events(), list[JobSwept]()
    events.subscribe(got.append, ["job.swept"])
    gate = threading.Event()
    events.subscribe(lambda event: gate.wait(LIMIT), ["job.swept"])
    for count in range(3):
        events.publish(JobSwept(count=count))
    child = os.fork()
    if child == 0:
        gate.set()
        before = len(got)
        events.publish(JobSwept(count=99))
        told = events.flush(LIMIT)
        os._exit(0 if told and [e.count for e in got[before:]] == [99] else 1)
    gate.set()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert events.flush(LIMIT)
    assert len(got) == 3
