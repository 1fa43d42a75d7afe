"""Events of a worker, as an application gets them by `app.on`."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate
from towline import INJECTED, BlockerError, Context, Fail, Next, NotFound, Retry, Towline
from towline.errors import InvalidSetting
from towline.events.kinds import EVENTS, Event


class Kept(list[Any]):
    """A subscriber that keeps what it is told."""

    def __call__(self, event: Event) -> None:
        self.append(event)

    def of(self, name: str) -> list[Any]:
        return [event for event in self if event.name == name]


def test_on_tells_of_what_was_named_and_off_ends_it(app: Towline) -> None:
    every, ended = Kept(), Kept()

    @app.on("attempt.ended", "job.enqueued")
    def note(event: Any) -> None:
        ended(event)

    assert app.on(every) is every

    @app.task
    def double(n: int) -> int:
        return 2 * n

    with app.worker():
        assert double.enqueue(2).result(timeout=LIMIT) == 4
        until(lambda: len(ended) == 2)
    assert [event.name for event in ended] == ["job.enqueued", "attempt.ended"]
    assert [event.name for event in every if event.name in ("job.enqueued", "attempt.ended")] == [
        "job.enqueued", "attempt.ended",
    ]  # fmt: skip
    app.off(note)
    app.off(every)
    double.enqueue(3)
    app.runner.events.flush(LIMIT)
    assert len(ended) == 2
    assert "job.enqueued" not in app.runner.events.wanted


def test_on_refuses_an_unknown_name_and_what_awaits(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match=r"no event 'attempt\.done'"):
        app.on("attempt.done")(print)

    async def note(event: Any) -> None: ...

    class Awaiting:
        async def __call__(self, event: Any) -> None: ...

    for function in (note, Awaiting()):
        with pytest.raises(InvalidSetting, match="awaits"):
            app.on(function)
    assert not app.runner.events.has(note)


def test_T8_events_come_after_their_commit_in_order_and_once(
    app: Towline, database: Database
) -> None:
    """The subscriber looks at the database when it is told: what it is told of is there."""
    order: dict[int, list[str]] = defaultdict(list)
    missing: list[Event] = []

    @app.task
    def double(n: int, ctx: Context = INJECTED) -> Next[int]:
        if n % 5 == 0 and ctx.attempt == 1:
            raise Retry("again", delay=0)
        if n % 7 == 0:
            raise Fail("never")
        return triple.then(n)

    @app.task
    async def triple(n: int) -> int:
        return 3 * n

    @app.on("job.enqueued", "attempt.started", "attempt.ended")
    def note(event: Any) -> None:
        if event.name == "job.enqueued":
            for job in event.jobs:
                order[job].append("enqueued")
            found = len(app.jobs(ids=event.jobs, limit=100)) == event.count
        elif event.name == "attempt.ended":
            order[event.job].append(f"{event.attempt} ended {event.outcome}")
            numbers = [each.number for each in app.attempts(event.job) if each.outcome]
            found = event.accepted and event.attempt in numbers
        else:
            order[event.job].append(f"{event.attempt} started")
            found = event.waited >= 0
        if not found:
            missing.append(event)

    jobs = app.enqueue_many([double.call(n) for n in range(40)])
    app.worker(drain=True, concurrency=4).run()
    assert app.runner.events.flush(LIMIT)
    assert missing == []
    for n, job in enumerate(jobs):
        expected = ["enqueued"]
        if n % 5 == 0:
            expected += ["1 started", "1 ended failed"]
        attempt = 2 if n % 5 == 0 else 1
        outcome = "failed" if n % 7 == 0 else "continued"
        assert order[job.id] == [*expected, f"{attempt} started", f"{attempt} ended {outcome}"]
    assert Counter(map(tuple, order.values()))["1 started", "1 ended completed"] == 34


def test_T8_what_was_rolled_back_on_our_connection_is_never_told(
    app: Towline, database: Database
) -> None:
    kept = Kept()
    app.on("job.enqueued", "job.controlled", "operation.ended")(kept)

    @app.task
    def double(n: int) -> int:
        return 2 * n

    with pytest.raises(BlockerError):
        double.using(after=[10**9]).enqueue(1)
    with pytest.raises(NotFound):
        app.cancel(10**9, by="ada")
    connection = database.connect()
    double.using(on=connection).enqueue(1)
    connection.rollback()
    connection.close()
    job = double.using(queue="slow").enqueue(1)
    app.cancel(job.id, by="ada")
    app.pause("slow", by="ada")
    assert app.cancel_many(queue="slow", preview=True) == 0
    assert app.runner.events.flush(LIMIT)
    assert [(e.connection, e.count) for e in kept.of("job.enqueued")] == [("caller", 1), ("own", 1)]
    assert [(e.operation, e.count, e.jobs, e.queue, e.by) for e in kept.of("job.controlled")] == [
        ("cancel", 1, (job.id,), "slow", "ada"),
        ("pause", 1, (), "slow", "ada"),
    ]
    raised = [e.error_type for e in kept.of("operation.ended") if e.error_type]
    assert raised == ["towline.BlockerError", "towline.NotFound"]


@pytest.fixture
def hanging() -> Iterator[tuple[threading.Event, threading.Event]]:
    """One says that somebody hangs, the other lets them go, at the end of the test."""
    entered, gate = threading.Event(), threading.Event()
    yield entered, gate
    gate.set()


class HangingHandler(logging.Handler):
    def __init__(self, entered: threading.Event, gate: threading.Event) -> None:
        super().__init__()
        self._meet = entered, gate

    def emit(self, record: logging.LogRecord) -> None:
        entered, gate = self._meet
        entered.set()
        gate.wait(2 * LIMIT)


@pytest.mark.parametrize("who", ["subscriber", "handler"])
def test_T7_who_hangs_costs_no_lease_and_no_stop(
    app: Towline,
    who: str,
    hanging: tuple[threading.Event, threading.Event],
    trouble: list[logging.LogRecord],
) -> None:
    """It hangs until the test is over: a stop that waited for it would never end."""
    entered, gate = hanging
    handler = HangingHandler(entered, gate)
    logger = logging.getLogger("towline.worker")
    if who == "handler":
        logger.addHandler(handler)
    else:

        @app.on("attempt.ended")
        def hang(event: Event) -> None:
            entered.set()
            gate.wait(2 * LIMIT)

    inside = Gate()

    @app.task(max_attempts=1)
    def bad() -> None:
        raise ValueError("no")

    @app.task
    def long() -> str:
        inside.enter()
        return "done"

    try:
        with app.worker(lease=1, grace=5, concurrency=2) as worker:
            job = long.enqueue()
            inside.wait_inside()
            bad.enqueue()
            assert entered.wait(LIMIT)
            (known,) = app.workers()
            until(lambda: app.workers()[0].lease_until > known.lease_until)  # renewed since
            inside.open()
            assert job.result(timeout=LIMIT) == "done"
        assert not worker.running
        assert [each.outcome for each in app.attempts(job.id)] == ["completed"]
    finally:
        gate.set()
        logger.removeHandler(handler)


def test_T7_a_subscriber_that_raises_changes_no_outcome(
    app: Towline, caplog: pytest.LogCaptureFixture
) -> None:
    kept = Kept()

    @app.on()
    def broken(event: Event) -> None:
        raise RuntimeError("no")

    app.on("attempt.ended")(kept)

    @app.task
    def double(n: int) -> int:
        return 2 * n

    jobs = app.enqueue_many([double.call(n) for n in range(20)])
    app.worker(drain=True).run()
    assert app.runner.events.flush(LIMIT)
    assert [app.job(job.id).output for job in jobs] == [2 * n for n in range(20)]
    assert len(kept) == 20


def test_events_of_the_application_hold_nothing_private(app: Towline) -> None:
    """Also where its worker logs what errors say."""
    kept = Kept()
    app.on(kept)

    @app.task(max_attempts=1)
    def bad() -> None:
        raise ValueError("a secret")

    bad.enqueue()
    app.worker(drain=True, error_text=True).run()
    assert app.runner.events.flush(LIMIT)
    (ended,) = kept.of("attempt.ended")
    assert (ended.error_type, ended.error) == ("builtins.ValueError", None)
    assert {event.text for event in kept.of("worker.changed")} == {None}
    assert {event.concurrency for event in kept.of("worker.changed")} == {8}


def test_fields_that_may_be_labels_are_fields() -> None:
    for event in EVENTS.values():
        assert set(event.labels) <= set(event.__struct_fields__), event.name
        assert set(event.private) <= set(event.__struct_fields__), event.name
        assert not set(event.labels) & {"job", "chain", "worker", "count", "duration", "error"}


def test_T5_what_completed_its_job_in_a_transaction_is_told_as_it_ended(app: Towline) -> None:
    ended = Kept()
    app.on("attempt.ended")(ended)

    @app.task
    def last() -> str:
        return "last"

    @app.task
    def first(goes_on: bool, ctx: Context = INJECTED) -> Next[str] | None:
        with ctx.transaction() as tx:
            tx.complete(last.then() if goes_on else "done")
        return None

    with app.worker():
        jobs = [first.enqueue(goes_on) for goes_on in (True, False)]
        for job in jobs:
            job.result(LIMIT)
        until(lambda: len(ended) == 3)
    told = {event.job: (event.outcome, event.accepted) for event in ended}
    assert [told[job.id] for job in jobs] == [("continued", True), ("completed", True)]
