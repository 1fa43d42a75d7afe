"""Groups: the members of one are what its last job waits for, in declared order.

Nothing is counted beside the jobs themselves. How many members have ended is what the last job no
longer waits for; only where that does not tell (it has failed with a member, was cancelled before
them, or waits for a failed one to be retried) are they counted one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..errors import InvalidState, NotFound
from ..model import ChainState, Live, Outcome, Policy
from ..operation import Steps
from ..records import BlockerRecord, JobRecord
from . import audit, control, read
from .ground import Ground, as_json, int_of


class GroupRecord(NamedTuple):
    """The last job of a group, and how many members have ended."""

    last: JobRecord
    ended: int


class CancelledPage(NamedTuple):
    """How many members of a page were cancelled; where the next one begins."""

    number: int
    next: int | None


def group(store: Ground, job_id: int, created_at: int | None = None) -> Steps[GroupRecord]:
    last = yield from read.job(store, job_id, created_at)
    if not last.blockers:
        return GroupRecord(last, 0)
    if last.live_state == Live.BLOCKED:
        if last.policy == Policy.WAIT:  # it goes on waiting for a member that has failed
            return GroupRecord(last, (yield from _counted(store, job_id))[0])
        return GroupRecord(last, last.blockers - (last.open_blockers or 0))
    if last.live_state is not None or last.last_started_at is not None:
        return GroupRecord(last, last.blockers)
    return GroupRecord(last, (yield from _counted(store, job_id))[0])


def members(store: Ground, job_id: int, first: int, limit: int) -> Steps[list[BlockerRecord]]:
    rows = yield store.sql.list_members(job_id=job_id, first=first, limit=limit)
    return list(map(BlockerRecord._make, rows))


def bad_members(store: Ground, job_id: int, limit: int) -> Steps[list[BlockerRecord]]:
    found: list[BlockerRecord] = []
    for (position,) in (yield store.sql.list_bad_members(job_id=job_id, limit=limit)):
        found += yield from members(store, job_id, int_of(position), 1)
    return found


def failed(store: Ground, job_id: int) -> Steps[int]:
    return (yield from _counted(store, job_id))[1]


def _counted(store: Ground, job_id: int) -> Steps[tuple[int, int]]:
    """How many members have ended, and how many of those badly."""
    ((ended, bad),) = yield store.sql.count_members(job_id=job_id)
    return int_of(ended), int_of(bad)


def cancel_members(
    store: Ground, job_id: int, first: int, limit: int, reason: str | None, by: str | None
) -> Steps[CancelledPage]:
    page = yield from members(store, job_id, first, limit)
    changed: list[int] = []
    for member in page:
        if member.state is ChainState.OPEN:
            end = member.chain_id, Outcome.CANCELLED, None, reason, None, by
            try:
                changed.append((yield from control.end(store, *end)).id)
            except (InvalidState, NotFound):
                continue  # it has just ended
    if changed:
        yield from audit.note(store, by, "cancel", number=len(changed), each=changed)
    return CancelledPage(len(changed), first + limit if len(page) == limit else None)


def chain_ends(store: Ground, chains: Sequence[int]) -> Steps[list[BlockerRecord]]:
    rows = yield store.sql.chain_ends(chains=as_json(chains))
    return list(map(BlockerRecord._make, rows))
