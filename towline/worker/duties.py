"""The duties of a worker, in one list: what is done from time to time, and in which order.

A tick of the pump does those that are due, the first of the list first; until the next is due it
sleeps. So a duty is a class with `at` and `do`, and an entry here; nothing else knows of it.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable

from ..errors import StoreError
from ..events.kinds import JobOrphaned
from ..records import Ending
from .attempt import Attempt
from .claimed_ahead import begins_of
from .deadlines import OWNERSHIP_CHECK, Deadlines
from .declare import Declare
from .duty import NEVER, Duty
from .ending import put_off, released
from .lease import RenewLease
from .turns import Turns
from .upkeep import Prune, SweepDead, SweepExpired, TellSize

PROGRESS_INTERVAL = 0.3  # seconds between two writings of progress
# Seconds until a tick of a schedule that somebody holds is tried again.
SHORTEST_HELD, LONGEST_HELD = 0.1, 5.0
COURTESY = 0.02  # seconds that each worker leaves a tick to the one before it
LONGEST_COURTESY = 0.2


class Duties:
    """What the pump of one worker does, and the few of it that others ask for by name."""

    def __init__(self, turns: Turns, register: Callable[[], int]) -> None:
        self._turns = turns
        self.deadlines = Deadlines(turns)
        self.collect = CollectEnded(turns, self.deadlines)
        self.lease = RenewLease(turns, self.deadlines, register)
        self._declare = declare = Declare(turns)
        self.resized = TellSize(turns)
        # The order matters: endings free slots before room is asked for, a lease is renewed before
        # anything slow, limits are declared before anything is claimed, and a turn comes last of
        # what moves jobs, with all that the others found or stored.
        self._all: tuple[Duty, ...] = (
            self.collect,
            self.lease,
            self.deadlines,
            declare,
            WatchClaimedAhead(turns),
            StartLastTry(turns),
            FireTicks(turns),
            LookForWork(turns),
            TakeTurn(turns, self.collect),
            PutBackStrays(turns, self.lease),
            StartChunks(turns),
            WriteProgress(turns),
            self.resized,
            SweepDead(turns, declare),
            SweepExpired(turns),
            Prune(turns),
        )

    def register(self) -> None:
        """Before all else: there is a worker."""
        self.lease.register()
        self._declare.begin()

    @property
    def at(self) -> float:
        """When the first of them is due."""
        if self._turns.deadline_set:  # its ring may have been heard by a pause after trouble
            return 0.0
        return min(duty.at for duty in self._all)

    def do(self, now: float) -> None:
        """Do all that is due, or becomes due by what was done before it."""
        turns, deadlines = self._turns, self.deadlines
        if turns.deadline_set:
            turns.deadline_set = False  # before: another may be set meanwhile
            if turns.held or deadlines.dismissed:
                deadlines.watch(now)
        try:
            for duty in self._all:
                if now >= duty.at:
                    duty.do(now)
        finally:
            to_slots = turns.ahead.to_slots
            if to_slots.held_back and not (self.collect or turns.endings.at == 0.0):
                to_slots.let_go()  # no turn follows at once
            if turns.held and deadlines.at == NEVER:  # what was claimed now begins later
                deadlines.at = now + OWNERSHIP_CHECK


class CollectEnded:
    """The reports of slots: how attempts have ended."""

    def __init__(self, turns: Turns, deadlines: Deadlines) -> None:
        self._turns = turns
        self._dismissed = deadlines.dismissed
        self._ended: deque[tuple[Attempt, Ending | None]] = deque()

    def __len__(self) -> int:
        return len(self._ended)

    def add(self, attempt: Attempt, ending: Ending | None) -> None:
        """From whatever thread the slot has."""
        if attempt.ended is None:
            attempt.ended = time.monotonic()
        self._ended.append((attempt, ending))

    @property
    def at(self) -> float:
        return 0.0 if self._ended else NEVER

    def do(self, now: float) -> None:
        turns, held, dismissed = self._turns, self._turns.held, self._dismissed
        while self._ended:
            attempt, ending = self._ended.popleft()
            if dismissed:
                dismissed.pop(attempt, None)
            if attempt.held[:2] not in held:
                turns.spans.refused(attempt, ending)
                continue  # it was lost or abandoned meanwhile
            if ending is None:
                turns.finished += attempt.completed_inside
                turns.announce.ended(attempt, attempt.inside)
                turns.spans.over(attempt, None)
                if attempt.held.queue in turns.gated:  # no turn comes to write its end
                    turns.lookout.may_have_work = True
                    turns.lookout.freed.add(attempt.held.queue)
            turns.end(attempt, ending)


class WatchClaimedAhead:
    """Jobs that were claimed ahead: those that wait behind a slow one go back, for other workers;
    those that have begun and last are recorded as begun, if no turn has done so on its way."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    @property
    def at(self) -> float:
        return self._turns.ahead.at

    def do(self, now: float) -> None:
        turns = self._turns
        for attempt in turns.ahead.waiting_too_long(now):
            if attempt.key in turns.held and attempt.withdraw():
                turns.end(attempt, released(attempt))
                turns.stall()
        if lasting := turns.ahead.lasting(now):
            turns.run(turns.store.progress((), begins_of(lasting)))
        turns.ahead.recorded(lasting)


class StartLastTry:
    """The last try of a job that lost its workers, when nothing else runs here."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._tries = turns.last_tries

    @property
    def at(self) -> float:
        if not self._tries.want_it_all:
            return NEVER
        return 0.0 if self._can_start(time.monotonic()) else self._tries.at

    def _can_start(self, now: float) -> bool:
        turns, tries = self._turns, self._tries
        # What has ended and is not written yet would be lost with this worker as well.
        if not tries.is_next(now) or turns.endings:
            return False
        return all(a.task.slots == "process" or tries.has(a) for a in turns.held.values())

    def do(self, now: float) -> None:
        turns = self._turns
        if self._can_start(now):
            attempt = self._tries.start(now)
            turns.ahead.begins(attempt)
            turns.start(attempt)
        for attempt in self._tries.waiting_too_long(now):
            self._tries.over(attempt)
            if attempt.key in turns.held and attempt.withdraw():
                turns.end(attempt, put_off(attempt))


class FireTicks:
    """Ticks of this worker's tasks, when they have come.

    Any worker does it, for tasks that it knows, whether it has a free slot or not. There is no
    leader: who gets a schedule's row fires it. A worker learns from its looks when the next tick
    is, and sleeps until then; one whose tasks have no schedules asks for nothing.
    """

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._pause = SHORTEST_HELD

    @property
    def at(self) -> float:
        turns = self._turns
        if turns.next_tick == NEVER or turns.stopping:
            return NEVER
        return turns.next_tick + min(turns.lookout.rank * COURTESY, LONGEST_COURTESY)

    def do(self, now: float) -> None:
        turns = self._turns
        tasks = sorted(turns.app.registry)
        if turns.lookout.rank:  # most likely the one before has done it: look, without the writer
            began = time.monotonic()
            seen = turns.run(turns.store.glance(tasks))
            turns.note_tick(seen.next_tick, seen.now, began)
            if seen.next_tick is None or seen.next_tick > seen.now:
                return
        began = time.monotonic()
        fired = turns.run(turns.store.fire(tasks))
        if fired.jobs:
            turns.lookout.may_have_work = True
        if fired.postponed:
            turns.next_tick = time.monotonic() + random.uniform(0.5, 2) * self._pause
            self._pause = min(2 * self._pause, LONGEST_HELD)
            return
        self._pause = SHORTEST_HELD
        turns.note_tick(fired.next_tick, fired.now, began)


class LookForWork:
    """Looks at what is there, without the writer, which others may need."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._lookout = turns.lookout

    @property
    def at(self) -> float:
        return self._lookout.at if self._turns.room() > 0 else NEVER

    def do(self, now: float) -> None:
        lookout = self._lookout
        lookout.note_time(now)
        if not lookout.tries() and lookout.wants_look(now):
            self._look(let_others_first=lookout.woken and not self._turns.held)

    def _look(self, *, let_others_first: bool) -> None:
        turns, lookout = self._turns, self._lookout
        queues, tasks = turns.queues(), tuple(turns.app.known_tasks)
        began = time.monotonic()
        lookout.woken = False  # before: who rings while we look may have come too late for it
        try:
            # With an order of preference a claim is whole, so a look is as well.
            worker = None if turns.settings.shares else turns.worker
            found = turns.run(turns.store.peek(queues, lookout.peers, tasks, worker))
        except BaseException:
            lookout.woken = True
            raise
        turns.gated = found.gated
        lookout.looked(found, tasks, let_others_first=let_others_first)
        turns.note_tick(found.next_tick, found.now, began)
        if lookout.barren:
            if number := turns.run(turns.store.drop_orphans(queues)):
                turns.publish(JobOrphaned(count=number))


class TakeTurn:
    """A turn: when there are endings to write, or room for work that may be there."""

    def __init__(self, turns: Turns, collect: CollectEnded) -> None:
        self._turns = turns
        self._collect = collect
        self._takes: dict[str, float] = {}  # seconds, by the statements of the turn
        self._began = "", 0.0

    @property
    def at(self) -> float:
        turns = self._turns
        at = turns.endings.at
        lookout = turns.lookout
        if at and (lookout.freed or (lookout.may_have_work and turns.room() > 0)):
            return 0.0
        return at

    def do(self, now: float) -> None:
        self._turns.take(self)

    def begins(self, statement: str, *, idle: bool) -> None:
        """The database works, and slots may as well: as long as this thread is idle, or as the
        statement takes, or it would have to wait for the interpreter."""
        turns = self._turns
        to_slots = turns.ahead.to_slots
        if to_slots.held_back:
            to_slots.let_go(None if idle else self._takes.get(statement, 0.0))
        elif idle and not (turns.settings.shares or turns.gated):  # their room has been counted
            self._collect.do(0.0)
        self._began = statement, time.thread_time()

    def ended(self) -> None:
        statement, began = self._began
        took = time.thread_time() - began
        self._takes[statement] = 0.8 * self._takes.get(statement, took) + 0.2 * took


class PutBackStrays:
    """What a claim took whose answer was lost: a renewal puts it back. Behind the turn, which may
    have endings to write while the database lets nobody renew."""

    def __init__(self, turns: Turns, lease: RenewLease) -> None:
        self._turns = turns
        self._lease = lease

    @property
    def at(self) -> float:
        return 0.0 if self._turns.has_strays else NEVER

    def do(self, now: float) -> None:
        self._lease.do(now)
        self._turns.has_strays = False


class StartChunks:
    """Chunks that have waited long enough for more, behind a turn that may have brought it."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    @property
    def at(self) -> float:
        return min(self._turns.chunks.at, self._turns.lost_items.at)

    def do(self, now: float) -> None:
        self._turns.start_chunks(now)


class WriteProgress:
    """The progress that handlers have reported, a few times a second at most."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._next_at = 0.0

    @property
    def at(self) -> float:
        return self._next_at if self._turns.progress_made else NEVER

    def do(self, now: float) -> None:
        turns = self._turns
        turns.progress_made = False  # before: what is reported from now on may be missed
        fresh = [a for a in turns.held.values() if a.progress is not a.progress_written]
        for attempt in fresh:
            attempt.progress_written = attempt.progress
        self._next_at = time.monotonic() + PROGRESS_INTERVAL
        if not fresh:
            return
        try:
            turns.run(turns.store.progress([attempt.reported for attempt in fresh]))
        except StoreError:  # it is kept and tried again
            for attempt in fresh:
                attempt.progress_written = None
            turns.progress_made = True
            raise
