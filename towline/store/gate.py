"""Claiming under limits: from queues that have one, and from lanes.

Who holds the *gate* of a queue may claim under its limits. On SQLite that is the writer, on
PostgreSQL a row; a worker that does not get it leaves the queue and looks again in a moment. Then:

    collect   what was told of lanes; lanes whose time has come open
    read      the time, limits, what runs, open lanes with their first jobs: in a statement of its
              own, so it sees all that earlier holders have claimed, and comes after it
    share     who begins (`limit.py`)
    claim     those
    save      when lanes were served; which of them can start nothing until they are told of

Slots are not counted anywhere: they are derived from what runs, so nothing can drift or be given
back twice. A lane that can start nothing is closed, and not looked at again before something about
it is told, or its time has come: a full one also after a while (`Ground.backstop`), should a note
ever be lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

import msgspec
from msgspec import Struct, field

from ..model import Live
from ..operation import Row, Steps
from ..records import Claimed
from . import served
from .expiry import expire
from .ground import FOREVER, Ground, as_json, int_of
from .limit import (
    Allowance,
    LaneOffer,
    Numbers,
    Offer,
    QueueOffer,
    numbers_of,
    read_spent,
    share,
    write_spent,
)

OPEN, FULL, RESTING, EMPTY = range(4)  # lane.closed
LANE = ("closed", "priority", "served_at", "opens_at", "spent", "queue", "lane")
PLACE = ("queue", "lane")
GATE = ("queue", "turn", "spent", "opens_at")
PLAIN, LANED = 0, 4  # states from which a job is claimed here

_Lane = tuple[
    str,
    int,
    int,
    str | None,
    bool,
    int | None,
    int | None,
    int | None,
    list[tuple[int, int, int]],
    bool,
]
_lanes = msgspec.json.Decoder(list[_Lane], strict=False).decode
_jobs = msgspec.json.Decoder(list[Offer]).decode
_weights = msgspec.json.Decoder(list[tuple[str | None, int]]).decode


class Gate(Struct):
    """A queue whose gate is held, with all that decides who begins."""

    offer: QueueOffer
    turn: int
    priorities: dict[str, int]  # as lanes have it stored
    cut: bool = False  # there may be more lanes than were read


class Passed(Struct):
    """What a claim under limits gave. `again`: there may be more for who asks at once; `missed`:
    another worker holds a gate, so ask in a moment; `left`: queues where others may find work.
    Those of them that came too late to start have ended and left their slots."""

    claimed: list[Claimed] = field(default_factory=list[Claimed])
    expired: list[Claimed] = field(default_factory=list[Claimed])
    again: bool = False
    missed: bool = False
    left: set[str] = field(default_factory=set[str])


def find(store: Ground, queues: Sequence[str]) -> Steps[list[str]]:
    """Which of these queues have a limit of their own, or lanes."""
    queues = yield from served.named(store, queues, Live.PENDING, Live.PARKED)
    if not queues:
        return []
    return [str(queue) for (queue,) in (yield store.sql.find_gates(queues=as_json(queues)))]


def peek(
    store: Ground, gated: Sequence[str], most: int, now: int
) -> Steps[tuple[int, bool, int | None]]:
    """How much there is for a claim, whether a limit keeps something waiting that will begin by
    itself, and when the next lane or rate opens."""
    listed = as_json(gated)
    ((found, waits),) = yield store.sql.peek_gates(queues=listed, most=most, now=now)
    return int_of(found), bool(waits), (yield from next_open(store, gated, now))


def next_open(store: Ground, gated: Sequence[str], now: int) -> Steps[int | None]:
    ((at,),) = yield store.sql.next_open(queues=as_json(gated), now=now)
    return None if at is None or int_of(at) >= FOREVER else int_of(at)


def claim(
    store: Ground, worker: int, queues: Sequence[str], gated: Collection[str], room: int,
    ahead: int, name: str | None, now: int, *, whole: bool = True,
) -> Steps[Passed]:  # fmt: skip
    """Claim from all these queues, some of which are gated; what is claimed ahead is not of those,
    and comes last."""
    mine = [queue for queue in queues if queue in gated]
    passed = Passed()
    if room > 0 and mine:
        held, more = yield from store.hold_gates(mine, now)
        passed.missed = len(held) < len(mine)
        passed.again = more
        passed.left.update(set(mine) - set(held))
        if held:
            yield from _claim_under_gates(store, worker, queues, held, room, name, now, passed)
    elif mine:
        passed.left.update(mine)
    rest = room - len(passed.claimed)
    if rest + ahead > 0:
        passed.claimed += yield from store.take_pending(
            worker, queues, rest + ahead, rest, name, now, whole=whole
        )
    return passed


def _claim_under_gates(
    store: Ground, worker: int, queues: Sequence[str], held: Sequence[str], room: int,
    name: str | None, now: int, passed: Passed,
) -> Steps[None]:  # fmt: skip
    now, gates = yield from _read(store, held, room, now)
    offers = [gate.offer for gate in gates]
    if any(offer.plain or any(lane.jobs for lane in offer.lanes) for offer in offers):
        others = QueueOffer(None, Allowance(Numbers(), 0, [], now))
        rows = yield store.sql.next_priorities(queues=as_json(queues), room=room)
        others.plain = deque(Offer(0, int_of(priority), 1) for (priority,) in rows)
        share(room, [*offers, others], store.draw(now))
    chosen: list[Row] = []
    for offer in offers:
        chosen += [(PLAIN, offer.queue, job.priority, job.job_id) for job in offer.taken]
        for lane in offer.lanes:
            chosen += [(LANED, offer.queue, job.priority, job.job_id) for job in lane.taken]
    passed.claimed = (yield from store.take_chosen(worker, chosen, name, now)) if chosen else []
    late = [job for job in passed.claimed if job.expires_at is not None and job.expires_at <= now]
    ended = {job.job_id for job in late}
    began = {job.job_id for job in passed.claimed} - ended
    saved = yield from _save(store, gates, began, ended, now)
    if late:  # last: what their end lets go may wait in lanes that were just found empty
        gone = yield from expire(store, late, worker, name, now)
        passed.claimed = [job for job in passed.claimed if job.job_id not in gone]
        passed.expired = [job for job in late if job.job_id in gone]
    # Others hold what was chosen and not claimed, or this worker may claim nothing any more.
    got = began | ended
    passed.left.update(str(queue) for _, queue, _, id in chosen if id not in got)
    for gate in gates:
        offer = gate.offer
        startable = bool(offer.plain) or gate.cut or any(
            lane.left and not lane.refused for lane in offer.lanes
        )  # fmt: skip
        if startable and not offer.full:
            assert offer.queue is not None
            passed.left.add(offer.queue)
            if saved and len(passed.claimed) < room and (gate.cut or _was_cut(offer)):
                passed.again = True


def _was_cut(offer: QueueOffer) -> bool:
    """Whether a lane has more jobs than were read, all of which were taken."""
    return any(lane.more and not lane.jobs and not lane.refused for lane in offer.lanes)


def _read(store: Ground, held: Sequence[str], room: int, now: int) -> Steps[tuple[int, list[Gate]]]:
    gates: list[Gate] = []
    now, rows = yield from store.read_gates(held, room, now)
    for row in rows:
        queue, *numbers, spent, turn = row[:6]
        each, running, lanes, plain = row[6:9], row[9], row[10], row[11]
        weights = dict(_weights(str(running))) if running else {}
        own = numbers_of(*numbers)
        allowance = Allowance(own, sum(weights.values()), read_spent(spent), now)
        offer = QueueOffer(str(queue), allowance)
        if plain:
            offer.plain = deque(_jobs(str(plain)))
        found = _lanes(str(lanes)) if lanes else []
        for name, _, served_at, lane_spent, special, *mine, jobs, rests in found:
            if rests:  # by a note that is not collected yet
                continue
            limit = numbers_of(*mine) if special else numbers_of(*each)
            weight = weights.get(name, 0)
            offer.lanes.append(
                LaneOffer(
                    name, served_at, deque(Offer(*job) for job in jobs),
                    Allowance(limit, weight, read_spent(lane_spent), now),
                )
            )  # fmt: skip
        priorities = {name: priority for name, priority, *_ in found}
        gates.append(Gate(offer, int_of(turn), priorities, len(found) >= room))
        for lane in offer.lanes:
            lane.more = len(lane.jobs) >= store.most_offered(room, len(found))
    return now, gates


def _save(
    store: Ground, gates: Sequence[Gate], began: Collection[int], ended: Collection[int], now: int
) -> Steps[bool]:
    """Write down how queues and lanes stand after a claim; whether that has changed. What has not
    begun, since somebody holds it or it came too late, has spent nothing."""
    lanes: list[Row] = []
    gone: list[Row] = []
    queues: list[Row] = []
    for gate in gates:
        offer = gate.offer
        before = gate.turn
        turn = max(before, now) if offer.turns else before
        served = False
        for job in [job for job in offer.taken if job.job_id not in began]:
            offer.allowance.give_back(job.weight)
        for lane in offer.lanes:
            idle = [job for job in lane.taken if job.job_id not in began]
            for job in idle:
                lane.allowance.give_back(job.weight)
                offer.allowance.give_back(job.weight)
            missed = [job for job in idle if job.job_id not in ended]
            kept = len(lane.taken) > len(idle)
            served = served or kept
            head = missed[0] if missed else lane.jobs[0] if lane.jobs else None
            row = _lane_row(store, lane, head, kept, turn, bool(missed), now)
            place = offer.queue, lane.lane
            if row is None:
                gone.append(place)
            elif kept or row[0] != OPEN or row[1] != gate.priorities[lane.lane]:
                lanes.append((*row, *place))
        opens_at = offer.allowance.opens_at(1)
        if offer.full and opens_at is None:
            head = _next_of(offer)
            opens_at = offer.allowance.opens_at(head.weight) if head else None
        if served or offer.taken or opens_at is not None:
            turn += offer.turns
            spent = write_spent(offer.allowance.spent)
            queues.append((offer.queue, turn, spent, opens_at))
    if lanes:
        yield store.sql.save_lanes.many(LANE, lanes)
    if gone:
        yield store.sql.drop_lanes.many(PLACE, gone)
    if queues:
        yield store.sql.save_gates.many(GATE, queues)
    return bool(lanes or gone or began)


def _next_of(offer: QueueOffer) -> Offer | None:
    """The job that a full queue waits for."""
    heads = [lane.jobs[0] for lane in offer.lanes if lane.jobs and not lane.refused]
    if offer.plain:
        heads.append(offer.plain[0])
    return max(heads, key=lambda job: job.priority, default=None)


def _lane_row(
    store: Ground, lane: LaneOffer, head: Offer | None, kept: bool, turn: int, missed: bool,
    now: int,
) -> Row | None:  # fmt: skip
    """How a lane stands after a claim: closed, priority, served_at, opens_at, spent; None: it has
    nothing to remember."""
    allowance = lane.allowance
    served_at = turn + lane.turn if kept else lane.served_at
    spent = write_spent(allowance.spent)
    if head is None and lane.more:
        last = lane.taken[-1].priority if lane.taken else 0
        weight = 1
        priority = last
    elif head is None:
        until = allowance.remembered_until
        if until is None:
            return None
        return EMPTY, 0, served_at, until, spent
    else:
        priority, weight = head.priority, head.weight
    if missed:  # somebody holds a job of it: nothing is known
        return OPEN, priority, served_at, None, spent
    opens_at = allowance.opens_at(weight)
    if not allowance.has_slots(weight):
        never = allowance.numbers.concurrency == 0 or store.backstop is None
        return FULL, priority, served_at, None if never else now + (store.backstop or 0), spent
    if opens_at is not None:
        return RESTING, priority, served_at, opens_at, spent
    return OPEN, priority, served_at, None, spent
