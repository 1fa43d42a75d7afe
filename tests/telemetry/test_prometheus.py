"""Metrics for Prometheus, read by the client's own parsers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client import Counter as ClientCounter
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from tests.speed import by_speed
from tests.until import LIMIT, until
from towline import Fail, Towline
from towline.errors import InvalidSetting
from towline.events.kinds import JobEnqueued
from towline.operation import Op
from towline.prometheus import Metrics
from towline.store.turn import promote
from towline.telemetry import cluster, labels
from towline.telemetry.prometheus import catalogue
from towline.telemetry.prometheus.pages import merged

Sample = tuple[str, tuple[tuple[str, str], ...]]
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def samples(metrics: Metrics) -> dict[Sample, float]:
    """What a scrape shows, once by each parser."""
    text = metrics.page()[0].decode()
    found = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }
    page, kind = metrics.page(OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    assert page.endswith(b"# EOF\n")
    families = list(parse_openmetrics(page.decode()))  # type: ignore[no-untyped-call]
    assert len(families) == len(list(parse_text(text)))
    return found


def value(found: dict[Sample, float], name: str, **labels: str) -> float:
    return found[name, tuple(sorted(labels.items()))]


@pytest.fixture
def app(make_app: Callable[..., Towline]) -> Towline:
    return make_app()


@pytest.fixture
def metrics(app: Towline) -> Metrics:
    return Metrics(app, registry=CollectorRegistry(), cluster=True)


HOSTILE = 'a"b\\c{d="e"}, # HELP é 日本'


def test_T13_a_scrape_passes_the_parsers_of_the_client(app: Towline, metrics: Metrics) -> None:
    """With names that a line could be broken with."""

    @app.task(name=HOSTILE, queue=HOSTILE)
    def double(n: int) -> int:
        if n == 3:
            raise Fail("no")
        return 2 * n

    for n in range(4):
        double.enqueue(n)
    double.using(key="k", delay=600).enqueue(9)
    double.using(key="k").enqueue(9)
    app.pause(HOSTILE)
    app.resume(HOSTILE)
    app.worker(drain=True).run()
    app.pause(HOSTILE)
    assert app.runner.events.flush(LIMIT)
    found = samples(metrics)
    place = {"queue": HOSTILE, "task": HOSTILE}
    for name in ("towline_attempts_total", "towline_jobs_ended_total"):
        assert value(found, name, **place, outcome="completed") == 3
        assert value(found, name, **place, outcome="failed") == 1
    assert value(found, "towline_jobs_enqueued_total", **place, created="true") == 5
    assert value(found, "towline_jobs_enqueued_total", **place, created="false") == 1
    for name in ("attempt_seconds", "wait_seconds", "job_run_seconds"):
        assert value(found, f"towline_{name}_count", **place) == 4
        assert value(found, f"towline_{name}_bucket", **place, le="+Inf") == 4
    assert value(found, "towline_queue_jobs", queue=HOSTILE, state="scheduled") == 1
    assert value(found, "towline_queue_jobs", queue=HOSTILE, state="pending") == 0
    assert value(found, "towline_queue_paused", queue=HOSTILE) == 1
    assert value(found, "towline_operation_seconds_count", operation="enqueue") == 6
    assert value(found, "towline_up") == 1
    described = {name for metric in catalogue.METRICS for name in metric.series}
    assert {name for name, _ in found} <= described
    assert described - {name for name, _ in found} == {
        "towline_attempts_refused_total", "towline_operation_errors_total",
    }  # fmt: skip


def test_the_age_of_a_queue_is_that_of_its_oldest_pending_job(make_app: Any, clock: Any) -> None:
    app: Towline = make_app(clock=clock)

    @app.task
    def double(n: int) -> int:
        return 2 * n

    double.using(delay=30).enqueue(1)
    double.enqueue(2)
    clock.advance(50)
    app.runner.run(app.runner.store.claim(1, [], 0))
    found = samples(Metrics(app, registry=CollectorRegistry(), process=False, cluster=True))
    assert value(found, "towline_queue_age_seconds", queue="default") == 50


def test_slots_are_busy_and_free(app: Towline, metrics: Metrics) -> None:
    inside, go = threading.Semaphore(0), threading.Event()

    @app.task
    def hold() -> None:
        inside.release()
        go.wait(LIMIT)

    with app.worker(concurrency=3):
        app.enqueue_many([hold.call(), hold.call()])
        assert inside.acquire(timeout=LIMIT)
        assert inside.acquire(timeout=LIMIT)
        found = samples(metrics)
        go.set()
    assert value(found, "towline_slots", state="busy") == 2
    assert value(found, "towline_slots", state="free") == 1
    assert value(found, "towline_workers") == 1
    assert value(samples(metrics), "towline_slots", state="free") == 0


def test_T10_100_000_queue_names_are_101_label_values(
    app: Towline, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    app.runner.events.publish_all(
        [
            JobEnqueued(
                task=f"task {n}", queue=f"queue {n}", created=True, connection="own", count=1,
                jobs=(), duration=0.0,
            )
            for n in range(100_000)
        ]
    )  # fmt: skip
    assert app.runner.events.flush(LIMIT)
    found = samples(metrics)
    counted = {
        dict(given)["queue"]: number
        for (name, given), number in found.items()
        if name == "towline_jobs_enqueued_total"
    }
    assert len(counted) == 101
    assert counted[labels.OTHER] == 100_000 - 100
    tasks = {dict(given).get("task") for _, given in found}
    assert tasks <= {None, labels.OTHER}, "no task of these is known here"
    said = [record.getMessage() for record in caplog.records if "_other" in record.getMessage()]
    assert len(said) == 1


def test_T10_what_the_database_knows_is_bounded_too(app: Towline, metrics: Metrics) -> None:
    number = by_speed(150, 5000)

    @app.task
    def double(n: int) -> int:
        return 2 * n

    app.enqueue_many([double.using(queue=f"q{n}").call(n) for n in range(number)])
    until(lambda: b"towline_queue_jobs{" in metrics.page()[0])
    found = samples(metrics)
    pending = {
        dict(given)["queue"]: number
        for (name, given), number in found.items()
        if name == "towline_queue_jobs" and dict(given)["state"] == "pending"
    }
    assert len(pending) == 101
    assert sum(pending.values()) == number


def forget_look(metrics: Metrics) -> None:
    """As if a few seconds had passed."""
    assert metrics._cluster is not None
    metrics._cluster.cluster._looked_at = -cluster.KEEP


def test_one_look_serves_all_scrapes_of_a_moment(app: Towline, metrics: Metrics) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    looks = []
    app.on("operation.ended")(lambda e: looks.append(e.operation))
    double.enqueue(1)
    assert value(samples(metrics), "towline_queue_jobs", queue="default", state="pending") == 1
    double.enqueue(1)
    assert value(samples(metrics), "towline_queue_jobs", queue="default", state="pending") == 1
    assert app.runner.events.flush(LIMIT)
    assert Counter(looks)["metrics"] == 1
    forget_look(metrics)
    assert value(samples(metrics), "towline_queue_jobs", queue="default", state="pending") == 2


def test_sums_of_old_minutes_are_kept_and_nothing_is_counted_twice(
    make_app: Any, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes become old between the looks, and old ones are added up again."""
    app: Towline = make_app(clock=clock)
    metrics = Metrics(app, registry=CollectorRegistry(), process=False, cluster=True)

    @app.task
    def double(n: int) -> int:
        return 2 * n

    for number in range(1, 9):
        if number == 5:
            monkeypatch.setattr(cluster, "ADD_UP_EVERY", 0.0)
        app.complete(double.enqueue(number).id, number)
        clock.advance(7 * 60 + 13)
        forget_look(metrics)
        found = samples(metrics)
        ended = {"queue": "default", "task": "double", "outcome": "completed"}
        assert value(found, "towline_jobs_ended_total", **ended) == number


def test_a_registry_has_one_app_and_gives_it_back(make_app: Callable[..., Towline]) -> None:
    one, two = make_app(), make_app()
    with closing(Metrics(one)) as metrics:
        assert metrics.registry is REGISTRY
        with pytest.raises(InvalidSetting, match="registry"):
            Metrics(two)
        assert two.runner.events.wanted == make_app().runner.events.wanted
    with closing(Metrics(two)):
        pass
    with pytest.raises(InvalidSetting):
        Metrics(one, process=False)


def test_T13_pages_of_processes_become_one(make_app: Callable[..., Towline]) -> None:
    pages = {}
    for number in (1, 2):
        registry = CollectorRegistry()
        mine = ClientCounter("mine", "Of the application.", ["process"], registry=registry)
        mine.labels("x").inc(number)
        pages[number] = Metrics(make_app(), registry=registry).page()[0]
    page, kind = merged(pages)
    assert kind.startswith("text/plain")
    families = {family.name: family for family in parse_text(page.decode())}
    assert page.decode().count("# TYPE towline_slots gauge") == 1
    found = {tuple(sorted(s.labels.items())): s.value for s in families["mine"].samples}
    assert found == {
        (("exported_process", "x"), ("process", "1")): 1.0,
        (("exported_process", "x"), ("process", "2")): 2.0,
    }
    assert {s.labels["process"] for s in families["towline_slots"].samples} == {"1", "2"}


def test_the_age_of_a_queue_counts_from_when_its_jobs_could_run(make_app: Any, clock: Any) -> None:
    """Neither the one that has just become due nor the one that has come back waits longest."""
    app: Towline = make_app(clock=clock)

    @app.task
    def double(n: int) -> int:
        return 2 * n

    back = double.enqueue(0)
    back.cancel()
    double.using(delay=3600).enqueue(1)
    double.enqueue(2)
    clock.advance(3600)
    back.retry()
    app.runner.run(Op("promote", promote, app.runner.store))
    found = samples(Metrics(app, registry=CollectorRegistry(), process=False, cluster=True))
    assert value(found, "towline_queue_jobs", queue="default", state="pending") == 3
    assert value(found, "towline_queue_age_seconds", queue="default") == 3600


def test_a_pause_of_every_queue_is_one_of_each(app: Towline) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    send.enqueue()
    app.pause("*")
    found = samples(Metrics(app, registry=CollectorRegistry(), process=False, cluster=True))
    assert value(found, "towline_queue_paused", queue="mail") == 1
