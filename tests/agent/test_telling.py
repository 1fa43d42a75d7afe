"""What telemetry is told of an agent's writes: the same as of anybody's."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.trace import SpanKind, StatusCode

from tests.agent.conftest import Visit
from tests.telemetry.collected import Collected, attributes, ids, links, traceparent
from tests.until import LIMIT
from towline import Towline

ONE = {"task": "send", "arguments": {"tenant": "a"}, "request_id": "r-1"}


def test_T2_the_events_of_writes_name_the_client_and_the_queue(visit: Visit, app: Towline) -> None:
    told: list[Any] = []
    app.on("job.controlled", "job.enqueued")(told.append)
    visitor = visit()
    job = visitor.get("enqueue", **ONE, delay=3600)["id"]
    for tool in ("run_job", "cancel_job", "retry_job"):
        visitor.get(tool, id=job)
    for tool in ("pause_queue", "resume_queue"):
        visitor.get(tool, queue="mail")
    token = visitor.get("cancel_jobs", filter={"task": "send"})["confirm"]
    visitor.get("cancel_jobs", filter={"task": "send"}, confirm=token)
    assert app.runner.events.flush(LIMIT)
    stored, *changed = told
    assert (stored.name, stored.task, stored.queue, stored.jobs) == (
        "job.enqueued", "send", "mail", (int(job),),
    )  # fmt: skip
    assert [(each.operation, each.queue, each.count) for each in changed] == [
        ("run_now", "mail", 1), ("cancel", "mail", 1), ("retry", "mail", 1),
        ("pause", "mail", 1), ("resume", "mail", 1), ("bulk", None, 1),
    ]  # fmt: skip
    assert {each.by for each in changed} == {"mcp:tester"}


@pytest.mark.each_engine
def test_T2_a_job_of_an_agent_has_a_span_that_created_it(visit: Visit, app: Towline) -> None:
    with Collected() as collected:
        collected.instrument(app)
        job = visit().get("enqueue", **ONE)["id"]
        made = collected.span("enqueue send")
        assert made.kind is SpanKind.PRODUCER
        assert attributes(made)["messaging.message.id"] == job
        assert attributes(made)["towline.created"] is True
        assert app.job(int(job)).trace == traceparent(made)
        assert visit().get("enqueue", **ONE)["id"] == job
        _, again = collected.spans("enqueue send")
        assert attributes(again)["towline.created"] is False
        assert links(again) == [ids(made)]


def test_T2_a_refused_write_is_an_error_of_its_span(visit: Visit, app: Towline) -> None:
    with Collected() as collected:
        collected.instrument(app)
        visit().get("enqueue", **ONE)
        visit().refusal("enqueue", **{**ONE, "task": "add", "arguments": {"a": 1}})
        assert collected.span("enqueue add").status.status_code is StatusCode.ERROR
        assert len(app.jobs()) == 1
