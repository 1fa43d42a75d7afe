"""R4: what a worker does for all between its turns must be quick: renewals wait for it."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from tests.database import Database
from tests.kit import new
from towline import Towline
from towline.store.retention import KeepFor
from towline.worker.upkeep import Prune


def prune(app: Towline) -> float:
    """One batch, as a worker does it; when the next is due."""
    duty = Prune(app.worker().pump.turns)
    duty.do(time.monotonic())
    return duty.at


def test_vacuuming_is_left_to_the_server(
    app: Towline, postgres: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VACUUM of large tables may take longer than a lease."""
    monkeypatch.setattr(
        app.runner.engine, "vacuum", lambda pages: pytest.fail("it waits for a VACUUM")
    )
    prune(app)


def test_free_pages_of_a_file_are_given_back_some_at_a_time(
    app: Towline, sqlite: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(app.runner.engine, "vacuum", asked.append)
    prune(app)
    assert asked == [1000]


def test_pruning_goes_on_at_once_while_there_is_something_left_and_a_batch_at_a_time(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R5, finding P7: no rate of jobs is too high for it, and no turn waits for more than one."""
    monkeypatch.setattr("towline.store.retention.PRUNE_JOBS", 2)
    app.settings = replace(app.settings, keep=KeepFor(0, 0, 0))
    for record, _ in app.runner.run(app.runner.store.enqueue([new() for _ in range(5)])):
        app.complete(record.id)
    left = []
    for _ in range(3):
        again_at = prune(app)
        left.append((len(app.chains()), again_at < time.monotonic() + 10))
    assert left == [(3, True), (1, True), (0, False)]
