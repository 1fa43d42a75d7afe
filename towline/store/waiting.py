"""Changing a job that waits: its place, its time, its name, and before its first start its
arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import InvalidState
from ..model import Live, State
from ..operation import Steps
from ..records import JobRecord
from . import read
from .columns import JOB
from .ground import Ground
from .lane import WAITING, waiting_state

BLOCK_AGAIN = ("open_blockers", "state", "queue", "priority", "job_id")
BLOCKED = int(Live.BLOCKED)


def rewrite(
    store: Ground,
    record: JobRecord,
    run_at: int,
    now: int,
    *,
    waits: int | None = None,
    **said: Any,
) -> Steps[None]:
    """Give a waiting job this time and these values; the caller holds it. It waits for as many
    chains as before, or for this number of others. One that is set aside may start: it may fit."""
    values = {name: said.get(name, getattr(record, name)) for name in JOB}
    values["policy"] = int(values["policy"])  # not every driver knows an enumeration
    if waits is None:
        waits = record.open_blockers or 0
    state = Live.BLOCKED
    if not waits:
        state = Live.SCHEDULED if run_at > now else waiting_state(values["lane"])
    yield store.sql.change_job(**values)
    yield store.sql.change_waiting(
        state=int(state), run_at=run_at, open_blockers=waits,
        to_queue=values["queue"], to_priority=values["priority"],
        lane=values["lane"], weight=values["weight"],
        was=record.live_state, queue=record.queue, priority=record.priority, job_id=record.id,
    )  # fmt: skip
    if state in WAITING:
        filled = values["queue"], values["priority"], values["lane"]
        yield from store.tell_filled([filled], now)
    if state is not Live.BLOCKED:
        yield from store.wake([values["queue"]])


def change(store: Ground, job_id: int, said: Mapping[str, Any]) -> Steps[JobRecord]:
    record = yield from read.locked_target(store, job_id)
    if record.live_state in (None, Live.RUNNING):
        claimed = record.live_state is not None and record.state is State.PENDING
        state = "claimed by a worker" if claimed else record.state
        raise InvalidState(
            f"job {record.id} is {state}; only an open job that does not run can be changed"
        )
    if record.lane is not None and "queue" in said:
        raise InvalidState(f"job {record.id} is in lane {record.lane} of queue {record.queue}")
    now = yield from store.now()
    values = dict(said)
    run_at = values.pop("run_at", record.run_at)
    yield from rewrite(store, record, max(run_at, record.created_at), now, **values)
    return (yield from read.job(store, record.id))


def block_once_more(store: Ground, record: JobRecord) -> Steps[None]:
    """A blocked job has one blocker more; the caller holds it."""
    values = {name: getattr(record, name) for name in JOB}
    yield store.sql.change_job(**{**values, "blockers": record.blockers + 1})
    row = ((record.open_blockers or 0) + 1, BLOCKED, record.queue, record.priority, record.id)
    yield store.sql.block_again.many(BLOCK_AGAIN, [row])
