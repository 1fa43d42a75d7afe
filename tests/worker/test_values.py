"""What goes into a handler and what comes out: values, continuations, blockers, the context."""

from __future__ import annotations

import asyncio
import logging
import threading
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kit import new
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import INJECTED, Context, Failure, Next, Retry, State, Towline, context

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Order:
    number: int
    lines: list[str]


def test_a_value_goes_in_and_comes_out(app: Towline) -> None:
    """O1, O10: arguments and result by their types; one attempt, with its start, end and worker."""

    @app.task
    def double(order: Order) -> Order:
        return Order(order.number * 2, order.lines * 2)

    with app.worker(name="w1"):
        job = double.enqueue(Order(2, ["a\x00b", "\N{PILE OF POO}"]))
        assert job.result(LIMIT) == Order(4, ["a\x00b", "\N{PILE OF POO}"] * 2)
    (attempt,) = app.attempts(job.id)
    assert (attempt.number, attempt.worker, attempt.outcome) == (1, "w1", "completed")
    assert attempt.started_at is not None
    assert attempt.ended_at is not None
    assert job.created_at <= attempt.started_at <= attempt.ended_at


@pytest.mark.parametrize("value", [None, True, 0, 1.5, "", [], [[1], []], {}, {"a": [None]}])
def test_every_kind_of_value(app: Towline, value: Any) -> None:
    """E5 end to end, O8: None is a value like others."""

    @app.task
    def echo(value: Any) -> Any:
        return value

    with app.worker():
        job = echo.enqueue(value)
        assert job.result(LIMIT) == value
    assert job.refresh().state is State.COMPLETED


def test_a_handler_that_returns_nothing_returns_none(app: Towline) -> None:
    """O8"""

    @app.task
    def nothing() -> None:
        pass

    @app.task
    async def nothing_awaited() -> None:
        pass

    with app.worker():
        jobs = [nothing.enqueue(), nothing_awaited.enqueue()]
        assert [job.result(LIMIT) for job in jobs] == [None, None]


def test_blocking_and_awaiting_tasks_in_one_worker(app: Towline) -> None:
    """W2: all run at the same time, each where it belongs."""
    gate = Gate()
    threads = set()

    @app.task
    def blocking() -> str:
        threads.add(threading.current_thread().name)
        gate.enter()
        return "thread"

    @app.task
    async def awaiting() -> str:
        assert asyncio.get_running_loop().is_running()
        await asyncio.to_thread(gate.enter)
        return "loop"

    with app.worker(concurrency=6):
        jobs = [task.enqueue() for task in (blocking, awaiting) * 3]
        gate.wait_inside(6)
        gate.open()
        assert [job.result(LIMIT) for job in jobs] == ["thread", "loop"] * 3
    assert len(threads) == 3


def test_no_more_at_a_time_than_concurrency_says(app: Towline) -> None:
    """W2: what is claimed ahead waits, in threads and on the loop."""
    gate = Gate()
    inside = 0
    most = 0
    mutex = threading.Lock()

    def count(by: int) -> None:
        nonlocal inside, most
        with mutex:
            inside += by
            most = max(most, inside)

    @app.task
    def blocking() -> None:
        count(1)
        gate.enter()
        count(-1)

    @app.task
    async def awaiting() -> None:
        count(1)
        await asyncio.to_thread(gate.enter)
        count(-1)

    for task in (blocking, awaiting):
        gate, most = Gate(), 0
        with app.worker(concurrency=2, prefetch=10):
            jobs = [task.enqueue() for _ in range(8)]
            gate.wait_inside(2)
            gate.open()
            for job in jobs:
                job.result(LIMIT)
        assert most == 2


def test_a_free_slot_is_used_though_the_others_are_taken(app: Towline) -> None:
    """W2: jobs that come one after the other each begin, beside those that stay."""

    @app.task
    def stay(gates: int) -> None:
        open_gates[gates].enter()

    open_gates = [Gate() for _ in range(25)]
    with app.worker(concurrency=4, prefetch=0):
        for number, gate in enumerate(open_gates):
            for _ in range(4):
                stay.enqueue(number)
            gate.wait_inside(4)
            gate.open()


def test_a_chain_continues(app: Towline) -> None:
    """C1, C2: the continuation is a job of the same chain, and the last output is the chain's."""

    @app.task
    def countdown(number: int) -> str | Next[str]:
        return "done" if number == 0 else countdown.then(number - 1)

    @app.task
    async def begin() -> Next[str]:
        return countdown.then(3)

    with app.worker():
        job = begin.enqueue()
        assert job.result(LIMIT) == "done"
    jobs = list(app.jobs(chain=job.chain_id, newest=False))
    assert [(j.position, j.outcome) for j in jobs] == [
        *((position, "continued") for position in range(4)),
        (4, "completed"),
    ]


def test_a_continuation_that_cannot_be_stored_fails_its_job_alone(app: Towline) -> None:
    """C5, O8: a blocker that does not exist; others that end in the same turn are not touched."""
    gate = Gate()

    @app.task
    def good() -> str:
        gate.enter()
        return "good"

    @app.task
    def bad() -> Next[str]:
        gate.enter()
        return good.using(after=[987654]).then()

    with app.worker():
        first, broken, last = good.enqueue(), bad.enqueue(), good.enqueue()
        gate.wait_inside(3)
        gate.open()
        assert (first.result(LIMIT), last.result(LIMIT)) == ("good", "good")
        assert until(lambda: broken.refresh().state is State.FAILED)
    assert "BlockerError" in (broken.error or "")
    assert outcomes(app, broken.id) == ["failed"]


def test_outputs_of_blockers_by_position_and_name(app: Towline) -> None:
    """B9: in declared order and by name, decoded by their tasks, converted where asked."""

    @app.task
    def make(number: int) -> Order:
        return Order(number, [])

    @app.task
    def number() -> Next[int]:
        return plain.then()

    @app.task
    async def plain() -> int:
        return 7

    @app.task
    def join(ctx: Context = INJECTED) -> list[int]:
        blockers = ctx.blockers
        first, second = blockers
        assert blockers.names == ("order", "count")
        assert blockers["order"] == first == Order(5, [])
        assert blockers["count"] == blockers[1] == second == 7
        assert blockers.get("order", dict) == {"number": 5, "lines": []}
        with pytest.raises(KeyError):
            blockers["else"]
        count = blockers.get(1, int)
        assert isinstance(count, int)
        return [first.number, count]

    with app.worker():
        job = join.using(after={"order": make.enqueue(5), "count": number.enqueue()}).enqueue()
        assert job.result(LIMIT) == [5, 7]


def test_a_failed_blocker_arrives_as_a_failure(app: Towline) -> None:
    """B6, B9: under policy "run"."""

    @app.task(max_attempts=1)
    def broken() -> int:
        raise ValueError("oh dear")

    @app.task
    def fine() -> int:
        return 1

    @app.task
    def look(ctx: Context = INJECTED) -> str:
        failure, value = ctx.blockers
        assert isinstance(failure, Failure)
        assert ctx.blockers.get(0, int) == failure
        assert (failure.state, value) == ("failed", 1)
        return failure.reason or ""

    with app.worker():
        after = [broken.enqueue(), fine.enqueue()]
        job = look.using(after=after, on_blocker_failure="run").enqueue()
        assert "ValueError: oh dear" in job.result(LIMIT)


def test_a_task_that_is_not_known_any_more_gives_its_output_as_json(app: Towline) -> None:
    """B9: blockers are other people's tasks too."""

    @app.task
    def join(ctx: Context = INJECTED) -> list[Any]:
        order = ctx.blockers.get(0, Order)
        assert isinstance(order, Order)
        return [*ctx.blockers, order.number]

    (foreign,) = app.runner.run(app.runner.store.enqueue([new("elsewhere")]))
    app.runner.run(app.runner.store.complete(foreign.record.id, '{"number": 3, "lines": []}'))
    with app.worker():
        job = join.using(after=[foreign.record.id]).enqueue()
        assert job.result(LIMIT) == [{"number": 3, "lines": []}, 3]


def test_the_context_knows_the_attempt(app: Towline) -> None:
    """W2, T1: the same in a parameter and in deep code, on threads and on the loop."""

    def deep() -> list[Any]:
        ctx = context()
        return [
            ctx.job_id, ctx.chain_id, ctx.task, ctx.queue, ctx.label, ctx.attempt,
            ctx.max_attempts, ctx.trace, ctx.cancelled, ctx.token.job_id, ctx.token.attempt,
        ]  # fmt: skip

    @app.task(queue="q", max_attempts=3)
    def blocking(ctx: Context = INJECTED) -> list[Any]:
        assert ctx is context()
        return deep()

    @app.task(queue="q", max_attempts=3)
    async def awaiting(ctx: Context = INJECTED) -> list[Any]:
        await asyncio.sleep(0)
        assert ctx is context()
        return await asyncio.to_thread(deep)

    with app.worker():
        for task in (blocking, awaiting):
            job = task.using(label="mine", trace=TRACE).enqueue()
            assert job.result(LIMIT) == [
                job.id, job.id, job.task, "q", "mine", 1, 3, TRACE, False, job.id, 1
            ]  # fmt: skip


def test_no_two_attempts_have_the_same_token(app: Towline) -> None:
    """W2: it fences what lies outside the database."""
    tokens = []

    @app.task
    def twice(ctx: Context = INJECTED) -> None:
        tokens.append(ctx.token)
        if len(tokens) < 2:
            raise Retry(delay=0)

    with app.worker():
        twice.enqueue().result(LIMIT)
    assert len(set(tokens)) == 2
    assert tokens[0].claimed_at < tokens[1].claimed_at


def test_log_lines_say_which_job_they_are_about(
    app: Towline, caplog: pytest.LogCaptureFixture
) -> None:
    """W2: the logging context is there, for people and for machines."""

    @app.task
    def speak(ctx: Context = INJECTED) -> None:
        ctx.log.warning("hello %s", "you", extra={"more": 1})

    with app.worker(), caplog.at_level(logging.WARNING, "towline.job"):
        job = speak.enqueue()
        job.result(LIMIT)
    (record,) = [record for record in caplog.records if record.name == "towline.job"]
    assert record.getMessage() == f"[speak {job.id}/1] hello you"
    found = [getattr(record, name) for name in ("job", "attempt", "task", "more")]
    assert found == [job.id, 1, "speak", 1]


def test_the_trace_reaches_the_handler_and_its_continuation(app: Towline) -> None:
    """T1"""

    @app.task
    def last() -> str | None:
        return context().trace

    @app.task
    def first(seen: str | None = None) -> Next[str | None]:
        assert context().trace == TRACE
        return last.then()

    with app.worker():
        assert first.using(trace=TRACE).enqueue().result(LIMIT) == TRACE


def test_progress_is_seen_while_the_job_runs(app: Towline) -> None:
    """O9: fraction and text, whatever the text; kept with the attempt."""
    gate = Gate()

    @app.task
    def work(ctx: Context = INJECTED) -> None:
        with pytest.raises(ValueError, match="fraction"):
            ctx.progress(2.0)
        ctx.progress(0.25, "a quarter\x00\ud800")
        gate.enter()

    with app.worker():
        job = work.enqueue()
        gate.wait_inside()
        seen = until(lambda: job.refresh().progress)
        assert seen.fraction == 0.25
        assert str(seen.text).startswith("a quarter")
        gate.open()
        job.result(LIMIT)
    assert job.refresh().progress == seen


def test_a_row_can_name_no_code(app: Towline) -> None:
    """X1: only registered tasks run; a dotted path is a name nobody has."""

    @app.task
    def known() -> str:
        return "ran"

    names = ("os.system", "tests.worker.gate:until", "known.function", "__main__.known", "KNOWN")
    stored = app.runner.run(
        app.runner.store.enqueue([new(name, arguments='["x"]') for name in names])
    )
    with app.worker(prefetch=20):
        assert known.enqueue().result(LIMIT) == "ran"
        ids = [found.record.id for found in stored]
        until(lambda: all(app.job(id).reason for id in ids))
    for id in ids:
        assert app.job(id).state is State.PENDING
        assert "no running worker knows" in (app.job(id).reason or "")
        assert app.attempts(id) == []


@pytest.mark.parametrize("arguments", ['{"number": "seven"}', "{}", "[1, 2, 3]", "nonsense", "7"])
def test_arguments_that_do_not_fit_are_a_failure_of_the_job(app: Towline, arguments: str) -> None:
    """X1, O8: rows that nobody checked; the handler is not called."""
    called = []

    @app.task
    def add(number: int) -> None:
        called.append(number)

    (stored,) = app.runner.run(
        app.runner.store.enqueue([new("add", arguments=arguments, max_attempts=1)])
    )
    with app.worker():
        until(lambda: app.job(stored.record.id).state is State.FAILED)
    assert not called
    assert outcomes(app, stored.record.id) == ["failed"]
