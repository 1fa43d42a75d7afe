"""T4: what a handler logs in its process is logged here, as its attempt's; and a process that is
not instrumented loses no thread."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.telemetry.collected import Collected, ids, parent
from tests.telemetry.test_inside import Kept
from tests.until import LIMIT

MODULE = "tests.telemetry.shop"


@pytest.fixture
def shop(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("TOWLINE_URL", url)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    module = importlib.import_module(MODULE)
    yield module
    module.app.close()


def test_T4_lines_from_a_process_and_its_continuation(shop: Any, collected: Collected) -> None:
    collected.instrument(shop.app)
    handler = Kept()
    logging.getLogger().addHandler(handler)  # lines of processes go to the root
    job = shop.logs.enqueue()
    with shop.app.worker(concurrency=2):
        assert job.result(LIMIT) == 2
        (ran,) = collected.wait_for("run logs")
        (following,) = collected.wait_for("run follows")
    logging.getLogger().removeHandler(handler)
    assert dict(handler.lines)["from the process"] == ids(ran)
    assert parent(following) == ids(ran)


def test_T2_in_a_process_a_span_is_the_handlers_time(shop: Any, collected: Collected) -> None:
    """Quick ones are sent to a process several at once, but none whose span would wait there."""
    collected.instrument(shop.app, metrics=False)
    jobs = shop.app.enqueue_many([shop.quick.call() for _ in range(40)])
    with shop.app.worker(concurrency=1, prefetch=20):
        for job in jobs:
            job.result(LIMIT)
        spans = collected.wait_for("run quick", len(jobs))
    times = sorted((span.start_time or 0, span.end_time or 0) for span in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(times))
