"""What follows from one end is linear in its dependents (B7, L2, finding P3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.kit import new
from tests.postgres.conftest import on_newest
from towline import Towline
from towline.operation import Op, Steps
from towline.records import NewBlocker
from towline.store.ground import as_json

Connect = Callable[..., psycopg.Connection[Any]]


@on_newest
@pytest.mark.parametrize("statement", ["hold_blocked", "hold_keys_now"])
def test_P3_dependents_are_held_by_a_hash_and_not_each_compared_with_each(
    app: Towline, connect: Connect, statement: str
) -> None:
    ((first, _),) = app.runner.run(app.runner.store.enqueue([new()]))
    behind = app.runner.run(
        app.runner.store.enqueue([new("d", after=[first.id], key=f"k{n}") for n in range(500)])
    )
    ids = as_json(record.id for record, _ in behind)
    text = getattr(app.runner.store.sql, statement).format
    connection = connect()
    connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    rows = connection.execute(
        f"EXPLAIN (ANALYZE, VERBOSE, TIMING OFF) {text}".encode(), [ids] * text.count("%s")
    )
    plan = "\n".join(line for (line,) in rows)
    removed = [int(line.split(":")[1]) for line in plan.splitlines() if "Rows Removed" in line]
    assert sum(removed) <= 1000, plan
    assert "hashed SubPlan" in plan


def counted(op: Op[Any]) -> Op[int]:
    """The operation, which says how many statements it took and how many rows came back."""

    def steps() -> Steps[int]:
        running = iter(op)
        number = 0
        try:
            statement = next(running)
            while True:
                rows = yield statement
                number += 1 + len(rows)
                statement = running.send(rows)
        except StopIteration:
            return number

    return Op(op.name, steps)


@on_newest
@pytest.mark.parametrize("engine", ["postgres", "sqlite"])
@pytest.mark.parametrize("shape", ["fan", "line"])
def test_A13_a_retry_costs_the_same_per_dependent_however_many_there_are(
    app: Towline, tmp_path: Path, engine: str, shape: str
) -> None:
    """Findings A13 and P20: statements in batches; what a line waits for is walked once."""
    app = app if engine == "postgres" else Towline(f"sqlite:///{tmp_path}/retry.db")
    costs = []
    for number in (50, 200):
        ((first, _),) = app.runner.run(app.runner.store.enqueue([new()]))
        if shape == "fan":
            jobs = [new("d", after=[first.id]) for _ in range(number)]
        else:
            jobs = [new("d", after=[first.id])]
            jobs += [new("d", blockers=[NewBlocker(index=n)]) for n in range(number - 1)]
        app.runner.run(app.runner.store.enqueue(jobs))
        app.fail(first.id, "no")
        costs.append(app.runner.run(counted(app.runner.store.retry(first.id))) / number)
    assert len(app.jobs(state="blocked", limit=300)) == 250
    assert costs[1] <= costs[0] * 1.1
    assert costs[1] < (10 if shape == "fan" else 40)
    app.close()
