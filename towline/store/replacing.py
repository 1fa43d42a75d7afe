"""Replacing the job that has a key, if it never started: its arguments, its time, and all that the
call said, also what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..model import Live, Policy
from ..operation import Row, Steps
from ..records import DependentRecord, JobRecord, NewBlocker, NewJob
from . import cascade, edges, read, waiting
from .edges import Placed
from .ground import Ground

WAITING_ANEW = frozenset({"blockers", "policy"})


class Replacement(Struct):
    """What a call has for the chain that has its key."""

    chain_id: int
    job: NewJob
    blockers: Sequence[NewBlocker]


def waits_anew(job: NewJob) -> bool:
    """Whether a replaced job may wait for other chains than before, or otherwise."""
    return not WAITING_ANEW.isdisjoint(job.given)


def _may_end(job: NewJob) -> bool:
    """Whether a replaced job may fail as it is written, and all that waits behind it."""
    return "blockers" in job.given or ("policy" in job.given and job.policy is Policy.FAIL)


def replaced(first: NewJob, job: NewJob) -> NewJob:
    """A job of the same batch with the arguments, the time and all that was said of another."""
    said = _said(job, ordered=bool(first.ordered))
    if "expires_at" in said:
        said["expires"] = job.expires
    if "blockers" in said:
        line = [blocker for blocker in first.blockers if blocker.in_line]
        said["blockers"] = lined_up(job.blockers, line)
    return replace(first, arguments=job.arguments, at=job.at, delay=job.delay, **said)


def replace_jobs(store: Ground, some: Sequence[Replacement], now: int) -> Steps[None]:
    anew = {one.chain_id for one in some if waits_anew(one.job)}
    if anew:  # whoever ends a chain holds it first, and then what waits for it: so do we
        yield from store.share_blockers(anew)
    for one in sorted(some, key=attrgetter("chain_id")):
        yield from store.hold_jobs([one.chain_id], behind=_may_end(one.job))
        yield from replace_held(store, one, now)


def replace_held(store: Ground, new: Replacement, now: int) -> Steps[bool]:
    """Debounce: new arguments, a new time and all that was said, for a job that never started;
    else change nothing, and say so. The caller holds it."""
    (record,) = yield from read.records(store, [new.chain_id])
    if record.live_state in (None, Live.RUNNING) or record.last_number is not None:
        return False  # it has ended, a worker has it, or it has started before
    said = _said(new.job, ordered=bool(record.ordered))
    said["arguments"] = new.job.arguments
    if said.get("policy") == record.policy:
        del said["policy"]
    if new.job.expires is not None:
        said["expires_at"] = now + new.job.expires
    run_at = new.job.due(now)
    if WAITING_ANEW.isdisjoint(said):
        yield from waiting.rewrite(store, record, run_at, now, **said)
    else:
        yield from _wait_anew(store, record, new.blockers, said, run_at, now)
    return True


def _wait_anew(
    store: Ground, record: JobRecord, blockers: Sequence[NewBlocker], said: dict[str, Any],
    run_at: int, now: int,
) -> Steps[None]:  # fmt: skip
    """Other edges in place of those it has, but for those of its line; or the same ones under
    another policy."""
    had = (yield from read.blockers(store, [record.id])).get(record.id, ())
    line = [NewBlocker(edge.chain_id, trace=edge.trace) for edge in had if edge.in_line]
    if "blockers" not in said:
        blockers = [NewBlocker(e.chain_id, None, e.name, e.trace) for e in had if e.position >= 0]
    job = NewJob(
        record.task, "", said.get("queue", record.queue), said.get("priority", record.priority),
        key=record.key, policy=Policy(said.get("policy", record.policy)),
        lane=said.get("lane", record.lane),
    )  # fmt: skip
    place = Placed(record.id, record.chain_id, record.position, job, lined_up(blockers, line))
    states = yield from edges.chain_states(store, [place], ())
    rows: list[Row] = []
    doomed: dict[int, DependentRecord] = {}
    waits = edges.waits(place, states, rows, doomed)
    yield store.sql.delete_edges_of_jobs.many(("job_id",), [(record.id,)])
    yield from store.insert_edges(rows)
    yield from edges.refuse_circles(store, [place])
    said["blockers"] = len(rows)
    yield from waiting.rewrite(store, record, run_at, now, waits=waits, **said)
    ended = yield from cascade.fail_jobs(store, doomed, states, now)
    yield from cascade.end_chains(store, ended, now)


def _said(job: NewJob, *, ordered: bool) -> dict[str, Any]:
    """What the call said. As all that stand in a line, the job does not fail with a blocker."""
    said = {name: getattr(job, name) for name in job.given}
    if ordered and said.get("policy") is Policy.FAIL:
        del said["policy"]
    return said


def lined_up(blockers: Sequence[NewBlocker], before: Sequence[NewBlocker]) -> list[NewBlocker]:
    """These, and the chains before it in the line of its key; it may wait for those anyway."""
    line = {(one.chain_id, one.index): one for one in before}
    found = [
        replace(one, in_line=1) if line.pop((one.chain_id, one.index), None) else one
        for one in blockers
    ]
    return [*found, *(replace(one, in_line=1, declared=False) for one in line.values())]
