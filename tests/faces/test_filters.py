"""Findings B1, S1 and D2: what a list or a bulk action is about is said in known words, or not at
all; what was misspelt must not mean "every job"."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from towline import State, Towline
from towline.errors import InvalidSetting, WriterBusy
from towline.operation import Op

from .test_bad_input import app as app  # both engines

LISTS = ["jobs", "chains"]
BULK = ["cancel_many", "retry_many", "run_now_many", "delete_many"]


@pytest.fixture(params=["blocking", "awaiting"])
def call(request: pytest.FixtureRequest, app: Towline) -> Callable[..., Any]:
    def call(method: str, **given: Any) -> Any:
        if request.param == "blocking":
            return getattr(app, method)(**given)
        return asyncio.run(getattr(app, f"a{method}")(**given))

    return call


@pytest.fixture(autouse=True)
def stored(app: Towline) -> None:
    @app.task
    def add(a: int) -> int:
        return a

    app.enqueue_many([add.call(number) for number in range(3)])


def states(app: Towline) -> list[State]:
    return [job.state for job in app.jobs()]


@pytest.mark.parametrize("method", [*LISTS, *BULK])
def test_a_misspelt_filter_is_refused_with_the_nearest_known(
    app: Towline, call: Callable[..., Any], method: str
) -> None:
    with pytest.raises(
        InvalidSetting, match=rf"{method}\(\) does not know tsak= \(did you mean task=\?\)"
    ):
        call(method, tsak="nope")
    with pytest.raises(InvalidSetting, match=r"does not know foo=\. It takes state, .*task, "):
        call(method, foo=None)
    assert states(app) == [State.PENDING] * 3


@pytest.mark.parametrize("method", BULK)
@pytest.mark.parametrize("given", [{}, {"task": None}, {"preview": True}])
def test_that_every_job_is_meant_must_be_said(
    app: Towline, call: Callable[..., Any], method: str, given: dict[str, Any]
) -> None:
    with pytest.raises(
        InvalidSetting, match=r"would be about every (job|chain): .* everything=True"
    ):
        call(method, **given)
    assert states(app) == [State.PENDING] * 3


def test_and_can_be_said(app: Towline, call: Callable[..., Any]) -> None:
    assert call("cancel_many", everything=True, preview=True) == 3
    assert call("cancel_many", everything=True) == 3
    assert call("retry_many", everything=True) == 3
    assert states(app) == [State.PENDING] * 3
    assert call("delete_many", everything=True) == 0  # open ones only if that is said
    app.cancel_many(everything=True)
    assert call("delete_many", everything=True, preview=True) == 3
    assert call("delete_many", everything=True) == 3
    assert states(app) == []


def test_everything_and_a_filter_are_a_contradiction(call: Callable[..., Any]) -> None:
    with pytest.raises(InvalidSetting, match="filters or everything=True, not both"):
        call("cancel_many", everything=True, task="add")


@pytest.mark.parametrize("method", LISTS)
@pytest.mark.parametrize(
    "given",
    [
        {"limit": "5"},
        {"limit": True},
        {"limit": 5.0},
        {"limit": None},
        {"limit": 10**5000},
        {"cursor": 5},
        {"cursor": "٣"},
        {"cursor": "9" * 5000},
        {"cursor": str(2**63)},
        {"since": "2026-01-01"},
        {"ids": []},
        {"ids": "1"},
        {"ids": 1},
        {"ids": range(10_001)},
    ],
)
def test_limits_and_cursors_of_another_type_are_refused(
    call: Callable[..., Any], method: str, given: dict[str, Any]
) -> None:
    with pytest.raises(InvalidSetting, match=f"^{next(iter(given))}"):
        call(method, **given)


def test_counts_are_plain_words_and_leave_out_what_there_is_none_of(
    app: Towline, call: Callable[..., Any]
) -> None:
    """Of a queue that has been emptied nothing is left to say."""
    assert repr(call("counts")) == "{'default': {'pending': 3}}"
    app.cancel_many(everything=True)
    assert repr(call("counts")) == "{'default': {'cancelled': 3}}"
    for chain in app.chains():
        app.delete(chain.id)
    assert call("counts") == {}


def test_a_bulk_call_that_fails_says_what_it_has_done_before(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K4, finding P20: pages are transactions of their own, and those before stay."""
    monkeypatch.setattr("towline.app.management.BULK_PAGE", 2)
    run, pages = app.runner.engine.run, iter([True, False])

    def runs_once(op: Op[Any], patience: float | None = None) -> Any:
        if op.name == "bulk" and not next(pages):
            raise WriterBusy("somebody writes")
        return run(op, patience)

    monkeypatch.setattr(app.runner.engine, "run", runs_once)
    with pytest.raises(WriterBusy, match="2 jobs were done before"):
        app.cancel_many(everything=True)
    assert app.counts() == {"default": {"pending": 1, "cancelled": 2}}


@pytest.mark.parametrize("call", ["cancel_many", "retry_many", "run_now_many"])
def test_K4_roots_false_chooses_nothing(app: Towline, call: str) -> None:
    @app.task
    def work() -> None: ...

    job = work.enqueue()
    with pytest.raises(InvalidSetting, match="without a filter would be about every job"):
        getattr(app, call)(roots=False)
    assert str(job.refresh().state) == "pending"


@pytest.mark.parametrize("given", [0, "1h", datetime.fromisoformat("2026-05-01")])
@pytest.mark.parametrize("name", ["ended_since", "ended_until"])
def test_a_time_of_the_end_is_a_datetime_with_a_zone(
    app: Towline, call: Callable[..., Any], name: str, given: Any
) -> None:
    with pytest.raises(InvalidSetting, match=rf"{name}= is a datetime with a time zone"):
        call("jobs", **{name: given})


@pytest.mark.parametrize("given", ["", "x" * 501, 7, ValueError])
def test_a_kind_of_error_is_the_name_of_a_class(
    app: Towline, call: Callable[..., Any], given: Any
) -> None:
    with pytest.raises(InvalidSetting, match="error_type= is the name of a class, not"):
        call("jobs", error_type=given)


def test_what_ended_in_a_time_is_acted_on_and_said_in_the_audit(
    app: Towline, call: Callable[..., Any]
) -> None:
    before = app.now()
    app.cancel(1)
    assert call("retry_many", ended_until=before, by="ann") == 0
    assert call("retry_many", ended_since=before, by="ann") == 1
    (line,) = app.audit()
    assert line.chosen == {"ended_since": before.isoformat()}
