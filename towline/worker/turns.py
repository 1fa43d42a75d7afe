"""The attempts that a worker holds, and what it writes: one *turn* after the other.

A turn promotes what is due, finishes what ended and claims what fits, in one transaction. What
cannot be written stays here and is tried again; what cannot be stored at all fails its job alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from ..errors import StoreError, TowlineError
from ..events import COMPLETED
from ..events.kinds import JobParked
from ..model import Claimed, Ending, Outcome, type_of
from ..store.finish import Finished
from ..store.lease import Report
from ..store.turn import Turn
from ..wakes.bell import Bell
from .announcements import Announcements, returned
from .attempt import Attempt, Key
from .claimed_ahead import ClaimedAhead
from .duty import NEVER
from .ending import MOST_SET_BACK, put_off
from .last_try import LastTries
from .lookout import Lookout
from .prefetch import Prefetch
from .settings import LOCK_WAIT, Settings
from .slots import Slots
from .unwritten import MOST_IN_TURN, Unwritten

if TYPE_CHECKING:
    from ..app import Towline
    from ..operation import Op
    from ..store import Store

T = TypeVar("T")


class Turns:
    """The attempts of one worker, from their claim to the commit of their end."""

    def __init__(self, app: Towline, settings: Settings, slots: Mapping[str, Slots]) -> None:
        self.app = app
        self.settings = settings
        self._slots = slots
        self.worker = 0  # the number under which it is registered
        self.stopping = False  # nothing more is claimed
        self.bell = Bell()
        self.held: dict[Key, Attempt] = {}
        self.endings = Unwritten()
        self._reports: dict[Key, Report] = {}  # the last progress of attempts that ended
        self.progress_made = False  # since it was written last
        self._prefetch = Prefetch()
        may_try = not app.runner.engine.has_one_writer
        self.lookout = Lookout(self._prefetch, len(settings.queues), may_try=may_try)
        self.ahead = ClaimedAhead(self._prefetch)
        self.last_tries = LastTries()
        self.finished = 0
        self._events = app.runner.events
        self.publish = self._events.publish
        self.announce = Announcements(
            self._events, settings.name, self.store.crash_limit, settings.error_text
        )

    @property
    def store(self) -> Store:
        return self.app.runner.store

    def run(self, op: Op[T]) -> T:
        """Run an operation; the pump waits for no lock for long."""
        return self.app.runner.run(op, patience=LOCK_WAIT)

    # ---- one attempt

    def start(self, attempt: Attempt) -> None:
        """Give it to the slots of its kind; back to the database when they cannot take it."""
        try:
            self._slots[attempt.task.slots].start(attempt)
        except Exception as error:
            self.publish(returned(attempt.held, "not started", error))
            attempt.withdraw()
            self.end(attempt, put_off(attempt))

    def ask_to_stop(self, attempt: Attempt, why: Outcome) -> None:
        attempt.ask_to_stop(why)
        self._slots[attempt.task.slots].interrupt(attempt)

    def abandon(self, attempt: Attempt) -> None:
        """It did not stop: its slot is given to others."""
        self._slots[attempt.task.slots].abandon(attempt)

    def end(self, attempt: Attempt, ending: Ending | None) -> None:
        """It is over: held no longer, and recorded so; None: there is nothing to record."""
        self.held.pop(attempt.held[:2], None)
        attempt.over = True
        if self.last_tries.want_it_all:
            self.last_tries.over(attempt)
        if attempt.begun is not None:
            self._prefetch.ended(attempt.lasted)
        if ending is None:
            return
        if ending.outcome is not Outcome.COMPLETED or COMPLETED in self._events.wanted:
            self.announce.ended(attempt, ending.outcome, ending)
        self.endings.add(ending)
        if attempt.progress is not attempt.progress_written and ending.started:
            attempt.progress_written = attempt.progress
            self._reports[attempt.key] = report_of(attempt)

    def forget(self, key: Key) -> None:
        """Whatever is still to be written of it is not this worker's to write."""
        self.endings.discard(key)
        self._reports.pop(key, None)
        self.announce.forget(key)

    def stall(self) -> None:
        """Nothing is claimed ahead any more until an attempt has ended."""
        self._prefetch.stalled = True

    # ---- turns

    def room(self) -> int:
        """How many more attempts may be claimed, for free slots and ahead of them."""
        if self.stopping or self.endings.full or self.last_tries.want_it_all:
            return 0
        return self.settings.concurrency + self._ahead() - len(self.held)

    def _ahead(self) -> int:
        """How many may be claimed ahead."""
        if self._prefetch.stalled:
            return 0
        if self.settings.prefetch is not None:
            return self.settings.prefetch
        return min(self._prefetch.ahead(self.settings.concurrency), 2 * MOST_IN_TURN)

    def note_progress(self) -> None:
        """From the thread of a handler."""
        if not self.progress_made:
            self.progress_made = True
            self.bell.ring()

    def take(self) -> None:
        """Take a turn."""
        now = time.monotonic()
        self._prefetch.begin_turn()  # what has ended says how much room there is
        room = min(max(self.room(), 0), MOST_IN_TURN)
        free = min(max(self.settings.concurrency - len(self.held), 0), room)
        sent = self.endings.batch(now)
        lasting = self.ahead.lasting(now) if self.ahead.at < NEVER else []
        reports = []
        if self._reports:
            reports = [self._reports[e.key] for e in sent if e.key in self._reports]
        settings = self.settings
        began = time.monotonic()
        try:
            turn = self.run(
                self.store.turn(
                    self.worker, settings.name, settings.queues, free, sent,
                    self.lookout.unpark, ahead=room - free, begins=begins_of(lasting),
                    reports=reports,
                )
            )  # fmt: skip
        except StoreError:  # trouble of the database, and of no job: it is kept and tried again
            raise
        except Exception as error:
            if not sent:
                raise
            if not isinstance(error, TowlineError):
                self.announce.changed("troubled", "writes endings one by one", error)
            self._finish_singly(sent)  # one of them cannot be written as it is
            return
        self._prefetch.end_turn()
        self._prefetch.claimed(turn.claimed)
        if lasting:
            self.ahead.recorded(lasting)
        self._note_written(sent, turn.finished)
        self.announce.turn_taken(turn.finished, len(turn.claimed), time.monotonic() - began)
        if room:  # else there is nothing to say about what waits
            self.lookout.took(turn, room)
        self._start_claimed(turn, free)

    def _note_written(self, sent: Sequence[Ending], finished: Finished) -> None:
        written = self.endings.settle(sent, finished.postponed)
        self.finished += len(written)
        self.announce.written(sent, finished)
        if self._reports:
            for key in written:
                self._reports.pop(key, None)

    def _finish_singly(self, sent: Sequence[Ending]) -> None:
        """What cannot be stored is a failure of its job, and of no other."""
        for ending in sent:
            try:
                done = self.run(self.store.finish([ending], self.settings.name, self.worker))
            except StoreError:  # trouble of the database, and of no job: it is kept and tried again
                raise
            except Exception as error:
                self._refuse(ending, error)
            else:
                self._note_written([ending], done)

    def _refuse(self, ending: Ending, error: Exception) -> None:
        if ending.error_type == type_of(error):  # not even that it was refused can be written
            self.publish(returned(ending.held, "not recorded", error))
            self.forget(ending.key)  # a renewal finds the job and puts it back
        else:
            self.endings.add(ending.refused(error))

    def _start_claimed(self, turn: Turn, free: int) -> None:
        unknown: list[Claimed] = []
        ahead: list[Attempt] = []
        last = self.store.crash_limit - 1
        app, find, name = self.app, self.app.registry.get, self.settings.name
        ledger, ring = self.ahead.ledger, self.bell.ring
        for place, held in enumerate(turn.claimed):
            task = find(held.task)
            if task is None:
                unknown.append(held)
                continue
            blockers = turn.blockers.get(held.job_id, ()) if held.blockers else ()
            attempt = Attempt(app, task, held, blockers, name, ledger, ring, self.note_progress)
            self.held[held[:2]] = attempt
            in_danger = held.lost >= last
            if in_danger and attempt.task.slots != "process" and attempt.set_back < MOST_SET_BACK:
                self.last_tries.add(attempt)
                continue
            if place >= free:
                attempt.ahead = True
                ahead.append(attempt)
                continue
            if in_danger:
                self.ahead.begins(attempt)
            self.start(attempt)
        if ahead:
            self.ahead.add(ahead)
            for attempt in ahead:
                self.start(attempt)
        if unknown:
            self.run(self.store.park(unknown))
            for name, count in Counter(held.task for held in unknown).items():
                self.publish(JobParked(task=name, count=count))


def begins_of(attempts: Collection[Attempt]) -> list[tuple[Claimed, int]]:
    return [(attempt.held, attempt.started_at or attempt.held.claimed_at) for attempt in attempts]


def report_of(attempt: Attempt) -> Report:
    fraction, text = attempt.progress or (None, None)
    return attempt.held, fraction, text
