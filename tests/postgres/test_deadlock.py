"""P5: what the engine does when it is the victim of a deadlock on a connection of ours."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg

from tests.database import Database
from tests.kit import HOUR, new
from towline import Towline
from towline.model import State

PATIENCE = 30.0
HOLD = "SELECT 1 FROM towline_chain WHERE id = %s FOR UPDATE"
WAITS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND application_name = 'towline' AND wait_event_type = 'Lock'
"""
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


def test_P5_an_operation_of_ours_that_a_deadlock_has_ended_is_run_again(
    app: Towline, database: Database, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    """Somebody's own SQL takes the rows of two chains in the wrong order. He has more patience than
    we have, so the server ends our transaction and not his."""
    first, second = (r.id for r, _ in app.runner.run(app.runner.store.enqueue([new(), new()])))
    other = connect()
    other.execute("SET deadlock_timeout = '1h'")
    other.execute(HOLD, [second])
    with ThreadPoolExecutor(1) as pool:
        deleted = pool.submit(app.runner.run, app.runner.store.delete([first, second]))
        deadline = time.monotonic() + PATIENCE
        while database.rows(WAITS) != [(1,)]:
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.001)
        other.execute(HOLD, [first])  # held by ours, which waits for the second: one has to go
        assert not deleted.done()
        other.execute("INSERT INTO mine DEFAULT VALUES")
        other.commit()
        assert deleted.result(PATIENCE) == [first, second]
    while database.rows(DEADLOCKS) == [(0,)]:  # the server counts with a delay
        assert time.monotonic() < deadline + PATIENCE, "there was no deadlock"
        time.sleep(0.05)
    assert database.rows("SELECT count(*) FROM mine") == [(1,)]
    assert app.counts().get("default", {}).get(State.PENDING, 0) == 0


def test_P5_all_that_a_batch_replaces_is_held_oldest_first(
    app: Towline, database: Database, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    """Also what waits for nothing, beside one that is to wait: another batch may have it the other
    way round."""
    store = app.runner.store
    stored = [new(key="two", delay=HOUR), new(key="one", delay=HOUR), new("b", delay=HOUR)]
    older, newer, before = (record.id for record, _ in app.runner.run(store.enqueue(stored)))
    other = connect()
    other.execute(HOLD, [older])
    waiting = new(key="one", on_conflict="replace", given=["blockers"], after=[before])
    batch = [waiting, new(key="two", on_conflict="replace")]
    with ThreadPoolExecutor(1) as pool:
        replaced = pool.submit(app.runner.run, store.enqueue(batch))
        deadline = time.monotonic() + PATIENCE
        while database.rows(WAITS) != [(1,)]:
            assert time.monotonic() < deadline, "nobody waits"
            time.sleep(0.001)
        other.execute(f"{HOLD} NOWAIT", [newer])
        other.commit()
        assert [record.id for record, _ in replaced.result(PATIENCE)] == [newer, older]
