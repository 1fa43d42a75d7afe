"""A2 between processes: two servers are given one request id for two tasks in the same instant."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests import database as databases
from tests.database import Database
from tests.forked import CONTEXT
from towline import Towline
from towline.agent import writing
from towline.agent.previews import Previews
from towline.agent.rules import Caller, Rules
from towline.agent.tool import Desk, Refused
from towline.errors import WriterBusy
from towline.operation import Op
from towline.store.listing import ChainFilter

ROUNDS = 50
TASKS = ("one", "two")

MOMENT = 0.02  # seconds

_together: Any = None
_stored: Any = None


def _enter(together: Any, stored: Any) -> None:
    global _together, _stored
    _together, _stored = together, stored
    writing.WRITES = 10 * ROUNDS  # a minute has room for all of them


def nothing() -> None: ...


def desk_of(app: Towline, client: str) -> Desk:
    return Desk(app, Rules(frozenset({"enqueue"})), Previews(), Caller(client, {"enqueue"}))


def ask_for(url: str, task: str) -> list[str]:
    """Ask for a job of this task under each request id, at the same moment as the other process;
    why it was refused, or nothing. In every second round they come as they come."""
    found = []
    with closing(Towline(url, lock_timeout=60)) as app:
        for name in TASKS:
            app.task(name=name)(nothing)
        desk = desk_of(app, task)
        mine, other = _stored if task == TASKS[0] else reversed(_stored)

        def slowly(**given: Any) -> ChainFilter:
            """What is looked for, once the other process has stored its job as well, if it can."""
            if number % 2:
                mine.set()
                other.wait(MOMENT)
            return ChainFilter(**given)

        with mock.patch.object(writing, "ChainFilter", slowly):
            for number in range(ROUNDS):
                mine.clear()
                _together.wait(60)
                try:
                    writing.enqueue(desk, writing.Enqueue(task, f"r-{number}"))
                    found.append("")
                except Refused as refused:
                    found.append(str(refused))
    return found


@pytest.mark.each_engine
def test_A2_a_request_id_in_two_processes_for_two_tasks_is_one_job(
    app: Towline, database: Database
) -> None:
    together, stored = CONTEXT.Barrier(2), (CONTEXT.Event(), CONTEXT.Event())
    with ProcessPoolExecutor(
        2, mp_context=CONTEXT, initializer=_enter, initargs=(together, stored)
    ) as pool:
        one, two = pool.map(ask_for, [database.url] * 2, TASKS)
    keys = [job.key for job in app.jobs(limit=2 * ROUNDS)]
    assert sorted(map(str, keys)) == sorted(f"mcp:r-{number}" for number in range(ROUNDS))
    for answers in zip(one, two, strict=True):
        done, refused = sorted(answers)
        assert done == ""
        assert "of another task: nothing was stored" in refused


def test_A2_the_wait_for_another_process_has_a_limit(tmp_path: Path) -> None:
    with (
        databases.opened(databases.newest(), tmp_path) as database,
        closing(Towline(database.url, lock_timeout=0.1)) as app,
        database.connect() as other,
    ):
        task = app.task(name="one")(nothing)
        store = app.runner.store
        app.runner.run(Op("hold", lambda: store.hold_key("mcp:r-1")), other)
        desk = desk_of(app, "one")
        with pytest.raises(WriterBusy):
            writing.enqueue(desk, writing.Enqueue("one", "r-1"))
        assert writing.enqueue(desk, writing.Enqueue("one", "r-2"))["created"]
        task.using(key="mcp:r-1").enqueue()  # a key of the application waits for no agent
        other.rollback()
        assert not writing.enqueue(desk, writing.Enqueue("one", "r-1"))["created"]
