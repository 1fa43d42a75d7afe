"""Chunks: many jobs, one call of the handler, each with an end of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest

from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import (
    INJECTED,
    Backoff,
    Cancel,
    ChainCancelled,
    ChainFailed,
    Context,
    Fail,
    Next,
    Secret,
    Snooze,
    Tasks,
    Towline,
    views,
)
from towline.errors import InvalidArguments, InvalidSetting, InvalidTask
from towline.testing import drain, inline

pytestmark = pytest.mark.each_engine

AT_ONCE = Backoff(first=0)
FOR_EVER = 3600.0  # a wait that only a full chunk ends


@dataclass
class Doc:
    id: int
    text: str = ""


@dataclass
class Login:
    name: str
    word: Annotated[str, Secret]


@pytest.fixture(params=[False, True], ids=["thread", "loop"])
def chunk(app: Towline, request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Register a blocking handler as a chunk, as it is or behind an awaiting one."""

    def register(handler: Callable[[list[int]], Any], **settings: Any) -> Any:
        decorate: Any = app.chunk(**settings)
        if not request.param:

            def index(items: list[int]) -> list[Any] | None:
                found: list[Any] | None = handler(items)
                return found

            return decorate(index)

        async def aindex(items: list[int]) -> list[Any] | None:
            await asyncio.sleep(0)
            found: list[Any] | None = handler(items)
            return found

        return decorate(aindex)

    return register


# ---- F7: how large, and how soon


def test_F7_a_full_chunk_starts_at_once_and_is_one_call(app: Towline, chunk: Any) -> None:
    calls: list[list[int]] = []

    def handler(items: list[int]) -> list[int]:
        calls.append(items)
        return [item * 10 for item in items]

    index = chunk(handler, size=5, wait=FOR_EVER)
    jobs = app.enqueue_many([index.call(n) for n in range(15)])
    with app.worker(concurrency=2):
        assert [job.result(LIMIT) for job in jobs] == [n * 10 for n in range(15)]
    assert [len(items) for items in calls] == [5, 5, 5]
    assert sorted(item for items in calls for item in items) == list(range(15))
    assert [outcomes(app, job.id) for job in jobs] == [["completed"]] * 15


@pytest.mark.parametrize("wait", [0, 0.05])
def test_F7_a_chunk_waits_no_longer_than_it_is_told_to(app: Towline, chunk: Any, wait: Any) -> None:
    sizes: list[int] = []
    index = chunk(lambda items: sizes.append(len(items)), size=100, wait=wait)
    jobs = app.enqueue_many([index.call(n) for n in range(3)])
    with app.worker():
        assert [job.result(LIMIT) for job in jobs] == [None] * 3
        assert index.enqueue(4).result(LIMIT) is None
    assert sum(sizes) == 4
    assert max(sizes) <= 3


def test_F7_room_grows_by_what_an_open_chunk_can_take(app: Towline, chunk: Any) -> None:
    """With one slot, a chunk of 500 fills from several turns."""
    sizes: list[int] = []
    index = chunk(lambda items: sizes.append(len(items)), size=500, wait=FOR_EVER)
    jobs = app.enqueue_many([index.call(n) for n in range(1000)])
    with app.worker(concurrency=1):
        assert jobs[-1].result(LIMIT) is None
        until(lambda: app.counts()["default"] == {"completed": 1000})
    assert sizes == [500, 500]


def test_F7_other_jobs_go_on_while_a_chunk_is_gathered(app: Towline, chunk: Any) -> None:
    index = chunk(lambda items: None, size=100, wait=0.3)

    @app.task
    def other(n: int) -> int:
        return n

    with app.worker(concurrency=2):
        waiting = index.enqueue(1)
        assert [other.enqueue(n).result(LIMIT) for n in range(20)] == list(range(20))
        jobs = app.enqueue_many([other.call(n) for n in range(200)])
        assert [job.result(LIMIT) for job in jobs] == list(range(200))
        assert waiting.result(LIMIT) is None


def test_F7_an_item_that_ends_while_it_is_gathered_leaves_no_room_behind(
    app: Towline, chunk: Any
) -> None:
    gate = Gate()
    index = chunk(lambda items: None, size=3, wait=FOR_EVER)

    @app.task
    def beside() -> None:
        gate.enter()

    with app.worker() as worker:
        turns = worker.pump.turns
        running = beside.enqueue()  # while something runs the worker looks what it still has
        gate.wait_inside()
        first = index.enqueue(1)
        until(lambda: len(turns.held) == 2)
        app.cancel(first.id)
        until(lambda: len(turns.held) == 1)
        jobs = app.enqueue_many([index.call(n) for n in (2, 3)])
        assert [job.result(LIMIT) for job in jobs] == [None] * 2
        gate.open()
        assert running.result(LIMIT) is None
        until(lambda: not turns.held)
        assert (turns.chunks.extra, turns.chunks.space) == (0, 0)


# ---- F7: each item ends by itself


def test_F7_each_item_ends_as_its_own_result_says(app: Towline, chunk: Any) -> None:
    @app.task
    def goes_on(n: int) -> str:
        return f"after {n}"

    @app.task
    def part(n: int) -> int:
        return n

    again: list[int] = []

    def handler(items: list[int]) -> list[Any]:
        def of(n: int) -> Any:
            match n:
                case 1:
                    return goes_on.then(n)
                case 2:
                    return Cancel("not wanted")
                case 3:
                    return Fail("never")
                case 4:
                    return ValueError("just this one")
                case 5:
                    again.append(n)
                    return Snooze(0) if len(again) == 1 else "snoozed"
                case 6:
                    return object()
                case 7:
                    return goes_on.using(after=[part.call(k) for k in range(150)]).then(n)
            return f"value {n}"

        return [of(item) for item in items]

    index = chunk(handler, size=8, wait=FOR_EVER, max_attempts=1)
    jobs = app.enqueue_many([index.call(n) for n in range(8)])
    with app.worker():
        assert jobs[0].result(LIMIT) == "value 0"
        assert jobs[1].result(LIMIT) == "after 1"
        assert jobs[7].result(LIMIT) == "after 7"
        for number, error, words in (
            (2, ChainCancelled, "not wanted"),
            (3, ChainFailed, "never"),
            (4, ChainFailed, "just this one"),
            (6, ChainFailed, "cannot be|object"),
        ):
            with pytest.raises(error, match=words):
                jobs[number].result(LIMIT)
        until(lambda: len(again) == 1)
    ended = {n: outcomes(app, job.id) for n, job in enumerate(jobs)}
    assert ended[5][:1] == ["snoozed"]
    assert [ended[n] for n in (0, 1, 2, 3, 4, 6, 7)] == [
        ["completed"], ["continued"], ["cancelled"], ["failed"], ["failed"], ["failed"],
        ["continued"],
    ]  # fmt: skip


def test_F7_one_item_that_fails_takes_no_other_with_it(app: Towline, chunk: Any) -> None:
    def handler(items: list[int]) -> list[Any]:
        return [ValueError("this one") if item == 1 else item for item in items]

    index = chunk(handler, size=3, wait=FOR_EVER, max_attempts=1)
    jobs = app.enqueue_many([index.call(n) for n in range(3)])
    with app.worker():
        until(lambda: not any(job.refresh().state.open for job in jobs))
    assert [str(job.state) for job in jobs] == ["completed", "failed", "completed"]


def test_F8_an_item_that_failed_runs_alone(app: Towline, chunk: Any) -> None:
    sizes: list[int] = []

    def handler(items: list[int]) -> None:
        sizes.append(len(items))
        raise ValueError("as always")

    index = chunk(handler, size=3, wait=0.2, max_attempts=2, backoff=AT_ONCE)
    jobs = app.enqueue_many([index.call(n) for n in range(3)])
    with app.worker():
        until(lambda: not any(job.refresh().state.open for job in jobs))
    assert sizes == [3, 1, 1, 1]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ([1], "a chunk of 3 items returned 1 results"),
        ({1: 2}, "None or a list of results, not dict"),
        ("abc", "None or a list of results, not str"),
    ],
    ids=["length", "dict", "str"],
)
def test_O4_a_result_that_is_no_list_as_long_is_not_run_again(
    app: Towline, chunk: Any, wrong: Any, words: str
) -> None:
    calls: list[int] = []

    def handler(items: list[int]) -> Any:
        calls.append(len(items))
        return wrong

    index = chunk(handler, size=3, wait=FOR_EVER, backoff=AT_ONCE)
    jobs = app.enqueue_many([index.call(n) for n in range(3)])
    with app.worker():
        for job in jobs:
            with pytest.raises(ChainFailed, match=words):
                job.result(LIMIT)
    assert calls == [3]
    assert [outcomes(app, job.id) for job in jobs] == [["failed"]] * 3


def test_F7_an_item_whose_arguments_do_not_fit_fails_alone(app: Towline) -> None:
    """They were stored by another release."""
    other = Towline(app.url)

    @other.chunk(size=3, wait=FOR_EVER, name="index", max_attempts=1)
    def old(docs: list[str]) -> None: ...

    @app.chunk(size=3, wait=FOR_EVER, max_attempts=1)
    def index(docs: list[int]) -> list[int]:
        return docs

    jobs = [index.enqueue(1), old.enqueue("two"), index.enqueue(3)]
    other.close()
    with app.worker():
        assert [jobs[0].result(LIMIT), jobs[2].result(LIMIT)] == [1, 3]
        with pytest.raises(ChainFailed, match="arguments do not fit"):
            jobs[1].result(LIMIT)


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@dataclass
class Fussy:
    id: int
    refuses: ClassVar[type[BaseException] | None] = None

    def __post_init__(self) -> None:
        if self.refuses is not None and self.id == 2:
            raise self.refuses


@pytest.mark.parametrize("error", [SystemExit, Mute])
def test_O8_an_item_whose_type_raises_anything_fails_alone(
    app: Towline, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]
) -> None:
    """And the one slot goes on with the next chunk."""

    @app.chunk(size=3, wait=FOR_EVER, max_attempts=1)
    def index(items: list[Fussy]) -> list[int]:
        return [item.id for item in items]

    jobs = app.enqueue_many([index.call(Fussy(n)) for n in range(6)])
    monkeypatch.setattr(Fussy, "refuses", error)
    with app.worker(concurrency=1):
        until(lambda: not any(job.refresh().state.open for job in jobs))
    assert [str(job.state) for job in jobs] == [
        "completed", "completed", "failed", "completed", "completed", "completed",
    ]  # fmt: skip
    assert error.__name__ in (app.attempts(jobs[2].id)[0].error or "")


# ---- F8: poison


def test_F8_an_item_that_raises_costs_the_others_one_attempt(app: Towline, chunk: Any) -> None:
    """Raising fails every item; from then on each runs alone, and only the bad one fails (O11)."""
    calls: list[list[int]] = []

    def handler(items: list[int]) -> list[int]:
        calls.append(items)
        if 3 in items:
            raise ValueError("poison")
        return items

    index = chunk(handler, size=6, wait=FOR_EVER, max_attempts=3, backoff=AT_ONCE)
    jobs = app.enqueue_many([index.call(n) for n in range(6)])
    with app.worker():
        for number, job in enumerate(jobs):
            if number == 3:
                with pytest.raises(ChainFailed, match="poison"):
                    job.result(LIMIT)
            else:
                assert job.result(LIMIT) == number
    assert sorted(calls[0]) == list(range(6))
    assert all(len(items) == 1 for items in calls[1:])
    assert outcomes(app, jobs[3].id) == ["failed"] * 3
    assert [outcomes(app, job.id) for job in jobs if job is not jobs[3]] == [
        ["failed", "completed"]
    ] * 5


def test_F8_a_chunk_that_takes_too_long_times_out_and_its_items_run_alone(
    app: Towline, chunk: Any, trouble: Any
) -> None:
    """The timeout is the chunk's; the handler that goes on is left behind."""
    go = threading.Event()

    def handler(items: list[int]) -> list[int]:
        if 2 in items and len(items) > 1:
            go.wait(LIMIT)
        return items

    index = chunk(handler, size=4, wait=FOR_EVER, timeout=0.3, backoff=AT_ONCE)
    jobs = app.enqueue_many([index.call(n) for n in range(4)])
    try:
        with app.worker(grace=5):
            assert [job.result(LIMIT) for job in jobs] == list(range(4))
    finally:
        go.set()
    assert [outcomes(app, job.id) for job in jobs] == [["timeout", "completed"]] * 4


def test_F8_cancelling_an_item_fences_that_one(app: Towline, chunk: Any) -> None:
    gate = Gate()

    def handler(items: list[int]) -> list[int]:
        gate.enter()
        return items

    index = chunk(handler, size=3, wait=FOR_EVER)
    jobs = app.enqueue_many([index.call(n) for n in range(3)])
    with app.worker() as worker:
        gate.wait_inside()
        app.cancel(jobs[1].id, reason="not wanted")
        until(lambda: len(worker.pump.turns.held) == 2)  # it is told
        gate.open()
        assert [jobs[0].result(LIMIT), jobs[2].result(LIMIT)] == [0, 2]
    assert outcomes(app, jobs[1].id) == ["cancelled"]


def test_F8_a_chunk_whose_items_are_all_cancelled_is_told_to_stop(app: Towline) -> None:
    inside, stopped = threading.Event(), threading.Event()

    @app.chunk(size=2, wait=FOR_EVER)
    async def index(docs: list[int]) -> None:
        inside.set()
        try:
            await asyncio.sleep(LIMIT)
        finally:
            stopped.set()

    jobs = app.enqueue_many([index.call(n) for n in range(2)])
    with app.worker():
        assert inside.wait(LIMIT)
        for job in jobs:
            app.cancel(job.id)
        assert stopped.wait(LIMIT)


def test_F7_a_worker_that_stops_hands_back_what_it_gathered(app: Towline, chunk: Any) -> None:
    index = chunk(lambda items: None, size=10, wait=FOR_EVER)
    jobs = app.enqueue_many([index.call(n) for n in range(3)])
    with app.worker() as worker:
        until(lambda: len(worker.pump.turns.held) == 3)
    assert [job.refresh().state for job in jobs] == ["pending"] * 3
    assert [outcomes(app, job.id) for job in jobs] == [[]] * 3


def test_W1_a_chunk_that_the_application_cancels_on_its_own_loop_is_handed_back(
    app: Towline,
) -> None:
    """As it does with all tasks when that loop ends: no attempt is used."""
    gate = Gate()
    cancelled = threading.Event()

    @app.chunk(size=2, wait=FOR_EVER, max_attempts=1)
    async def index(docs: list[int]) -> list[int]:
        gate.pass_by()
        if not cancelled.is_set():
            await asyncio.Event().wait()
        return docs

    jobs = app.enqueue_many([index.call(n) for n in range(2)])

    async def application() -> list[int]:
        async with app.worker():
            await asyncio.to_thread(gate.wait_inside)
            cancelled.set()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            return [await job.aresult(LIMIT) for job in jobs]

    assert asyncio.run(application()) == [0, 1]
    assert [outcomes(app, job.id) for job in jobs] == [["released", "completed"]] * 2


def test_F7_chunks_take_one_slot_each(app: Towline, chunk: Any) -> None:
    running, most = 0, 0
    mutex = threading.Lock()

    def handler(items: list[int]) -> None:
        nonlocal running, most
        with mutex:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with mutex:
            running -= 1

    index = chunk(handler, size=4, wait=0.01)
    jobs = app.enqueue_many([index.call(n) for n in range(100)])
    with app.worker(concurrency=3) as worker:
        assert [job.result(LIMIT) for job in jobs] == [None] * 100
        until(lambda: not worker.pump.turns.held)
        chunks = worker.pump.turns.chunks
        assert (chunks.extra, chunks.space) == (0, 0)
    assert most <= 3


# ---- around it


def test_F7_an_item_is_typed_and_calling_it_just_calls_it(app: Towline) -> None:
    seen: list[list[Doc]] = []

    @app.chunk(size=2, wait=FOR_EVER)
    def index(docs: list[Doc]) -> list[int]:
        seen.append(docs)
        return [doc.id for doc in docs]

    @app.chunk(size=2)
    async def aindex(docs: list[Doc]) -> list[int]:
        return [doc.id for doc in docs]

    assert index(Doc(1)) == 1
    assert asyncio.run(aindex(Doc(2))) == 2
    with pytest.raises(InvalidArguments, match="docs"):
        index.enqueue("no document")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    jobs = [index.enqueue(Doc(3, "three")), index.enqueue(Doc(4))]
    with app.worker():
        assert [job.result(LIMIT) for job in jobs] == [3, 4]
    assert seen[-1] == [Doc(3, "three"), Doc(4)]


def test_F7_middleware_is_around_the_chunk_once(app: Towline, chunk: Any) -> None:
    around: list[Any] = []

    @app.add_middleware
    def note(ctx: Context) -> Generator[None, Any, None]:
        around.append(ctx.job_id)
        around.append((yield))

    index = chunk(lambda items: items, size=3, wait=FOR_EVER)
    jobs = app.enqueue_many([index.call(n) for n in range(3)])
    with app.worker():
        assert [job.result(LIMIT) for job in jobs] == [0, 1, 2]
    assert around == [jobs[0].id, [0, 1, 2]]


def test_F7_a_set_of_tasks_has_chunks(app: Towline) -> None:
    tasks = Tasks()

    @tasks.chunk(size=2, wait=FOR_EVER, queue="mail")
    def index(docs: list[int]) -> list[int]:
        return docs

    app.include(tasks, "search.")
    jobs = app.enqueue_many([index.call(1), index.call(2)])
    with app.worker(queues=["mail"]):
        assert [job.result(LIMIT) for job in jobs] == [1, 2]
    assert jobs[0].task == "search.index"


@pytest.mark.parametrize("way", ["drain", "inline"])
def test_tests_run_chunks(app: Towline, way: str) -> None:
    sizes: list[int] = []

    @app.task
    def last(n: int) -> str:
        return f"last {n}"

    @app.chunk(size=3, wait=FOR_EVER, backoff=AT_ONCE)
    def index(docs: list[int]) -> list[int | Next[str]]:
        sizes.append(len(docs))
        return [last.then(doc) if doc == 1 else doc for doc in docs]

    def enqueue() -> Any:
        return app.enqueue_group([*(index.call(n) for n in range(4)), last.call(9)])

    if way == "drain":
        group = enqueue()
        assert drain(app) == 7
    else:
        with inline(app):
            group = enqueue()
    assert list(group.results(0)) == [0, "last 1", 2, 3, "last 9"]
    assert sizes == [3, 1]
    assert group.refresh().state == "completed"


def test_a_drain_raises_what_a_chunk_raises_and_runs_its_items_alone(app: Towline) -> None:
    @app.chunk(size=3, backoff=AT_ONCE, max_attempts=2)
    def index(docs: list[int]) -> None:
        if 1 in docs:
            raise ValueError("poison")

    jobs = app.enqueue_many([index.call(n) for n in range(3)])
    with pytest.raises(ValueError, match="poison"):
        drain(app)
    drain(app, raising=False)
    assert [str(job.refresh().state) for job in jobs] == ["completed", "failed", "completed"]


# ---- refused


def test_a_chunk_that_cannot_be_is_refused(app: Towline) -> None:
    def fine(docs: list[int]) -> None: ...

    def two(docs: list[int], other: int) -> None: ...

    def none() -> None: ...

    def rest(*docs: list[int]) -> None: ...

    def with_context(docs: list[int], ctx: Context = INJECTED) -> None: ...

    def no_list(doc: int) -> None: ...

    def no_results(docs: list[int]) -> int:
        return 1

    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (two, {}, InvalidSetting, "takes one parameter, the list of its items"),
        (none, {}, InvalidSetting, "takes one parameter"),
        (rest, {}, InvalidSetting, "takes one parameter"),
        (with_context, {}, InvalidSetting, "a chunk has no context, since it runs for many jobs"),
        (fine, {"run_in": "process"}, InvalidSetting, 'not with run_in="process"'),
        (fine, {"size": 0}, InvalidSetting, "size is a number from 1 to 10,000, not 0"),
        (fine, {"size": True}, InvalidSetting, "size is a number"),
        (fine, {"wait": -1}, InvalidSetting, "wait= cannot be negative"),
        (fine, {"queues": "x"}, InvalidSetting, "does not know queues="),
    ]
    chunk: Any = app.chunk
    for function, settings, error, words in cases:
        with pytest.raises(error, match=words):
            chunk(**{"size": 3, **settings})(function)
    decorate: Any = app.chunk(size=3)
    for function, words in ((no_list, "'doc' of a chunk is a list"), (no_results, "the result of")):
        task = decorate(function)
        with pytest.raises(InvalidTask, match=words):
            task.enqueue(1)
    with pytest.raises(InvalidTask, match="is a task already"):
        decorate(app.chunk(size=3)(fine))


def test_X12_an_error_tells_of_no_item_what_is_secret_of_another(
    app: Towline, caplog: pytest.LogCaptureFixture
) -> None:
    @app.chunk(size=3, wait=FOR_EVER, max_attempts=1)
    def check(items: list[Login]) -> None:
        raise ValueError(f"refused {items}")

    caplog.set_level(logging.INFO)
    jobs = app.enqueue_many(
        [check.call(Login(f"name-{n}", f"sesame-{n}")) for n in range(12, 0, -4)]
    )
    app.worker(drain=True, error_text=True).run()
    assert app.runner.events.flush(LIMIT)
    for job in jobs:
        shown = views.full_job_data(app, job.refresh())
        assert "Login(name='name-4', word='***')" in shown["error"]
        assert "sesame" not in str(shown)
    assert "word='***'" in caplog.text
    assert "sesame" not in caplog.text
