"""Threads that take attempts from one line: who comes while one is free does not wait."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, Gate
from towline.worker.attempt import Attempt
from towline.worker.slots import Done
from towline.worker.slots.thread import ThreadSlots


@pytest.fixture
def _hurried() -> Iterator[None]:
    """Threads change after every few instructions."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def attempt(run: Callable[[], Any]) -> Attempt:
    """Only what a slot knows of an attempt."""
    stand_in = SimpleNamespace(
        run=run, begin=lambda: True, withdrawn=False, abandoned=False, slot=None
    )
    return cast(Attempt, stand_in)


@pytest.mark.usefixtures("_hurried")
def test_two_that_come_together_run_together() -> None:
    """W2, O8: a slot that is about to be taken is not counted as free for the second."""
    ended = threading.Semaphore(0)
    for _ in range(1000):
        slots = ThreadSlots(2, lambda attempt, ending: ended.release())
        first = threading.Barrier(1)
        for meeting in (first, *[threading.Barrier(2)] * 2):
            slots.start(attempt(partial(meeting.wait, LIMIT)))
        for _ in range(3):
            assert ended.acquire(timeout=LIMIT)
        slots.close()


def test_one_that_was_abandoned_too_late_keeps_its_slot() -> None:
    """O6: it had ended; no second thread comes in its place, and all end at the close."""
    ended = threading.Semaphore(0)
    before = threading.active_count()
    slots = ThreadSlots(1, lambda attempt, ending: ended.release())
    for _ in range(10):
        one = attempt(lambda: None)
        slots.start(one)
        assert ended.acquire(timeout=LIMIT)
        slots.abandon(one)
        assert not one.abandoned
    assert threading.active_count() <= before + 1
    slots.close()


def test_one_more_slot_is_there_though_one_less_was_wanted_before() -> None:
    """W2: what comes before the thread that is not wanted any more has left does not wait for the
    other."""
    go, ran, ended = threading.Event(), threading.Event(), threading.Semaphore(0)

    def done(attempt: Attempt, ending: object) -> None:
        if attempt is first:
            slots.start(third)
        ended.release()

    first, second = attempt(partial(go.wait, LIMIT)), attempt(partial(ran.wait, LIMIT))
    third = attempt(ran.set)
    slots = ThreadSlots(2, done)
    slots.start(first)
    slots.start(second)
    slots.resize(1)
    slots.resize(2)
    go.set()
    assert ran.wait(LIMIT)
    for _ in range(3):
        assert ended.acquire(timeout=LIMIT)
    slots.close()


@pytest.mark.parametrize(("limit", "number"), [(2, 1), (8, 200)])
def test_what_was_claimed_ahead_does_not_wait_behind_a_slow_one_while_a_slot_is_free(
    limit: int, number: int
) -> None:
    """W2: one thread begins all of them while they are quick; others come when one is not."""
    gate, ended = Gate(), threading.Semaphore(0)
    slots = ThreadSlots(limit, lambda attempt, ending: ended.release())
    slots.start_ahead([attempt(gate.enter)])
    gate.wait_inside()
    slots.start_ahead([attempt(lambda: None) for _ in range(number)])
    for _ in range(number):
        assert ended.acquire(timeout=LIMIT)
    gate.open()
    assert ended.acquire(timeout=LIMIT)
    slots.close()


def test_as_many_as_there_are_slots_run_together_though_they_were_claimed_ahead() -> None:
    """W2: each waits for all others."""
    number, ended = 8, threading.Semaphore(0)
    slots = ThreadSlots(number, lambda attempt, ending: ended.release())
    for _ in range(20):
        meeting = threading.Barrier(number)
        slots.start_ahead([attempt(partial(meeting.wait, LIMIT)) for _ in range(number)])
        for _ in range(number):
            assert ended.acquire(timeout=LIMIT)
        slots.start_ahead([attempt(lambda: None) for _ in range(50)])
        for _ in range(50):
            assert ended.acquire(timeout=LIMIT)
    slots.close()


def test_what_was_claimed_for_a_free_slot_goes_first() -> None:
    let_go, order, ended = threading.Event(), list[str](), threading.Semaphore(0)
    slots = ThreadSlots(1, lambda attempt, ending: ended.release())
    slots.start(attempt(partial(let_go.wait, LIMIT)))
    slots.start_ahead([attempt(partial(order.append, name)) for name in ("ahead", "behind")])
    slots.start(attempt(partial(order.append, "first")))
    let_go.set()
    for _ in range(4):
        assert ended.acquire(timeout=LIMIT)
    slots.close()
    assert order == ["first", "ahead", "behind"]


def few_for_quick_ones(limit: int, done: Done) -> ThreadSlots:
    """Slots that have seen quick handlers only."""
    slots = ThreadSlots(limit, done)
    while slots._crew > 1:
        slots.start_ahead([attempt(lambda: None)])
        until(lambda: slots._asleep == slots._threads)
    return slots


def test_quick_ones_that_were_claimed_ahead_need_few_threads() -> None:
    """They would be in each other's way."""
    seen, ended = set[str](), threading.Semaphore(0)
    slots = few_for_quick_ones(64, lambda attempt, ending: ended.release())
    for _ in range(100):
        slots.start_ahead([attempt(lambda: seen.add(threading.current_thread().name))] * 2)
        until(lambda: slots._asleep == slots._threads)
    slots.close()
    assert len(seen) < 64


def test_what_is_held_back_begins_when_it_is_let_go_and_without_that_in_a_moment() -> None:
    """W2: a pump that is stuck keeps nothing; what was claimed for a free slot never waits."""
    ran = list[str]()
    slots = few_for_quick_ones(1, lambda attempt, ending: None)

    def begun(*names: str) -> bool:
        return ran == list(names)

    slots.hold_back()
    slots.start_ahead([attempt(partial(ran.append, "held back"))])
    slots.start(attempt(partial(ran.append, "for a free slot")))
    until(lambda: begun("for a free slot", "held back"))
    slots.hold_back()
    slots.let_go(LIMIT)
    slots.start_ahead([attempt(partial(ran.append, "let go"))])
    until(lambda: begun("for a free slot", "held back", "let go"))
    slots.close()


def test_handlers_that_wait_for_each_other_are_not_held_back() -> None:
    """W2: nor is what comes with them."""
    ended, meeting = threading.Semaphore(0), threading.Barrier(4)
    slots = few_for_quick_ones(4, lambda attempt, ending: ended.release())
    for _ in range(10):
        slots.hold_back()
        slots.start_ahead([attempt(partial(meeting.wait, LIMIT))] * 4)
        for _ in range(4):
            assert ended.acquire(timeout=LIMIT)
    slots.close()
