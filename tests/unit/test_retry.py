"""The arithmetic of trying again: back-off, rules per exception, what a handler asks for."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from towline import Backoff, Cancel, Fail, Retry, Snooze
from towline.errors import InvalidSetting
from towline.store.finish import LOST_CAP, lost_delay
from towline.task.retry import Signal, next_try
from towline.times import MICRO, micros

PLAIN = Backoff(first=2, factor=3, cap=100, jitter=0)


def drawing(value: float) -> Callable[[], float]:
    return lambda: value


@pytest.mark.parametrize(
    ("duration", "expected"),
    [
        (0, 0),
        (1, MICRO),
        (0.25, 250_000),
        (1e-6, 1),
        (-3, -3 * MICRO),
        (timedelta(days=2, microseconds=7), 2 * 86400 * MICRO + 7),
        (timedelta(seconds=-1), -MICRO),
    ],
)
def test_seconds_and_timedeltas_become_whole_microseconds(
    duration: float | timedelta, expected: int
) -> None:
    assert micros(duration) == expected


@pytest.mark.parametrize(
    "wrong", [math.nan, math.inf, -math.inf, "5", True, None, 1e300, timedelta.max]
)
def test_what_is_no_duration_is_refused_with_its_name(wrong: float) -> None:
    with pytest.raises(InvalidSetting, match=r"delay\(x\)"):
        micros(wrong, "delay(x)")


def test_O2_the_delay_grows_by_its_factor_up_to_the_cap() -> None:
    assert [PLAIN.delay(failures) for failures in range(1, 7)] == [2, 6, 18, 54, 100, 100]
    assert PLAIN.delay(0) == 2
    assert [PLAIN.delay(10**n) for n in range(2, 12)] == [100.0] * 10
    assert Backoff(first=1, factor=1e308, cap=5, jitter=0).delay(3) == 5


def test_O2_by_default_from_one_second_doubling_to_an_hour_a_quarter_drawn() -> None:
    backoff = Backoff()
    assert [backoff.delay(n, drawing(0)) for n in (1, 2, 3, 12, 13)] == [1, 2, 4, 2048, 3600]
    assert [backoff.delay(n, drawing(1)) for n in (1, 2, 3, 13)] == [0.75, 1.5, 3, 2700]
    assert Backoff(first=8, jitter=1).delay(1, drawing(1)) == 0


@given(
    first=st.floats(0, 1e6),
    factor=st.floats(1, 1e6),
    cap=st.floats(0, 1e9),
    jitter=st.floats(0, 1),
    failures=st.integers(-1, 10**9),
    draw=st.floats(0, 1, exclude_max=True),
)
def test_O2_a_delay_is_never_negative_nor_over_the_cap(
    first: float, factor: float, cap: float, jitter: float, failures: int, draw: float
) -> None:
    delay = Backoff(first, factor, cap, jitter).delay(failures, drawing(draw))
    assert 0 <= delay <= cap
    assert delay <= Backoff(first, factor, cap, 0).delay(failures)
    assert delay >= (1 - jitter) * Backoff(first, factor, cap, 0).delay(failures) * 0.999


def test_O2_jobs_that_failed_together_do_not_come_back_together() -> None:
    random.seed(1)
    assert len({Backoff().delay(5) for _ in range(100)}) == 100


@pytest.mark.parametrize(
    "wrong",
    [
        {"first": -1},
        {"cap": -1},
        {"factor": 0.5},
        {"jitter": -0.1},
        {"jitter": 1.1},
        {"first": math.nan},
        {"factor": math.nan},
        {"cap": math.nan},
        {"cap": math.inf},
        {"cap": 1e300},
        {"jitter": math.nan},
    ],
)
def test_W5_a_back_off_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=r"Backoff"):
        Backoff(**wrong)


def test_O2_what_the_handler_says_comes_before_every_rule() -> None:
    strict = Backoff(first=2, jitter=0, never=(Exception,), per={Exception: None})
    assert next_try(strict, Retry("busy", delay=7), 3) == 7 * MICRO
    assert next_try(strict, Retry(delay=timedelta(minutes=1)), 3) == 60 * MICRO
    assert next_try(strict, Retry(delay=0), 1) == 0


def test_O2_a_retry_without_a_delay_follows_the_back_off() -> None:
    assert [next_try(PLAIN, Retry(), n) for n in (1, 2, 9)] == [
        2 * MICRO, 6 * MICRO, 100 * MICRO,
    ]  # fmt: skip


def test_O2_exceptions_have_rules_of_their_own_subclasses_included() -> None:
    backoff = Backoff(
        first=1,
        jitter=0,
        never=(LookupError,),
        per={
            ConnectionError: Backoff(first=10, factor=2, jitter=0),
            ValueError: None,
            OSError: Backoff(first=30, jitter=0),
        },
    )
    cases: list[tuple[BaseException, int, int | None]] = [
        (KeyError("k"), 1, None),
        (LookupError(), 4, None),
        (ConnectionResetError(), 1, 10),
        (ConnectionResetError(), 3, 40),
        (UnicodeDecodeError("utf-8", b"", 0, 1, "no"), 1, None),
        (FileNotFoundError(), 2, 60),  # the first rule that fits
        (RuntimeError(), 3, 4),
        (KeyboardInterrupt(), 1, 1),
        (SystemExit(1), 2, 2),
    ]
    for error, failures, seconds in cases:
        expected = None if seconds is None else seconds * MICRO
        assert next_try(backoff, error, failures) == expected, error


def test_O3_signals_carry_their_reason_and_are_exceptions_of_one_family() -> None:
    signals = [Retry(), Retry("busy"), Snooze(1), Cancel(), Cancel("no"), Fail(), Fail("bad")]
    assert all(isinstance(signal, Signal) for signal in signals)
    assert [str(signal) for signal in signals] == [
        "the handler asked for a retry", "busy", "snoozed", "cancelled by its handler", "no",
        "failed by its handler", "bad",
    ]  # fmt: skip
    assert (Retry().delay, Retry(delay=1.5).delay) == (None, 1_500_000)
    wrongs: list[Any] = [math.nan, math.inf, "soon"]
    for wrong in wrongs:
        with pytest.raises(InvalidSetting, match=r"Retry\(delay=\)"):
            Retry(delay=wrong)
        with pytest.raises(InvalidSetting, match=r"Snooze\(delay=\)"):
            Snooze(wrong)


def test_L4_a_lost_attempt_waits_one_to_ten_seconds_twice_as_long_each_time() -> None:
    assert [lost_delay(n, drawing(0)) for n in (0, 1, 2, 3)] == [
        MICRO, MICRO, 2 * MICRO, 4 * MICRO,
    ]  # fmt: skip
    assert [lost_delay(n, drawing(1)) for n in (1, 2, 3)] == [10 * MICRO, 20 * MICRO, 40 * MICRO]
    assert [lost_delay(n, drawing(1)) for n in (7, 50, 10**9)] == [round(LOST_CAP * MICRO)] * 3


@given(losses=st.integers(0, 10**6), draw=st.floats(0, 1, exclude_max=True))
def test_L4_a_lost_attempt_never_comes_back_at_once_nor_later_than_the_cap(
    losses: int, draw: float
) -> None:
    assert MICRO <= lost_delay(losses, drawing(draw)) <= LOST_CAP * MICRO


def test_L4_jobs_that_died_with_one_worker_spread_over_the_whole_span() -> None:
    random.seed(1)
    seconds = {lost_delay(1) // MICRO for _ in range(200)}
    assert seconds == set(range(1, 10))
