"""T2: kinds, names, attributes and times of spans, on every slot, face and engine."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode

from tests.database import Database
from tests.telemetry.collected import Collected, attributes, ids, links, parent, traceparent
from tests.until import LIMIT
from towline import INJECTED, Context, DuplicateKey, Snooze, Towline
from towline.errors import InvalidSetting, TowlineError
from towline.integrations.opentelemetry import TowlineInstrumentor
from towline.otel import instrument, uninstrument
from towline.testing import drain

SYSTEM = {"messaging.system": "towline"}
ENQUEUE = {"messaging.operation.name": "enqueue", "messaging.operation.type": "send", **SYSTEM}
RUN = {"messaging.operation.name": "run", "messaging.operation.type": "process", **SYSTEM}


@pytest.mark.each_engine
@pytest.mark.parametrize("slot", ["thread", "loop"])
def test_T2_a_job_is_an_enqueue_and_a_run(app: Towline, collected: Collected, slot: str) -> None:
    collected.instrument(app)
    times: list[int] = []

    def plain(order: int) -> int:
        times.append(time.time_ns())
        time.sleep(0.01)
        times.append(time.time_ns())
        return order

    async def awaiting(order: int) -> int:
        return plain(order)

    function: Any = plain if slot == "thread" else awaiting
    pack = app.task(name="pack", queue="mail")(function)
    before = time.time_ns()
    with app.worker(name="w1") as worker:
        job = pack.enqueue(7)
        assert job.result(LIMIT) == 7
        stored = collected.span("enqueue pack")
        (ran,) = collected.wait_for("run pack")
    assert worker.name == "w1"
    assert stored.kind is SpanKind.PRODUCER
    assert attributes(stored) == ENQUEUE | {
        "messaging.destination.name": "mail",
        "towline.task": "pack",
        "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": str(job.chain_id),
        "towline.created": True,
    }
    assert ran.kind is SpanKind.CONSUMER
    said = attributes(ran)
    assert 0 <= said.pop("towline.waited") < LIMIT
    assert said == RUN | {
        "messaging.destination.name": "mail",
        "towline.task": "pack",
        "messaging.message.id": str(job.id),
        "messaging.message.conversation_id": str(job.chain_id),
        "towline.attempt": 1,
        "towline.position": 0,
        "towline.worker": "w1",
        "towline.outcome": "completed",
        "towline.accepted": True,
    }
    assert stored.status.status_code is ran.status.status_code is StatusCode.UNSET
    # The times are the operation's and the handler's: what comes after, its commit, is outside.
    assert in_order(before, stored.start_time, stored.end_time, time.time_ns())
    assert in_order(ran.start_time, *times, ran.end_time)
    assert ran.instrumentation_scope is not None
    assert ran.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"


def test_T2_a_span_ends_when_its_handler_did(app: Towline, collected: Collected) -> None:
    """However late it is told."""
    collected.instrument(app, metrics=False)
    told = threading.Event()
    app.runner.events.subscribe(lambda _: told.wait(LIMIT), ["attempt.started"])

    @app.task
    def one() -> None: ...

    with app.worker():
        one.enqueue().result(LIMIT)
        over = time.time_ns()
        told.set()
        (span,) = collected.wait_for("run one")
    assert in_order(span.start_time, span.end_time, over)


def in_order(*times: int | None) -> bool:
    known = [at for at in times if at is not None]
    return len(known) == len(times) and known == sorted(known)


@pytest.mark.parametrize("awaits", [False, True])
@pytest.mark.each_engine
def test_T2_on_every_face_the_context_is_stored_with_the_job(
    app: Towline, collected: Collected, database: Database, awaits: bool
) -> None:
    collected.instrument(app)

    @app.task
    def one() -> None: ...

    @app.task(queue="other")
    def two() -> None: ...

    def call(method: str, *args: Any, on: object = None, **rest: Any) -> Any:
        if awaits:
            return asyncio.run(getattr(app, f"a{method}")(*args, on=on, **rest))
        return getattr(app, method)(*args, on=on, **rest)

    with collected.tracer.start_as_current_span("request") as request:
        alike = call("enqueue_many", [one.call(), one.call()])
        queue = call("enqueue_many", [one.call(), two.using(queue="default").call()])
        mixed = call("enqueue_many", [one.call(), two.call()])
        call("enqueue_group", [one.call()])
        if not awaits:
            connection = database.connect()
            (mine,) = call("enqueue_many", [one.using(label="mine").call()], on=connection)
            connection.commit()
            connection.close()
            assert app.job(mine.id).label == "mine"
        list(app.map([]))
    names = ["enqueue one", "enqueue default", "enqueue", "enqueue default"]
    spans = collected.spans()
    assert [span.name for span in spans][: len(names)] == names
    for span, jobs in zip(spans, [alike, queue, mixed], strict=False):
        text = traceparent(span)
        assert {job.trace for job in jobs} == {text}
        assert {app.job(job.id).trace for job in jobs} == {text}
        assert attributes(span)["messaging.batch.message_count"] == 2
        assert parent(span) == (request.get_span_context().trace_id, ids_of(request))
    assert "towline.task" not in attributes(spans[1])
    assert "messaging.destination.name" not in attributes(spans[2])


def ids_of(span: Any) -> int:
    number: int = span.get_span_context().span_id
    return number


def test_T2_what_met_another_links_to_it(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.task
    def one() -> None: ...

    one.using(key="k").enqueue()
    one.using(key="k").enqueue()
    with pytest.raises(DuplicateKey):
        one.using(key="k", on_conflict="raise").enqueue()
    first, met, refused = collected.spans("enqueue one")
    assert attributes(met)["towline.created"] is False
    assert links(met) == [ids(first)]
    assert attributes(refused)["error.type"] == "towline.DuplicateKey"
    assert refused.status.status_code is StatusCode.ERROR
    assert refused.status.description is None
    assert not refused.events


def test_T2_outcomes(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.task(max_attempts=2, backoff=lambda _: 0)
    def fails() -> None:
        raise ValueError("what nobody should read")

    @app.task
    def snoozes(ctx: Context = INJECTED) -> None:
        if ctx.attempt == 1:
            raise Snooze(0)

    @app.task
    def commits(ctx: Context = INJECTED) -> None:
        with ctx.transaction() as tx:
            tx.complete(None)

    jobs = [fails.enqueue(), snoozes.enqueue(), commits.enqueue()]
    with app.worker():
        for job in jobs:
            try:
                job.result(LIMIT)
            except TowlineError:
                pass
        failed = collected.wait_for("run fails", 2)
        snoozed = collected.wait_for("run snoozes", 2)
        (inside,) = collected.wait_for("run commits")
    for span in failed:
        assert span.status.status_code is StatusCode.ERROR
        assert (span.status.description, span.events) == (None, ())
        assert attributes(span)["error.type"] == "builtins.ValueError"
        assert attributes(span)["towline.outcome"] == "failed"
    assert [attributes(span)["towline.outcome"] for span in snoozed] == ["snoozed", "completed"]
    assert {span.status.status_code for span in snoozed} == {StatusCode.UNSET}
    assert attributes(inside)["towline.accepted"] is True


def test_T2_a_chunk_has_a_span_for_each_item(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.chunk(size=3, wait=30)
    def index(numbers: list[int]) -> None:
        with collected.tracer.start_as_current_span("inside"):
            pass

    jobs = app.enqueue_many([index.call(number) for number in range(3)])
    with app.worker():
        for job in jobs:
            job.result(LIMIT)
        runs = collected.wait_for("run index", 3)
    assert sorted(int(attributes(s)["messaging.message.id"]) for s in runs) == [j.id for j in jobs]
    assert parent(collected.span("inside")) in [ids(run) for run in runs]


def test_T2_a_drain_makes_spans_too(app: Towline, collected: Collected) -> None:
    collected.instrument(app)

    @app.task
    def one() -> int:
        return 1

    one.enqueue()
    drain(app)
    assert attributes(collected.span("run one"))["towline.outcome"] == "completed"


def test_a_second_call_changes_nothing_and_uninstrument_ends_it(
    app: Towline, collected: Collected
) -> None:
    collected.instrument(app)
    before = app.tracing
    instrument(app, relation="child")
    assert app.tracing is before

    @app.task
    def one() -> None: ...

    one.enqueue()
    uninstrument(app)
    job = one.enqueue()
    uninstrument(app)
    assert job.trace is None
    assert len(collected.spans()) == 1
    assert "messaging.client.sent.messages" not in collected.metrics() or [
        number for _, number in collected.metrics()["messaging.client.sent.messages"]
    ] == [1]


def test_tracers_that_are_set_later_are_used(
    app: Towline, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The global ones, as a program sets them up after its imports."""
    instrument(app, metrics=False)

    @app.task
    def one() -> None: ...

    with app.worker():
        one.enqueue().result(LIMIT)
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", collected.tracers)
        one.enqueue().result(LIMIT)
    assert [span.name for span in collected.watch(app).spans()] == ["enqueue one", "run one"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"relation": "parent"},
        {"baggage": "tenant"},
        {"baggage": [1]},
        {"baggage": [""]},
        {"metrics": 1},
        {"cluster": True, "metrics": False},
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(app: Towline, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        instrument(app, **wrong)
    assert app.tracing is None
    with pytest.raises(InvalidSetting):
        instrument("shop:app")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def test_the_instrumentor_reaches_apps_before_and_after_it(
    make_app: Callable[..., Towline], collected: Collected
) -> None:
    """As `opentelemetry-instrument` and programs of many libraries call it."""
    first, instrumentor = make_app(), TowlineInstrumentor()
    instrumentor.instrument(tracer_provider=collected.tracers, metrics=False)
    second = make_app()
    assert first.tracing is not None
    assert second.tracing is not None
    instrumentor.uninstrument()
    assert [app.tracing for app in (first, second, make_app())] == [None] * 3
