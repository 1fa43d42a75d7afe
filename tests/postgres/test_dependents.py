"""What follows from one end is linear in its dependents (B7, L2, finding P3)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.kit import new
from tests.postgres.conftest import on_newest
from towline import Towline
from towline.store.base import as_json

Connect = Callable[..., psycopg.Connection[Any]]


@on_newest
@pytest.mark.parametrize("statement", ["hold_blocked", "hold_keys_now"])
def test_P3_dependents_are_held_by_a_hash_and_not_each_compared_with_each(
    app: Towline, connect: Connect, statement: str
) -> None:
    ((first, _),) = app.run(app.store.enqueue([new()]))
    behind = app.run(
        app.store.enqueue([new("d", after=[first.id], key=f"k{n}") for n in range(500)])
    )
    ids = as_json(record.id for record, _ in behind)
    text = getattr(app.store.sql, statement).format
    connection = connect()
    connection.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    rows = connection.execute(
        f"EXPLAIN (ANALYZE, VERBOSE, TIMING OFF) {text}".encode(), [ids] * text.count("%s")
    )
    plan = "\n".join(line for (line,) in rows)
    removed = [int(line.split(":")[1]) for line in plan.splitlines() if "Rows Removed" in line]
    assert sum(removed) <= 1000, plan
    assert "hashed SubPlan" in plan
