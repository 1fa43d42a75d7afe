"""T4: what a handler does hangs below its attempt, and only the baggage that was named travels."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from opentelemetry import baggage
from opentelemetry import context as contexts
from opentelemetry.trace import get_current_span

from tests.speed import by_speed
from tests.telemetry.collected import Collected, attributes, ids, parent
from tests.until import LIMIT
from towline import Next, Towline
from towline.telemetry.otel.context import context_of
from towline.testing import drain

AT_ONCE = by_speed(50, 500)


def test_T4_fifty_at_once_on_one_loop_are_kept_apart(app: Towline, collected: Collected) -> None:
    collected.instrument(app)
    met = asyncio.Barrier(50)

    @app.task
    async def each(number: int) -> None:
        await met.wait()  # all of them are inside
        with collected.tracer.start_as_current_span("inside") as span:
            span.set_attribute("number", number)
            await asyncio.sleep(0)
            await leaf.aenqueue(number)

    @app.task
    def leaf(number: int) -> None: ...

    jobs = app.enqueue_many([each.call(number) for number in range(AT_ONCE)])
    with app.worker(concurrency=50):
        for job in jobs:
            job.result(LIMIT)
        runs = collected.wait_for("run each", AT_ONCE)
        collected.wait_for("run leaf", AT_ONCE)
    by_job = {int(attributes(run)["messaging.message.id"]): run for run in runs}
    inside = {attributes(span)["number"]: span for span in collected.spans("inside")}
    for number, job in enumerate(jobs):
        assert parent(inside[number]) == ids(by_job[job.id])
    stored = [parent(span) for span in collected.spans("enqueue leaf")]
    assert sorted(map(str, stored)) == sorted(str(ids(span)) for span in inside.values())


class Kept(logging.Handler):
    """As OpenTelemetry's own: it asks what is current where a line is written."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[str, tuple[int, int]]] = []

    def emit(self, record: logging.LogRecord) -> None:
        here = get_current_span().get_span_context()
        self.lines.append((record.getMessage(), (here.trace_id, here.span_id)))


@pytest.fixture
def lines() -> Any:
    handler = Kept()
    logger = logging.getLogger("towline")
    logger.addHandler(handler)
    yield handler.lines
    logger.removeHandler(handler)


def test_T4_lines_about_an_attempt_are_its_spans(
    app: Towline, collected: Collected, lines: list[tuple[str, tuple[int, int]]]
) -> None:
    """Those of its handler, and ours, which another thread writes."""
    collected.instrument(app)

    @app.task(max_attempts=1)
    def fails() -> None:
        logging.getLogger("towline.shop").warning("inside")
        raise ValueError

    @app.task
    def fine() -> None: ...

    fails.enqueue()
    with app.worker():
        (span,) = collected.wait_for("run fails")
        fine.enqueue().result(LIMIT)
    said = dict(lines)
    assert said["inside"] == ids(span)
    assert said["attempt 1 of job 1 (fails): ValueError; the job has failed"] == ids(span)
    assert get_current_span().get_span_context().is_valid is False


def with_baggage(**entries: str) -> Any:
    context = contexts.get_current()
    for key, value in entries.items():
        context = baggage.set_baggage(key, value, context)
    return contexts.attach(context)


@pytest.mark.each_engine
def test_T4_named_baggage_arrives_and_no_other(app: Towline, collected: Collected) -> None:
    collected.instrument(app, baggage=("tenant", "Größe"))
    seen: list[dict[str, object]] = []

    @app.task
    def first() -> Next[None]:
        seen.append(dict(baggage.get_all()))
        leaf.enqueue()
        return second.then()

    @app.task
    def second() -> None:
        seen.append(dict(baggage.get_all()))

    @app.task
    def leaf() -> None:
        seen.append(dict(baggage.get_all()))

    token = with_baggage(tenant="a, b;c=ü", secret="canary", Größe="7")
    job = first.enqueue()
    contexts.detach(token)
    with app.worker():
        job.result(LIMIT)
        collected.wait_for("run leaf")
        collected.wait_for("run second")
    assert seen == [{"tenant": "a, b;c=ü", "Größe": "7"}] * 3
    assert "canary" not in (app.runner.run(app.runner.store.job(job.id)).trace or "")
    assert job.trace is not None
    assert job.trace.startswith("00-")  # the traceparent alone


def test_T4_baggage_that_another_process_named_is_left_out() -> None:
    text = json.dumps({"traceparent": f"00-{7:032x}-{9:016x}-01", "baggage": "tenant=a,other=b"})
    _, context = context_of(text, ("tenant",))
    assert dict(baggage.get_all(context)) == {"tenant": "a"}
    assert dict(baggage.get_all(context_of(text, ())[1])) == {}


def test_T4_baggage_has_512_bytes(app: Towline, collected: Collected) -> None:
    collected.instrument(app, baggage=("a", "long", "b"))
    seen: list[dict[str, object]] = []

    @app.task
    def one() -> None:
        seen.append(dict(baggage.get_all()))

    token = with_baggage(a="1", long="x" * 510, b="2")
    one.enqueue()
    contexts.detach(token)
    drain(app)
    assert seen == [{"a": "1", "b": "2"}]


def test_T4_another_propagator_of_the_application_changes_nothing(
    app: Towline, collected: Collected
) -> None:
    """B3 for what goes over the wire; between jobs it is W3C."""
    from opentelemetry import propagate
    from opentelemetry.propagators.composite import CompositePropagator

    before = propagate.get_global_textmap()
    propagate.set_global_textmap(CompositePropagator([]))
    try:
        collected.instrument(app, relation="child")

        @app.task
        def one() -> None: ...

        one.enqueue()
        drain(app)
        assert parent(collected.span("run one")) == ids(collected.span("enqueue one"))
    finally:
        propagate.set_global_textmap(before)
