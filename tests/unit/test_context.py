"""What a handler is given: outputs of blockers, progress, and a logger of its own."""

from __future__ import annotations

import logging
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest

from towline.errors import InvalidSetting
from towline.model import CHAIN_CODE, ChainState
from towline.records import BlockerRecord
from towline.task.context import Blockers, Context, JobLogger

COMPLETED = CHAIN_CODE[ChainState.COMPLETED]


def blockers() -> Blockers:
    """Two with a name and one without, outputs 1, 2 and 3."""
    records = [
        BlockerRecord(0, number, name, number, COMPLETED, "t", str(number), None, None)
        for number, name in ((1, "sizes"), (2, "caption"), (3, None))
    ]
    return Blockers(records, lambda task, output: int(output or 0))


def test_blockers_are_asked_for_by_name() -> None:
    """Finding B11"""
    given = blockers()
    assert "sizes" in given
    assert "nobody" not in given
    assert given.keys() == ("sizes", "caption", 2)
    assert given.values() == (1, 2, 3)
    assert given.items() == (("sizes", 1), ("caption", 2), (2, 3))
    assert dict(given) == {"sizes": 1, "caption": 2, 2: 3}
    assert 3 in given
    assert 4 not in given


def test_blockers_are_a_sequence_of_outputs() -> None:
    first, second, third = blockers()
    assert (first, second, third) == (1, 2, 3)


def test_a_blocker_that_is_not_there_has_a_default() -> None:
    """Finding B11: and a type in its place still converts."""
    given = blockers()
    assert given.get("sizes") == 1
    assert given.get("nobody") is None
    assert given.get("nobody", 5) == given.get(7, default=5) == 5
    assert given.get("sizes", float) == given.get("sizes", type=float) == 1.0
    with pytest.raises(KeyError, match="no blocker named"):
        given.get("nobody", int)


def context() -> tuple[Context, Any]:
    running: Any = SimpleNamespace(held=None, told=None)
    running.report = lambda *progress: setattr(running, "told", progress)
    return Context(running), running


class Words(str):
    """A str of a kind of its own."""


@pytest.mark.parametrize("number", [0.5, Decimal("0.5"), Fraction(1, 2)])
def test_a_progress_is_plain_whatever_was_given(number: Any) -> None:
    """Findings A10, A28: a float and a str, which is not too long."""
    ctx, running = context()
    ctx.progress(number, Words("x" * 2000))
    fraction, text = running.told
    assert (type(fraction), fraction) == (float, 0.5)
    assert (type(text), text) == (str, "x" * 1000)


@pytest.mark.parametrize(
    "number", [float("nan"), float("inf"), -0.1, 1.1, "0.5", b"0.5", 1j, [0.5], Decimal("sNaN")]
)
def test_what_is_no_fraction_is_refused(number: Any) -> None:
    """Finding A10: where the handler says it."""
    ctx, running = context()
    with pytest.raises(InvalidSetting, match="fraction from 0 to 1"):
        ctx.progress(number)
    assert running.told is None


def test_a_logger_takes_any_task_name(caplog: pytest.LogCaptureFixture) -> None:
    """Finding A30: with and without arguments; the line is that of the caller."""
    logger = JobLogger(logging.getLogger("towline.job"), {"job": 1, "attempt": 2, "task": "50% x"})
    logger.warning("%d of %d", 3, 4)
    logger.warning("100 %")
    assert caplog.messages == ["[50% x 1/2] 3 of 4", "[50% x 1/2] 100 %"]
    assert {record.funcName for record in caplog.records} == {
        test_a_logger_takes_any_task_name.__name__
    }
