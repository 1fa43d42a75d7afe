"""The page of metrics of workers in one process: whose it is, and what it costs a probe."""

from __future__ import annotations

import http.client
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import REGISTRY, CollectorRegistry, generate_latest

from tests.until import until
from tests.worker.gate import LIMIT
from towline import Towline
from towline.prometheus import Metrics
from towline.worker import Worker
from towline.worker.health import port as ports

HERE = "127.0.0.1:0"


def asked(worker: Worker, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(worker.health_address or "", timeout=LIMIT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def test_workers_of_one_process_share_metrics_until_the_last_stops(app: Towline) -> None:
    @app.task
    def double(n: int) -> int:
        return 2 * n

    def page(worker: Worker) -> str:
        assert double.enqueue(1).result(timeout=LIMIT) == 2
        assert app.runner.events.flush(LIMIT)
        return asked(worker, "/metrics")[1]

    counted = 'towline_attempts_total{outcome="completed",queue="default",task="double"}'
    for _ in range(2):  # what comes after the last begins anew
        with app.worker(health=HERE) as first, app.worker(health=HERE) as second:
            assert f"{counted} 1.0" in page(first)
            first.stop()
            assert f"{counted} 2.0" in page(second)
        assert "towline" not in generate_latest().decode()


def test_metrics_of_the_application_outlive_its_workers(app: Towline) -> None:
    metrics = Metrics(app, registry=CollectorRegistry())
    for _ in range(2):
        with app.worker(health=HERE) as worker:
            assert "towline_slots" in asked(worker, "/metrics")[1]
    assert "towline_slots" in metrics.page()[0].decode()


def test_metrics_that_the_application_makes_meanwhile_close_no_others(app: Towline) -> None:
    with app.worker(health=HERE) as first:
        metrics = Metrics(app, registry=CollectorRegistry())
        with app.worker(health=HERE) as second:
            assert "towline_slots" in asked(second, "/metrics")[1]
        assert "towline_slots" in asked(first, "/metrics")[1]
    assert "towline" not in generate_latest().decode()
    assert "towline_slots" in metrics.page()[0].decode()


class Bad:
    """A collector of the application's own."""

    def __init__(self) -> None:
        self.raises = False
        self.under_way, self.gate = threading.Semaphore(0), threading.Event()

    def describe(self) -> list[Any]:
        return []

    def collect(self) -> list[Any]:
        if self.raises:
            raise RuntimeError("not today")
        self.under_way.release()
        self.gate.wait(LIMIT)
        return []


@pytest.fixture
def bad(app: Towline) -> Iterator[Bad]:
    collector = Bad()
    REGISTRY.register(collector)
    yield collector
    collector.gate.set()
    REGISTRY.unregister(collector)


def test_W7_a_collector_that_raises_is_said_once(
    app: Towline, bad: Bad, trouble: list[logging.LogRecord]
) -> None:
    bad.raises = True
    with app.worker(health=HERE) as worker:
        for _ in range(3):
            assert asked(worker, "/metrics")[0] == 500
            assert asked(worker, "/livez")[0] == 200
    assert [each.getMessage() for each in trouble] == ["the page of metrics could not be made"]


def test_W7_pages_that_hang_leave_places_for_probes(app: Towline, bad: Bad) -> None:
    def hang() -> None:
        try:
            asked(worker, "/metrics")
        except (OSError, http.client.HTTPException):  # it is cut off
            pass

    with app.worker(health=HERE) as worker:
        hanging = [threading.Thread(target=hang, daemon=True) for _ in range(ports.MOST_PAGES)]
        for each in hanging:
            each.start()
            assert bad.under_way.acquire(timeout=LIMIT)
        for _ in range(ports.MOST):
            assert asked(worker, "/metrics")[0] == 503
        assert asked(worker, "/livez")[0] == 200
        bad.gate.set()
        for each in hanging:
            each.join(LIMIT)
        until(lambda: asked(worker, "/metrics")[0] == 200)
