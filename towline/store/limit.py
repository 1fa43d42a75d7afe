"""Limits as arithmetic: how much a limit leaves, and who of those that wait gets it. No I/O.

A limit has two numbers, each of which may be missing: how much may run at a time (`concurrency`),
and how much may begin in any window of `per` microseconds (`rate`). A job counts with its weight;
one that is heavier than its limit runs alone.

The rate is strict. A window is cut into slots; what began in a slot counts until the window that
begins with the slot's end is over, so no window has more than `rate`; what it leaves comes up to a
slot late. A slot is remembered by its end, in microseconds since 1970: a worker that starts again,
or a limit whose numbers change, finds what was spent before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from msgspec import Struct, field, json

SLOTS = 20  # of a window

Spent = list[
    tuple[int, int]
]  # of a few slots, the oldest first: its end, and the weight that began


class Numbers(NamedTuple):
    """What a limit says; None: no limit of that kind."""

    concurrency: int | None = None
    rate: int | None = None
    per: int | None = None  # microseconds


NO_LIMIT = Numbers()


def numbers_of(concurrency: object, rate: object, per: object) -> Numbers:
    """What the columns of a row say."""
    return Numbers(
        *(value if isinstance(value, int) else None for value in (concurrency, rate, per))
    )


_read = json.Decoder(Spent).decode


def read_spent(text: object) -> Spent:
    """What a row remembers of its last window."""
    return _read(text) if isinstance(text, str) else []


def write_spent(spent: Spent) -> str | None:
    return json.encode(spent).decode() if spent else None


def slot_end(now: int, per: int) -> int:
    """The end of the slot that a time falls into."""
    width = -(-per // SLOTS)
    return (now // width + 1) * width


def still_counts(spent: Spent, now: int, per: int) -> Spent:
    """What began in the last window, and perhaps a slot before it. What seems to come from later,
    since the clock has stepped back, counts as now."""
    latest = slot_end(now, per)
    kept: dict[int, int] = {}
    for end, weight in spent:
        if end + per > now:
            end = min(end, latest)
            kept[end] = kept.get(end, 0) + weight
    return sorted(kept.items())


class Allowance(Struct):
    """What one limit leaves, while jobs are chosen."""

    numbers: Numbers
    running: int  # weight
    spent: Spent
    now: int

    def __post_init__(self) -> None:
        per = self.numbers.per
        if self.numbers.rate is None or per is None:
            self.spent = []
        else:
            self.spent = still_counts(self.spent, self.now, per)

    def has_slots(self, weight: int) -> bool:
        most = self.numbers.concurrency
        return most is None or self.running + weight <= most or (self.running == 0 < most)

    def opens_at(self, weight: int) -> int | None:
        """When the rate allows so much; None: now."""
        rate, per = self.numbers.rate, self.numbers.per
        if rate is None or per is None:
            return None
        total = sum(number for _, number in self.spent)
        opens = None
        for end, number in self.spent:
            if total + weight <= rate:
                break
            total -= number
            opens = end + per
        return opens

    def admits(self, weight: int) -> bool:
        return self.has_slots(weight) and self.opens_at(weight) is None

    def take(self, weight: int) -> None:
        self.running += weight
        if self.numbers.rate is not None and self.numbers.per is not None:
            end = slot_end(self.now, self.numbers.per)
            if self.spent and self.spent[-1][0] == end:
                self.spent[-1] = end, self.spent[-1][1] + weight
            else:
                self.spent.append((end, weight))

    def give_back(self, weight: int) -> None:
        """It did not begin after all."""
        self.running -= weight
        if self.spent:
            end, number = self.spent.pop()
            if number > weight:
                self.spent.append((end, number - weight))

    @property
    def remembered_until(self) -> int | None:
        """Until when what was spent matters."""
        return self.spent[-1][0] + (self.numbers.per or 0) if self.spent else None


class Offer(NamedTuple):
    """A job that could begin."""

    job_id: int
    priority: int
    weight: int


class LaneOffer(Struct):
    """A lane with the first of its jobs, in their order. `more`: it has others behind them."""

    lane: str
    served_at: int
    jobs: deque[Offer]
    allowance: Allowance
    more: bool = False
    taken: list[Offer] = field(default_factory=list)
    turn: int = 0  # when it was served last: counted over all lanes of its queue, 0 not yet
    refused: bool = False  # its own limit does not let the first of its jobs begin

    @property
    def left(self) -> bool:
        """Whether a job of it waits still."""
        return bool(self.jobs) or self.more


class QueueOffer(Struct):
    """What waits in a queue: jobs outside of lanes, in their order, and lanes."""

    queue: str | None  # None: of all queues without a limit together
    allowance: Allowance
    plain: deque[Offer] = field(default_factory=deque[Offer])
    lanes: list[LaneOffer] = field(default_factory=list[LaneOffer])
    taken: list[Offer] = field(default_factory=list)
    turns: int = 0  # how often a lane of it was served
    full: bool = False  # its limit does not let the next job begin


class _Plain:
    """The jobs outside of lanes as one party of a share."""

    def __init__(self, queue: QueueOffer) -> None:
        self.queue = queue

    @property
    def head(self) -> int | None:
        queue = self.queue
        return queue.plain[0].priority if queue.plain and not queue.full else None

    def take(self) -> bool:
        queue = self.queue
        if not queue.allowance.admits(queue.plain[0].weight):
            queue.full = True
            return False
        job = queue.plain.popleft()
        queue.allowance.take(job.weight)
        queue.taken.append(job)
        return True


class _Lanes:
    """The lanes of a queue as one party: by priority, then who was served least in this share,
    then least recently before."""

    def __init__(self, queue: QueueOffer) -> None:
        self.queue = queue
        self._line = [
            (-lane.jobs[0].priority, 0, lane.served_at, number)
            for number, lane in enumerate(queue.lanes)
            if lane.jobs
        ]
        heapify(self._line)

    @property
    def head(self) -> int | None:
        return -self._line[0][0] if self._line and not self.queue.full else None

    def take(self) -> bool:
        queue = self.queue
        while self._line:
            priority, served, served_at, number = self._line[0]
            lane = queue.lanes[number]
            weight = lane.jobs[0].weight
            if not lane.allowance.admits(weight):
                lane.refused = True
                heappop(self._line)
                if self.head != -priority:
                    return False
                continue
            if not queue.allowance.admits(weight):  # it is waited for, and not overtaken
                queue.full = True
                return False
            heappop(self._line)
            job = lane.jobs.popleft()
            lane.allowance.take(weight)
            queue.allowance.take(weight)
            lane.taken.append(job)
            queue.turns += 1
            lane.turn = queue.turns
            if lane.jobs:
                entry = (-lane.jobs[0].priority, served + 1, served_at, number)
                heappush(self._line, entry)
            return True
        return False


def share(room: int, queues: Sequence[QueueOffer], start: int = 0) -> int:
    """Choose up to `room` jobs: they are `taken` then. Return how many.

    By priority from the top. At one priority all parties (of each queue its lanes, and its jobs
    outside of lanes) take one job each in turn, so each has its part, and what one cannot use goes
    to the others; `start` says which begins. Lanes take turns among themselves. A job that its
    queue has no room for is waited for: nothing of that queue overtakes it. One that its lane has
    no room for keeps its lane waiting, and no other.
    """
    parties: list[_Plain | _Lanes] = []
    for queue in queues:
        if queue.plain:
            parties.append(_Plain(queue))
        if queue.lanes:
            parties.append(_Lanes(queue))
    chosen = 0
    while chosen < room:
        priority = max((p.head for p in parties if p.head is not None), default=None)
        if priority is None:
            break
        ring = [party for party in parties if party.head == priority]
        first = start % len(ring)
        ring = ring[first:] + ring[:first]
        while ring and chosen < room:
            for party in list(ring):
                if chosen == room:
                    break
                if party.head == priority and party.take():
                    chosen += 1
                if party.head != priority:
                    ring.remove(party)
    return chosen
