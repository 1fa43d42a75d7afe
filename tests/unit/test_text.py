"""Errors, signatures and times as people are told of them."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import pytest

from towline import Next, Secret, Towline
from towline.text import gist
from towline.times import distance

NOW = datetime(2027, 1, 15, 8, tzinfo=UTC)


def fails() -> None:
    raise ValueError("the first line\n  set in\nand one more")


def fails_twice() -> None:
    try:
        fails()
    except ValueError as error:
        raise LookupError("not found") from error


def fails_together() -> None:
    raise ExceptionGroup("several", [ValueError("a"), ValueError("b")])


def cannot_be_compiled() -> None:
    compile("x = 1 +", "shop.py", "exec")


@pytest.mark.parametrize(
    ("does", "says"),
    [
        (fails, "ValueError: the first line"),
        (fails_twice, "LookupError: not found"),
        (fails_together, "ExceptionGroup: several (2 sub-exceptions)"),
        (cannot_be_compiled, "SyntaxError: invalid syntax"),
    ],
)
def test_an_error_is_told_by_the_line_that_names_it(does: Callable[[], None], says: str) -> None:
    """Not by the last one: what it says may have several."""
    with pytest.raises((ValueError, LookupError, ExceptionGroup, SyntaxError)) as raised:
        does()
    assert gist("".join(traceback.format_exception(raised.value))) == says


@pytest.mark.parametrize(
    ("text", "says"), [("told\nin two lines", "told"), ("\n\n", ""), (None, ""), ("  x", "x")]
)
def test_an_error_without_a_traceback_by_its_first_line(text: str | None, says: str) -> None:
    assert gist(text) == says


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-0.2, "just now"),
        (-1, "1.0 s ago"),
        (-3700, "1 h ago"),
        (0.5, "in 500 ms"),
        (90, "in 1 min"),
    ],
)
def test_how_far_a_time_is(seconds: float, words: str) -> None:
    assert distance(NOW + timedelta(seconds=seconds), NOW) == words


def test_X12_a_signature_is_spelt_without_marks_and_secrets() -> None:
    app = Towline("sqlite:///never-opened.db")

    @app.task
    def pay(
        order: int, card: Annotated[str, Secret] = "4111", more: dict[str, Any] | None = None
    ) -> Next[str]:
        raise NotImplementedError

    @app.task
    def nothing(untold, *rest: Annotated[int, "mark"]) -> None:  # type: ignore[no-untyped-def]
        ...

    spelt = "pay(order: int, card: str = ***, more: dict[str, Any] | None = None) -> Next[str]"
    assert pay.signature.text == spelt
    assert nothing.signature.text == "nothing(untold, *rest: int) -> None"
