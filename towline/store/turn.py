"""A worker's turn and its parts: promote, claim, park, and the look that comes before.

scheduled ──promote──► pending ──claim──► running ──finish──► ended, or back
                          ▲                  │ park (task unknown here)
                          └──unpark── parked ◄┘

A worker claims for its free slots, and sometimes ahead of them. What is claimed ahead is shown as
pending until it begins; it goes back untouched when its worker dies before that. What comes too
late to start ends in the claim that finds it: cancelled, without a start.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct, field

from ..model import Live, unknown_task
from ..naming import EVERY
from ..operation import Row, Steps
from ..records import BlockerRecord, Claimed, Ending
from . import finish, gate, lease, read, served
from .cascade import DELETE_LIVE
from .expiry import expire
from .finish import Finished
from .gate import Passed
from .ground import KEY, Ground, as_json, earlier
from .lane import freed, tell
from .lease import Begin, Report
from .served import Portion

PARK = ("parked_for", "queue", "priority", "job_id", "attempt", "held_by")
PROMOTE_LIMIT = 1000
UNPARK_LIMIT = 1000
ORPHAN_LIMIT = 1000
MOST_LOADED = 1000  # blockers of a job whose outputs come with its claim; more are read by page
EXPIRE_LIMIT = 200  # beyond so many no more are claimed in a turn
PASSES = 20  # of a turn through gates, where each may find late ones alone

_age, _priority = attrgetter("job_id"), attrgetter("priority")


class Peeked(NamedTuple):
    """What a worker finds when it looks: work for it now, or a time at which to look again."""

    pending: int
    parked: bool  # a job that some other worker did not know, and this one does
    next_due: int | None
    now: int
    next_tick: int | None = None  # of a schedule of one of its tasks
    gated: Sequence[str] = ()  # those of the queues that have a limit or lanes
    waits: bool = False  # a limit keeps something waiting that will begin by itself


class Taken(Struct):
    """What a claim gives: the first `begun` are for the free slots, the rest is claimed ahead.
    Those that came too late to start have ended. The rest is about queues with limits or lanes, as
    a pass through their gates gives it."""

    claimed: list[Claimed] = field(default_factory=list[Claimed])
    begun: int = 0
    expired: list[Claimed] = field(default_factory=list[Claimed])
    again: bool = False
    missed: bool = False
    left: set[str] = field(default_factory=set[str])


class Turn(Struct):
    """One beat of a worker: what was finished and claimed, and when to look again.

    The first of what was claimed are for the free slots, the rest is claimed ahead.
    """

    finished: Finished
    claimed: list[Claimed]
    blockers: dict[int, list[BlockerRecord]]
    promoted: int
    next_due: int | None
    now: int
    unparked: int | None = None  # of those asked for; None when there was no room to ask
    begun: int = 0  # for the free slots
    expired: Sequence[Claimed] = ()  # came too late to start, and have ended
    gated: Sequence[str] | None = None  # queues that have a limit or lanes; None: not looked
    again: bool = False  # a turn at once may find more
    missed: bool = False  # another worker holds the gate of a queue: one in a moment may
    alone: bool = False  # only a claim: what is due is not known, and blockers are not read


def turn(
    store: Ground,
    worker: int,
    name: str,
    queues: Sequence[str],
    room: int,
    endings: Sequence[Ending],
    tasks: Sequence[str],
    ahead: int,
    begins: Sequence[Begin],
    reports: Sequence[Report],
    gated: Sequence[str],
    portions: Sequence[Portion],
    freed: Collection[str] = (),
) -> Steps[Turn]:
    now = yield from store.now()
    promoted = yield from store.promote(PROMOTE_LIMIT, now, whole=False)
    if begins or reports:
        yield from lease.progress(store, reports, begins)
    finished = yield from finish.finish(store, endings, name, worker, now, wakes=False)
    if EVERY in queues and room + ahead > 0:  # once: what is unparked was there before
        queues = yield from served.named(store, queues, Live.PENDING, Live.PARKED)
        portions = [served.among(portion, queues) for portion in portions]
    unparked = None
    if tasks and room > 0:
        unparked = yield from unpark(store, tasks, queues, room)
    if not portions:
        taken = yield from take(
            store, worker, queues, room, name, ahead, now, gated=gated, whole=False
        )
    else:
        taken = yield from _take_in_order(store, worker, portions, room, name, ahead, now, gated)
    claimed = taken.claimed
    yield from _wake_for_freed(store, endings, finished, taken, gated, freed)
    waited = waiting(claimed)
    blockers = (yield from read.blockers(store, waited)) if waited else {}
    turn = Turn(
        finished, claimed, blockers, promoted, None, now, unparked, taken.begun, taken.expired
    )
    if len(claimed) < room:
        due, turn.gated = yield from store.next_due(queues, now, whole=False)
        turn.next_due = earlier(due, store.look_again(worker))
        if gated:
            opens = yield from gate.next_open(store, gated, now)
            turn.next_due = earlier(turn.next_due, opens)
        # What it did not know of, the next turn looks at.
        turn.again = taken.again or not set(turn.gated) <= set(gated)
        turn.missed = taken.missed
    return turn


def waiting(claimed: Sequence[Claimed]) -> list[int]:
    """Those that waited for others, whose outputs come with the claim."""
    return [job.job_id for job in claimed if 0 < job.blockers <= MOST_LOADED]


def _wake_for_freed(
    store: Ground,
    endings: Sequence[Ending],
    finished: Finished,
    taken: Taken,
    gated: Sequence[str],
    freed: Collection[str],
) -> Steps[None]:
    """Workers with room may start what came free, unless this turn has started all there is."""
    if not taken.left and all(ending.held.lane is None for ending in endings):
        return
    accepted = set(finished.accepted)
    ended = [ending.held for ending in endings if ending.held.job_id in accepted]
    unseen = {held.queue for held in ended if held.lane is not None and held.queue not in gated}
    if taken.left or unseen:
        yield from store.wake(taken.left & {held.queue for held in ended}.union(freed) | unseen)


def claim(
    store: Ground, worker: int, queues: Sequence[str], room: int, name: str | None, ahead: int
) -> Steps[list[Claimed]]:
    if room + ahead <= 0 or not queues:
        return []
    gated = yield from gate.find(store, queues)
    while True:
        taken = yield from take(store, worker, queues, room, name, ahead, gated=gated)
        if taken.claimed or not (taken.expired or taken.again):
            return taken.claimed


def in_claim_order(claimed: list[Claimed]) -> list[Claimed]:
    """Higher priority first, then age. By getters of the interpreter: a turn has hundreds."""
    claimed.sort(key=_age)
    claimed.sort(key=_priority, reverse=True)  # those of one priority stay as they are
    return claimed


def take(
    store: Ground,
    worker: int,
    queues: Sequence[str],
    room: int,
    name: str | None = None,
    ahead: int = 0,
    now: int | None = None,
    *,
    gated: Sequence[str] = (),
    whole: bool = True,
) -> Steps[Taken]:
    """Claim from queues, from the gated ones through their gates."""
    taken = Taken()
    if room + ahead <= 0 or not queues:
        taken.left.update(gated)
        return taken
    if EVERY in queues:
        queues = yield from served.named(store, queues, Live.PENDING, Live.PARKED)
    if now is None:
        now = yield from store.now()
    passes = 0
    while True:
        wanted = room + ahead - len(taken.claimed)
        # Those that begin come first.
        free = room - taken.begun if taken.begun == len(taken.claimed) else 0
        if gated:
            passed = yield from gate.claim(
                store, worker, queues, gated, free, wanted - free, name, now, whole=whole
            )
        else:
            passed = Passed(
                (yield from store.take_pending(
                    worker, queues, wanted, free, name, now, whole=whole
                ))
            )  # fmt: skip
        found = passed.claimed
        late = [job for job in found if job.expires_at is not None and job.expires_at <= now]
        gone = (yield from expire(store, late, worker, name, now)) if late else set[int]()
        if gone:
            taken.begun += sum(job.job_id not in gone for job in found[:free])
            taken.claimed += [job for job in found if job.job_id not in gone]
        else:
            taken.begun += min(len(found), free)
            taken.claimed += found
        taken.expired += [*passed.expired, *(job for job in late if job.job_id in gone)]
        taken.again, taken.missed = passed.again, passed.missed
        taken.left |= passed.left
        room_left = bool(passed.expired) or (bool(gone) and len(found) >= wanted)
        if not room_left or len(taken.claimed) >= room + ahead:
            return taken
        passes += 1
        if len(taken.expired) >= EXPIRE_LIMIT or (gated and passes == PASSES):
            taken.again = True
            return taken


def _take_in_order(
    store: Ground,
    worker: int,
    portions: Sequence[Portion],
    room: int,
    name: str | None,
    ahead: int,
    now: int,
    gated: Sequence[str],
) -> Steps[Taken]:
    """Take from one portion after the other, until there is no more room. Each is whole: where one
    begins says nothing of the others."""
    total = Taken()
    for portion in portions:
        most = min(portion.most, room + ahead - len(total.claimed))
        free = min(room - total.begun, most) if total.begun == len(total.claimed) else 0
        queues = yield from served.named(store, portion.queues, Live.PENDING, Live.PARKED)
        own = [queue for queue in gated if queue in queues]
        taken = yield from take(store, worker, queues, free, name, most - free, now, gated=own)
        total.claimed += taken.claimed
        total.expired += taken.expired
        total.begun += taken.begun
        total.again = total.again or taken.again
        total.missed = total.missed or taken.missed
        total.left |= taken.left
    return total


def promote(store: Ground, limit: int = PROMOTE_LIMIT) -> Steps[int]:
    """Make scheduled jobs pending whose time has come, oldest first, a bounded number."""
    now = yield from store.now()
    return (yield from store.promote(limit, now))


def peek(
    store: Ground, queues: Sequence[str], most: int, tasks: Sequence[str], worker: int | None
) -> Steps[Peeked]:
    now = yield from store.now()
    if EVERY in queues:
        queues = yield from served.named(store, queues, Live.PENDING, Live.PARKED)
    found, parked, tick = yield from store.count_pending(queues, most, tasks, worker, now)
    due, gated = yield from store.next_due(queues, now, whole=worker is None)
    due = earlier(due, store.look_again(worker))
    if not gated:
        return Peeked(found, parked, due, now, tick)
    more, waits, opens = yield from gate.peek(store, gated, most, now)
    return Peeked(found + more, parked, earlier(due, opens), now, tick, gated, waits)


def park(store: Ground, jobs: Sequence[Claimed]) -> Steps[int]:
    rows: list[Row] = [
        (unknown_task(j.task), j.queue, j.priority, j.job_id, j.attempt, j.worker) for j in jobs
    ]
    counts = (yield store.sql.park_jobs.counted(PARK, rows)) if rows else []
    parked = [job for job, (count,) in zip(jobs, counts, strict=True) if count]
    if any(job.lane is not None for job in parked):
        now = yield from store.now()
        yield from tell(store, [freed(j.queue, j.lane) for j in parked if j.lane is not None], now)
    yield from store.wake(job.queue for job in parked)  # another worker may know it
    return len(parked)


def unpark(
    store: Ground, tasks: Sequence[str], queues: Sequence[str], limit: int = UNPARK_LIMIT
) -> Steps[int]:
    """Make parked jobs of these tasks pending again, a bounded number; call until it says 0."""
    reasons = as_json(map(unknown_task, tasks))
    queues = yield from served.named(store, queues, Live.PARKED)
    rows = yield store.sql.find_parked(reasons=reasons, queues=as_json(queues), limit=limit)
    if rows:
        yield store.sql.unpark_jobs.many(KEY, [row[:3] for row in rows])
        if any(lane is not None for *_, lane in rows):
            now = yield from store.now()
            yield from store.tell_filled([(queue, p, lane) for queue, p, _, lane in rows], now)
        yield from store.wake(str(queue) for queue, *_ in rows)
    return len(rows)


def drop_orphans(store: Ground, queues: Sequence[str]) -> Steps[int]:
    queues = yield from served.named(store, queues, Live.PENDING)
    rows = yield store.sql.find_orphans(queues=as_json(queues), limit=ORPHAN_LIMIT)
    if rows:
        yield store.sql.delete_live.many(DELETE_LIVE, rows)
        yield from store.wake(queues)
    return len(rows)
