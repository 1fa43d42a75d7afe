"""When a worker looks for work, by wakes, due times and what its last look has shown; and how many
jobs it claims ahead of its free slots, measured from how it goes."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from ..records import Claimed
from ..store.turn import Peeked, Turn
from ..times import MICRO

LOOK_INTERVAL = 5.0  # seconds between looks for work when no wake comes
BUSY_INTERVAL = 0.1  # the same when one comes and turns find work without it
SHORT_PAUSE = 0.02  # seconds until the next look when less was claimed than seemed to be there
LONGEST_OVERDUE = 1.0  # seconds between tries to get a due job that another transaction holds
LONGEST_COURTESY = 0.2  # seconds between tries to get the gate of a queue
BARREN_TURNS = 3  # turns in a row that took nothing though jobs were there
TURNS_AHEAD = 4  # as many are claimed ahead as can run during so many turns
BYTES_AHEAD = 8 * 1024 * 1024  # of arguments that wait for a slot, about
OVERHEAD = 50e-6  # seconds between two handlers in one slot


class Prefetch:
    """The number of jobs to claim ahead: while handlers are shorter than a turn, as many as the
    slots can run during a few turns; else they would stand idle meanwhile, and turns would be
    small. Moving averages tell; it is 0 as soon as attempts stop to end."""

    def __init__(self) -> None:
        self._turn = 0.002  # seconds a turn takes
        self._handler = 0.0  # seconds a handler takes
        self._size = 0.0  # bytes of a job's arguments
        self._at = time.monotonic()
        self._ended = 0  # attempts since the last turn began
        self._lasted = 0.0  # seconds that those took together
        self._ended_at = 0.0
        self.stalled = False  # what was claimed ahead went back, and nothing has ended since

    def ended(self, lasted: float) -> None:
        """An attempt has ended, whose handler took so many seconds."""
        self._ended += 1
        self._lasted += lasted

    def begin_turn(self) -> None:
        self._at = time.monotonic()
        if self._ended:
            mean = self._lasted / self._ended
            weight = self._ended / (self._ended + 1)
            # One slow handler counts at once: what is claimed behind the next would wait for it.
            self._handler = max(mean, self._handler + (mean - self._handler) * weight)
            self._ended, self._lasted = 0, 0.0
            self._ended_at = self._at
            self.stalled = False

    def end_turn(self) -> None:
        self._turn += (time.monotonic() - self._at - self._turn) * 0.1

    @property
    def peer_delay(self) -> float:
        """Seconds that one of many idle workers lets another go first: as long as a claim takes."""
        return max(2 * self._turn, 0.004)

    @property
    def patience(self) -> float:
        """Seconds in which the next of the jobs claimed ahead begins, unless behind a slow one. A
        turn says how busy the machine is: quick handlers take longer then, too."""
        return min(max(2 * self._turn, 0.05), 0.25)

    def claimed(self, jobs: Sequence[Claimed]) -> None:
        """These were claimed: see how large they are."""
        if jobs:
            size = sum(len(job.arguments) for job in jobs) / len(jobs)
            self._size = max(size, self._size + (size - self._size) * 0.2)

    def ahead(self, concurrency: int) -> int:
        patience = self.patience
        if self._handler >= 2 * self._turn or time.monotonic() > self._ended_at + patience:
            return 0
        seconds = min(TURNS_AHEAD * self._turn, patience)
        number = round(concurrency * seconds / (self._handler + OVERHEAD))
        return min(number, int(BYTES_AHEAD / max(self._size, 1.0)))


class Lookout:
    """Whether a turn is worth taking, and when to look otherwise."""

    def __init__(self, prefetch: Prefetch, *, several: bool, may_try: bool) -> None:
        self._prefetch = prefetch
        self._several = several  # queues
        self._may_try = may_try  # a turn that finds nothing disturbs nobody
        self.peers = 1  # workers that are there, this one too
        self.rank = 0  # its place among them
        self.may_have_work = True  # a turn may find some
        self.freed: set[str] = set()  # queues with limits where jobs have ended beside the turns
        self.woken = False
        self.trying = False  # a turn is taken for a wake, without a look …
        self._look_by = float("inf")  # … which comes by then, however many turns there are
        self._in_vain = False  # the last of those took nothing, so a look comes first …
        self._claimed_alone = False  # … only the next time: it was a claim, and no whole turn
        self.due: float | None = None  # when a scheduled job comes, by the monotonic clock
        self.look_at = 0.0
        self._looked_at = 0.0
        self.unpark: Sequence[str] = ()  # tasks whose parked jobs the next turns bring back
        self._barren = 0
        self._pause = SHORT_PAUSE
        self._overdue = SHORT_PAUSE
        self._courtesy = SHORT_PAUSE

    @property
    def at(self) -> float:
        """When there is a reason to look, or a scheduled job to take."""
        look = self._next_look
        return look if self.due is None else min(look, self.due)

    @property
    def _next_look(self) -> float:
        """After a wake at once, or in a while if turns find work without a look."""
        if not self.woken:
            return self.look_at
        if not self.may_have_work:
            return 0.0
        return min(self.look_at, self._looked_at + BUSY_INTERVAL)

    def note_time(self, now: float) -> None:
        if self.due is not None and now >= self.due:
            self.due, self.may_have_work = None, True

    def wants_look(self, now: float) -> bool:
        return now >= self._next_look

    def tries(self) -> bool:
        """Whether a wake is answered with a turn at once: of several idle workers the first need
        not look whether it leaves the jobs to others. It looks later, for what no turn can see."""
        now = time.monotonic()
        first = self._may_try and self.rank == 0 and not self._in_vain
        # Not when the look that is owed is due: wakes may come one after the other.
        if self.woken and first and not self.may_have_work and now < self._look_by:
            self.woken, self.may_have_work, self.trying = False, True, True
            self._look_by = min(self._look_by, now + BUSY_INTERVAL)
        return self.trying

    @property
    def barren(self) -> bool:
        """Whether jobs are there that no turn can take: they may have lost their rows."""
        return self._barren >= BARREN_TURNS

    def looked(self, found: Peeked, tasks: Sequence[str], *, let_others_first: bool) -> None:
        """A look has shown this. Of many idle workers that were woken together only the first few
        take a turn, as many as there are jobs; the others look again a moment later, in case one of
        those is gone."""
        now = self._looked_at = time.monotonic()
        self.look_at, self._look_by = now + LOOK_INTERVAL, float("inf")
        if found.parked:
            self.unpark = tasks
        rank = self.rank
        overdue = self._note_due(found.next_due, found.now)
        if let_others_first and 0 < found.pending <= rank and not found.parked:
            self.look_at = now + self._prefetch.peer_delay * (rank // found.pending)
        elif found.pending or found.parked or (overdue and self._overdue == SHORT_PAUSE):
            self.may_have_work = True
        else:
            self._pause = SHORT_PAUSE
        if not found.pending:
            self._barren = 0
        if self._claimed_alone:
            self._in_vain = False

    def took(self, turn: Turn, room: int) -> None:
        """A turn had room for so many: was that all there is, and when to look again?"""
        if turn.unparked == 0:
            self.unpark = ()
        found = len(turn.claimed) + len(turn.expired)
        self.may_have_work = turn.again or found >= room
        self._barren = 0 if found else self._barren + (not turn.alone)
        if found:
            self._pause = SHORT_PAUSE
        if turn.promoted:
            self._overdue = SHORT_PAUSE
        pause = LOOK_INTERVAL
        if self._several and not self.may_have_work:
            # Others may have held for a moment what they did not take.
            pause, self._pause = self._pause, min(4 * self._pause, LOOK_INTERVAL)
        if turn.missed:  # a gate, as long as another claims under it, or has not committed
            pause = min(pause, self._courtesy * random.uniform(0.5, 1.5))
            self._courtesy = min(2 * self._courtesy, LONGEST_COURTESY)
        else:
            self._courtesy = self._prefetch.peer_delay
        if self.trying:
            self.trying, self._in_vain, self._claimed_alone = False, not found, turn.alone
        elif found:
            self._in_vain = False
        self.look_at = min(time.monotonic() + pause, self._look_by)
        if turn.alone:
            self.woken = self.woken or not found  # what else it was woken for a look will say
            return
        if not self.may_have_work and self._note_due(turn.next_due, turn.now):
            self._overdue = min(2 * self._overdue, LONGEST_OVERDUE)

    def _note_due(self, next_due: int | None, now: int) -> bool:
        """When the next scheduled job comes. One that is overdue after a turn is held by another
        transaction: it is tried less and less often."""
        if next_due is None:
            self.due = None
            return False
        if next_due > now:
            self.due = time.monotonic() + (next_due - now) / MICRO
            self._overdue = SHORT_PAUSE
            return False
        self.due = time.monotonic() + self._overdue
        return True
