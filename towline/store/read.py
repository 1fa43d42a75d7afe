"""Reading jobs and chains by id: what other subjects stand on.

A job that control acts on is its *target*: the first job of a chain that went on stands for its
chain, so for its last job.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from ..errors import NotFound
from ..model import Live
from ..operation import Steps
from ..records import BlockerRecord, ChainRecord, JobRecord
from .ground import Ground, as_json, chunks, int_of


def records(store: Ground, ids: Sequence[int]) -> Steps[list[JobRecord]]:
    found: dict[int, JobRecord] = {}
    for chunk in chunks(ids):
        rows = yield store.sql.job_records(ids=as_json(chunk))
        found.update((record.id, record) for record in starmap(JobRecord, rows))
    return [found[id] for id in ids if id in found]


def job(store: Ground, job_id: int, created_at: int | None = None) -> Steps[JobRecord]:
    """A job as it stands; NotFound also if it was created at another time."""
    found = yield from records(store, [job_id])
    if not found:
        raise NotFound(f"there is no job {job_id}")
    if created_at not in (None, found[0].created_at):
        raise NotFound(f"job {job_id} is gone: it was rolled back or deleted")
    return found[0]


def tail(store: Ground, chain_id: int) -> Steps[JobRecord | None]:
    """The last job of a chain, as it stands."""
    ((last,),) = yield store.sql.chain_tail(chain_id=chain_id)
    if last is None:
        return None
    found = yield from records(store, [int_of(last)])
    return found[0] if found else None  # it may have been deleted this moment


def chain_records(store: Ground, ids: Sequence[int]) -> Steps[list[ChainRecord]]:
    """Chains as they stand, in the order of the ids; unknown ones are left out."""
    rows = yield store.sql.chain_records(ids=as_json(ids))
    found = {record.id: record for record in map(ChainRecord._make, rows)}
    return [found[id] for id in ids if id in found]


def chain(store: Ground, chain_id: int) -> Steps[tuple[ChainRecord, JobRecord]]:
    found = yield from chain_records(store, [chain_id])
    last = yield from tail(store, chain_id)
    if not found or last is None:
        raise NotFound(f"there is no chain {chain_id}")
    return found[0], last


def target(store: Ground, job_id: int) -> Steps[JobRecord]:
    record = yield from job(store, job_id)
    if record.live_state is None and record.id == record.chain_id and record.continued_by:
        record = (yield from tail(store, record.chain_id)) or record
    return record


def locked_target(store: Ground, job_id: int) -> Steps[JobRecord]:
    """The job that control of this one acts on, as it will stand until the commit."""
    while True:
        record = yield from target(store, job_id)
        if record.ordered and record.live_state == Live.BLOCKED:  # older chains first: see key
            yield from store.share_blockers([record.id])
        if not (yield from store.hold_jobs([record.id], behind=True)):
            return record
        again = yield from target(store, job_id)
        if again.id == record.id:
            return again


def blockers(store: Ground, jobs: Sequence[int]) -> Steps[dict[int, list[BlockerRecord]]]:
    if not jobs:
        return {}
    found: dict[int, list[BlockerRecord]] = {}
    for row in (yield store.sql.list_blockers(jobs=as_json(jobs))):
        record = BlockerRecord._make(row)
        found.setdefault(record.job_id, []).append(record)
    return found
