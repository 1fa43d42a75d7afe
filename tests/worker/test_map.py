"""`map`: calls stored while their outputs are read, with a bounded number in flight."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest

from tests.until import until
from tests.worker.gate import LIMIT
from towline import Call, ChainFailed, NotFound, Task, Towline, WaitTimeout
from towline.errors import InvalidSetting

pytestmark = pytest.mark.each_engine


@pytest.fixture
def double(app: Towline) -> Task[[int], int]:
    @app.task(max_attempts=1)
    def double(n: int) -> int:
        if n < 0:
            raise ValueError(f"{n} is negative")
        return 2 * n

    return double


def mapped(app: Towline, calls: Iterable[Call[Any]], awaits: bool, **options: Any) -> Iterator[Any]:
    """All outputs, on either face."""
    options = {"timeout": LIMIT, **options}
    if not awaits:
        yield from app.map(calls, **options)
        return

    async def gather() -> list[Any]:
        return [output async for output in app.amap(calls, **options)]

    yield from asyncio.run(gather())


def mapped_one_by_one(app: Towline, calls: Iterable[Call[Any]], awaits: bool) -> Iterator[Any]:
    """The same, each when it is asked for."""
    if not awaits:
        yield from app.map(calls, timeout=LIMIT)
        return
    outputs = app.amap(calls, timeout=LIMIT)
    with asyncio.Runner() as runner:
        while True:
            try:
                yield runner.run(_next(outputs))
            except StopAsyncIteration:
                return


async def _next(outputs: AsyncIterator[Any]) -> Any:
    return await anext(outputs)


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
@pytest.mark.parametrize(("number", "in_flight"), [(0, 100), (1, 1), (60, 7), (60, 100)])
def test_F6_outputs_come_in_the_order_of_the_calls(
    app: Towline, double: Any, number: int, in_flight: int, awaits: bool
) -> None:
    with app.worker():
        found = mapped(app, (double.call(n) for n in range(number)), awaits, in_flight=in_flight)
        assert list(found) == [2 * n for n in range(number)]


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_F6_never_more_than_in_flight_are_open(app: Towline, double: Any, awaits: bool) -> None:
    """Asked of the database each time that another call is wanted."""
    most: list[int] = []

    def calls() -> Iterator[Call[int]]:
        for n in range(80):
            counts = app.counts().get("default", {})
            most.append(counts.get("pending", 0) + counts.get("running", 0))
            yield double.call(n)

    with app.worker():
        assert list(mapped(app, calls(), awaits, in_flight=5)) == [2 * n for n in range(80)]
    assert max(most) < 5
    assert len(most) == 80


def test_F6_a_slow_first_keeps_few_behind_it(app: Towline) -> None:
    """What has ended behind it is kept, four times as many as may be open; no more are stored."""
    go = threading.Event()

    @app.task
    def work(n: int) -> int:
        if n == 0:
            assert go.wait(LIMIT)
        return n

    given: list[int] = []

    def calls() -> Iterator[Call[int]]:
        for n in range(100):
            given.append(n)
            yield work.call(n)

    with app.worker(concurrency=4):
        results = app.map(calls(), in_flight=3, timeout=LIMIT)
        threading.Timer(0.5, go.set).start()
        assert next(results) == 0
        assert len(given) <= 3 * 4
        assert list(results) == list(range(1, 100))


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_F6_an_iterator_that_raises_loses_nothing_it_gave(
    app: Towline, double: Any, awaits: bool
) -> None:
    """Its error comes in its place, behind the outputs of the calls before it."""

    def calls() -> Iterator[Call[int]]:
        yield double.call(1)
        yield double.call(2)
        raise OSError("the file ends here")

    results = mapped_one_by_one(app, calls(), awaits)
    with app.worker():
        assert [next(results), next(results)] == [2, 4]
        with pytest.raises(OSError, match="the file ends here"):
            next(results)
    assert app.counts() == {"default": {"completed": 2}}


def test_F6_keyed_calls_can_be_repeated(app: Towline, double: Any) -> None:
    """The second map finds the chains of the first, ended or not."""

    def calls() -> list[Call[int]]:
        return [double.using(key=f"{n}", scope="any").call(n) for n in (1, 2, 3, 2)]

    with app.worker():
        first = app.map(calls(), in_flight=2, timeout=LIMIT)
        assert next(first) == 2  # and then its program was killed
        assert list(app.map(calls(), timeout=LIMIT)) == [2, 4, 6, 4]
        assert list(app.map(calls(), in_flight=1, timeout=LIMIT)) == [2, 4, 6, 4]
    assert app.counts() == {"default": {"completed": 3}}


def test_F6_a_failure_raises_in_its_place_and_the_rest_goes_on(app: Towline, double: Any) -> None:
    with app.worker():
        results = app.map([double.call(n) for n in (1, -1, 2)], timeout=LIMIT)
        assert next(results) == 2
        with pytest.raises(ChainFailed, match="-1 is negative"):
            next(results)
        until(lambda: app.counts() == {"default": {"completed": 2, "failed": 1}})


def test_F6_a_chain_that_is_deleted_is_said(app: Towline, double: Any) -> None:
    results = app.map([double.call(1)], timeout=LIMIT)

    def delete() -> None:
        while not (jobs := list(app.jobs())):
            pass
        app.delete(jobs[0].id)

    threading.Thread(target=delete, daemon=True).start()
    with pytest.raises(NotFound, match="is gone: deleted or pruned while map"):
        next(results)


def test_F6_time_is_over(app: Towline, double: Any) -> None:
    with pytest.raises(WaitTimeout, match=r"has not ended within 0.01 s: 2 of the chains"):
        list(app.map([double.call(1), double.call(2)], timeout=0.01))


@pytest.mark.parametrize("in_flight", [0, -1, 1.5, True])
def test_in_flight_is_a_number_from_one(app: Towline, double: Any, in_flight: Any) -> None:
    with pytest.raises(InvalidSetting, match="in_flight is a number from 1"):
        app.map([double.call(1)], in_flight=in_flight)
