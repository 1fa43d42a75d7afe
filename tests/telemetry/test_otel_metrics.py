"""Metrics by OpenTelemetry: the table of the page, and T10: few values, whatever comes."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.telemetry.collected import Collected
from tests.until import LIMIT, until
from towline import Towline
from towline.errors import TowlineError
from towline.otel import instrument, uninstrument
from towline.telemetry.otel.instruments import SECONDS

PLACE = {"messaging.destination.name": "default", "towline.task": "add"}
SYSTEM = {"messaging.system": "towline"}


@pytest.mark.each_engine
def test_T2_T12_what_happened_is_counted(app: Towline, collected: Collected) -> None:
    collected.instrument(app, cluster=True)

    @app.task
    def add(a: int) -> int:
        return a

    @app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError

    with app.worker(concurrency=3):
        for job in app.enqueue_many([add.call(n) for n in range(5)]):
            job.result(LIMIT)
        add.using(key="k", delay=60).enqueue(1)
        add.using(key="k", delay=60).enqueue(1)
        with pytest.raises(TowlineError):
            fails.enqueue().result(LIMIT)
        with pytest.raises(TowlineError):
            add.using(key="k", on_conflict="raise").enqueue(1)
        collected.wait_for("run fails")
        found = collected.metrics()
    assert sorted(map(str, found["messaging.client.sent.messages"])) == sorted(
        map(
            str,
            [
                (sent(PLACE, True), 6),
                (sent(PLACE, False), 1),
                (sent({**PLACE, "towline.task": "fails"}, True), 1),
                ({**SYSTEM, "messaging.operation.name": "enqueue",
                  "error.type": "towline.DuplicateKey"}, 1),
            ],
        )
    )  # fmt: skip
    claim = {**SYSTEM, "messaging.operation.name": "claim"}
    assert ({**claim, **PLACE}, 5) in found["messaging.client.consumed.messages"]
    done = {**SYSTEM, **PLACE, "towline.outcome": "completed"}
    assert (done, 5) in found["messaging.process.duration"]
    error = {"towline.outcome": "failed", "error.type": "builtins.ValueError"}
    failed = {**SYSTEM, **PLACE, "towline.task": "fails", **error}
    assert (failed, 1) in found["messaging.process.duration"]
    assert ({**SYSTEM, **PLACE}, 5) in found["towline.job.wait.duration"]
    operations = found["messaging.client.operation.duration"]
    assert ({**SYSTEM, "messaging.operation.name": "enqueue"}, 4) in operations
    slots = {said["towline.state"]: number for said, number in found["towline.worker.slots"]}
    assert slots["busy"] + slots["free"] == 3
    assert found["towline.leases.lost"] == [(SYSTEM, 0)]
    assert found["towline.events.dropped"] == [(SYSTEM, 0)]
    assert found["towline.workers"] == [(SYSTEM, 1)]
    ended = {**SYSTEM, **PLACE, "towline.outcome": "completed"}
    assert (ended, 5) in found["towline.jobs.ended"]
    queue = {**SYSTEM, "messaging.destination.name": "default"}
    assert ({**queue, "towline.state": "scheduled"}, 1) in found["towline.queue.jobs"]
    assert found["towline.queue.age"] == [(queue, 0.0)]


def sent(place: dict[str, str], created: bool) -> dict[str, Any]:
    said = {**SYSTEM, "messaging.operation.name": "enqueue", **place}
    return {**said, "towline.created": created}


def test_buckets_are_those_of_the_conventions_and_longer_ones(
    app: Towline, collected: Collected
) -> None:
    collected.instrument(app)

    @app.task
    def one() -> None: ...

    with app.worker():
        one.enqueue().result(LIMIT)
        collected.wait_for("run one")
        assert '"explicit_bounds": [ 0.005, 0.01, 0.025, ' in " ".join(collected.text().split())
    assert SECONDS[-5:] == (30.0, 60.0, 300.0, 1800.0, 3600.0)


def test_metrics_false_counts_nothing(app: Towline, collected: Collected) -> None:
    collected.instrument(app, metrics=False)

    @app.task
    def one() -> None: ...

    one.enqueue()
    assert collected.metrics() == {}


def test_apps_of_a_process_are_one(
    make_app: Any, collected: Collected, caplog: pytest.LogCaptureFixture
) -> None:
    """Two of them, one instrumented twice over: no instrument is made twice."""
    first, second = make_app(), make_app()
    for app in (first, second):
        app.task(lambda: None, name="one").queue = "default"
    with caplog.at_level(logging.WARNING, "opentelemetry"):
        for app in (first, second):
            collected.instrument(app)
        uninstrument(second)
        collected.instrument(second)
        first.registry["one"].enqueue()
        assert first.runner.events.flush(LIMIT)
        second.registry["one"].enqueue()
        counts = collected.metrics()["messaging.client.sent.messages"]
    assert [number for _, number in counts] == [2]
    assert not caplog.records


def test_T10_many_queues_and_tasks_are_few_values(app: Towline, collected: Collected) -> None:
    """The text of 100,000 is tried in tests of labels; here that all of it goes through them."""
    collected.instrument(app)

    @app.task
    def one() -> None: ...

    app.enqueue_many([one.using(queue=f"q{n}").call() for n in range(120)])
    app.named("elsewhere").enqueue()
    counts = collected.metrics()["messaging.client.sent.messages"]
    queues = {said["messaging.destination.name"] for said, _ in counts}
    assert len(queues) == 101
    assert "_other" in queues
    assert sum(number for _, number in counts) == 121


def test_meters_that_are_set_later_count(app: Towline, monkeypatch: pytest.MonkeyPatch) -> None:
    """The global ones, as a program sets them up after its imports."""
    from opentelemetry.metrics import _internal

    instrument(app)

    @app.task
    def one() -> None: ...

    one.enqueue()
    assert not app.runner.events.wants_operations  # nobody pays for what nobody collects
    reader = InMemoryMetricReader()
    meters = MeterProvider([reader], shutdown_on_exit=False)
    monkeypatch.setattr(_internal, "_METER_PROVIDER", meters)
    from towline.telemetry.otel import metrics

    monkeypatch.setattr(metrics, "_global", [])
    one.enqueue()
    app.runner.events.flush(LIMIT)
    data = until(reader.get_metrics_data)
    assert "messaging.client.sent.messages" in data.to_json()
    uninstrument(app)
    meters.shutdown()
