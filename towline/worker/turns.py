"""The attempts that a worker holds, and what it writes: one *turn* after the other.

A turn promotes what is due, finishes what ended and claims what fits, in one transaction. What
cannot be written stays here and is tried again; what cannot be stored at all fails its job alone.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from threading import Event
from typing import TYPE_CHECKING, TypeVar

from ..errors import CommitUnknown, StoreError, TowlineError
from ..events import COMPLETED
from ..events.kinds import JobExpired, JobParked, TurnTaken
from ..model import Outcome, type_of
from ..naming import EVERY
from ..records import Claimed, Ending
from ..store.expiry import expiry
from ..store.finish import Finished
from ..store.lease import Report
from ..store.served import Portion
from ..store.turn import Turn, waiting
from ..times import MICRO
from .announcements import Announcements, returned
from .attempt import Attempt, Key
from .chunks import ChunkRun, Chunks, LostItems, may_share
from .claimed_ahead import ClaimedAhead, ToSlots, begins_of
from .duty import NEVER
from .ending import MOST_SET_BACK, put_off
from .last_try import LastTries
from .lookout import Lookout, Prefetch
from .preference import Preference
from .settings import LOCK_WAIT, Settings
from .slots import Slots
from .spans import Spans
from .unwritten import MOST_IN_TURN, Unwritten

if TYPE_CHECKING:
    from ..app import Towline
    from ..app.declarations import Declarations
    from ..operation import Onlooker, Op
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
        self.answered = 0.0  # when the database last did
        self.bell = Event()  # the one thing its pump waits for
        self.held: dict[Key, Attempt] = {}
        self.endings = Unwritten()
        self._reports: dict[Key, Report] = {}  # the last progress of attempts that ended
        self._late: dict[Key, str] = {}  # tasks of what came too late and is not written yet
        self.progress_made = False  # since it was written last
        self.deadline_set = False  # of an attempt, since they were looked at last
        self._prefetch = Prefetch()
        may_try = not app.runner.engine.has_one_writer
        self.preference = Preference(settings)
        several = len(settings.queues) > 1 or EVERY in settings.queues
        self.lookout = Lookout(self._prefetch, several=several, may_try=may_try)
        self.ahead = ClaimedAhead(self._prefetch, ToSlots(slots, self._not_started))
        self.last_tries = LastTries()
        self.next_tick = NEVER  # of a schedule of one of its tasks, by the monotonic clock
        self.chunks = Chunks()
        self.lost_items = LostItems()
        self.finished = 0
        self.has_strays = False  # jobs that it has claimed, or may have, and does not know
        self.gated: Sequence[str] = ()  # queues with limits or lanes, as they were seen last
        self._ran = 0  # attempts that began and are over
        self.spans = Spans(app)
        self._events = app.runner.events
        self.publish = self._events.publish
        self.announce = Announcements(app, settings)

    @cached_property
    def declarations(self) -> Declarations:
        """What the code declares when the worker starts."""
        return self.app.declarations()

    @property
    def store(self) -> Store:
        return self.app.runner.store

    def run(self, op: Op[T]) -> T:
        """Run an operation; the pump waits for no lock for long."""
        answer = self.app.runner.run(op, patience=LOCK_WAIT)
        self.answered = time.monotonic()
        return answer

    # ---- one attempt

    def start(self, attempt: Attempt) -> None:
        """Give it to the slots of its kind; back to the database when they cannot take it."""
        if attempt.task.chunk is not None and not isinstance(attempt, ChunkRun):
            attempt = ChunkRun.of(attempt)  # it runs alone
        try:
            self._slots[attempt.task.slots].start(attempt)
        except Exception as error:
            self._not_started([attempt], error)

    def _not_started(self, attempts: Sequence[Attempt], error: Exception) -> None:
        for attempt in attempts:
            self.publish(returned(attempt.held, "not started", error))
            attempt.withdraw()
            for each, ending in attempt.reports(put_off(attempt)):
                self.end(each, ending)

    def start_chunks(self, now: float) -> None:
        """Start those that have waited long enough for more, and the next that was lost before."""
        for run in self.chunks.due(now):
            self._start_chunk(run)
        while (item := self.lost_items.next()) is not None:
            self._start_chunk(ChunkRun.of(item))
        for item in self.lost_items.waiting_too_long(now):
            if item.withdraw():
                self.end(item, put_off(item))

    def _start_chunk(self, run: ChunkRun) -> None:
        if run.drop_over():
            for item in run.items:
                if item.ahead:  # its claim did not record it as begun
                    self.ahead.begins(item)
            self.start(run)

    def ask_to_stop(self, attempt: Attempt, why: Outcome) -> None:
        """Of a chunk only when none of its items should go on."""
        attempt.ask_to_stop(why)
        chunk = attempt.chunk
        if chunk is None:
            self._slots[attempt.task.slots].interrupt(attempt)
        elif isinstance(chunk, ChunkRun) and all(i.over or i.stopped_for for i in chunk.items):
            chunk.ask_to_stop(why)
            self._slots[attempt.task.slots].interrupt(chunk)

    def abandon(self, attempt: Attempt) -> None:
        """It did not stop: its slot is given to others; that of a chunk with the last item."""
        chunk = attempt.chunk
        if chunk is None:
            self._slots[attempt.task.slots].abandon(attempt)
        elif isinstance(chunk, ChunkRun):
            attempt.abandoned = True
            if all(item.over or item.abandoned for item in chunk.items):
                self._slots[attempt.task.slots].abandon(chunk)

    def end(self, attempt: Attempt, ending: Ending | None) -> None:
        """It is over: held no longer, and recorded so; None: there is nothing to record."""
        if self.settings.shares and self.preference.is_full(attempt.held.queue, self.held.values()):
            self.lookout.may_have_work = True  # what a full queue has was not looked at
        self.held.pop(attempt.held[:2], None)
        if attempt.task.chunk is not None and not attempt.over:
            self.lost_items.over(attempt)
            if attempt.chunk is not None:
                self.chunks.over(attempt.chunk)
        attempt.over = True
        if attempt.late and ending is not None:
            self._late[attempt.key] = attempt.held.task
        if self.last_tries.want_it_all:
            self.last_tries.over(attempt)
        if attempt.begun is not None:
            self._ran += 1
            self._prefetch.ended(attempt.lasted)
        if ending is None:
            return
        if attempt.span is not None:
            self.spans.over(attempt, ending)
        if ending.outcome is not Outcome.COMPLETED or COMPLETED in self._events.wanted:
            self.announce.ended(attempt, ending.outcome, ending)
        self.endings.add(ending)
        if attempt.progress is not attempt.progress_written and ending.started:
            attempt.progress_written = attempt.progress
            self._reports[attempt.key] = attempt.reported

    def forget(self, key: Key) -> None:
        """Whatever is still to be written of it is not this worker's to write."""
        self.endings.discard(key)
        self._reports.pop(key, None)
        self._late.pop(key, None)
        self.announce.forget(key)
        self.spans.forget(key)

    def stall(self) -> None:
        """Nothing is claimed ahead any more until an attempt has ended."""
        self._prefetch.stalled = True

    def note_tick(self, next_tick: int | None, now: int, began: float) -> None:
        """When the next tick is, by the database's clock, on which it was `now` in a look that
        began then: rather a moment too early than too late."""
        self.next_tick = NEVER
        if next_tick is not None:
            self.next_tick = began + (next_tick - now) / MICRO

    # ---- turns

    def room(self) -> int:
        """How many more attempts may be claimed, for free slots and ahead of them."""
        if self.stopping or self.endings.full or self.last_tries.want_it_all:
            return 0
        chunks = self.chunks
        room = self.settings.concurrency + self._ahead() - len(self.held) + chunks.extra
        room = room if self._prefetch.stalled else room + chunks.space
        if self.settings.max_jobs is not None:
            room = min(room, self.settings.max_jobs - self._ran - len(self.held))
        return self.preference.room(self.held.values(), room) if self.settings.shares else room

    def _free(self) -> int:
        """How many slots nothing is claimed for: all that queues with limits or lanes give for."""
        return self.settings.concurrency - len(self.held) + self.chunks.extra

    @property
    def has_run_all(self) -> bool:
        """Whether as many have run as were to."""
        most = self.settings.max_jobs
        return most is not None and self._ran >= most and not self.held

    def queues(self) -> Sequence[str]:
        """Those of which more may be claimed."""
        if not self.settings.shares:
            return self.settings.queues
        return self.preference.open(self.held.values())

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
            self.bell.set()

    def note_deadline(self) -> None:
        """From the thread of a handler, which has begun."""
        self.deadline_set = True
        self.bell.set()

    def take(self, onlooker: Onlooker) -> None:
        """Take a turn, and tell when the database is busy with it."""
        now = time.monotonic()
        self._prefetch.begin_turn()  # what has ended says how much room there is
        room = min(max(self.room(), 0), MOST_IN_TURN)
        free = min(max(self._free(), 0), room)
        sent = self.endings.batch(now)
        lasting = self.ahead.lasting(now) if self.ahead.at < NEVER else []
        reports = []
        if self._reports:
            reports = [self._reports[e.key] for e in sent if e.key in self._reports]
        settings = self.settings
        portions: Sequence[Portion] = ()
        if settings.shares and room:
            portions = self.preference.portions(self.held.values(), room)
        more = sent or lasting or portions or self.gated or self.lookout.unpark
        alone = self.lookout.trying and not more
        began = time.monotonic()
        try:
            op = self.store.turn(
                self.worker, settings.name, settings.queues, free, sent,
                self.lookout.unpark, ahead=room - free,
                begins=begins_of(lasting) if lasting else (),
                reports=reports, gated=self.gated, portions=portions, alone=alone,
                freed=self.lookout.freed,
            )  # fmt: skip
            op.onlooker = onlooker
            turn = self.run(op)
            if turn.alone and (waited := waiting(turn.claimed)):
                self.has_strays = True  # unless their blockers can be read
                turn.blockers = self.run(self.store.blockers(waited))
                self.has_strays = False
        except StoreError as error:  # of the database, and of no job: it is kept and tried again
            self.has_strays = self.has_strays or (alone and isinstance(error, CommitUnknown))
            raise
        except Exception as error:
            if not sent:
                raise
            if not isinstance(error, TowlineError):
                self.announce.changed("troubled", "writes endings one by one", error)
            self._finish_singly(sent)  # one of them cannot be written as it is
            return
        self.lookout.freed.clear()
        self._prefetch.end_turn()
        self._prefetch.claimed(turn.claimed)
        if lasting:
            self.ahead.recorded(lasting)
        self._note_written(sent, turn.finished)
        if TurnTaken.name in self._events.wanted:
            self.announce.turn_taken(turn, time.monotonic() - began)
        if turn.gated is not None:
            self.gated = turn.gated
        if room:  # else there is nothing to say about what waits
            self.lookout.took(turn, room)
        self._start_claimed(turn)
        if self.gated and len(turn.claimed) >= free > 0 and self._free() > 0:
            self.lookout.may_have_work = True  # chunks have gathered all of it, and take more
        if turn.expired:
            self._publish_expired(held.task for held in turn.expired)

    def _note_written(self, sent: Sequence[Ending], finished: Finished) -> None:
        written = self.endings.settle(sent, finished.postponed)
        self.finished += len(written)
        if self.announce.untold:
            self.announce.written(sent, finished)
        if self.spans.open:
            self.spans.written(sent, finished)
        if self._reports:
            for key in written:
                self._reports.pop(key, None)
        if self._late:
            late = {key: task for key in written if (task := self._late.pop(key, None))}
            accepted = set(finished.accepted)
            self._publish_expired(task for (job, _), task in late.items() if job in accepted)

    def _publish_expired(self, tasks: Iterable[str]) -> None:
        for task, count in Counter(tasks).items():
            self.publish(JobExpired(task=task, count=count))

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

    def _start_claimed(self, turn: Turn) -> None:
        unknown: list[Claimed] = []
        ahead: list[Attempt] = []
        last = self.store.crash_limit - 1
        app, find, name = self.app, self.app.registry.get, self.settings.name
        ledger, note = self.ahead.ledger, self.note_deadline
        for place, held in enumerate(turn.claimed):
            task = find(held.task) or app.built_in.get(held.task)
            if task is None:
                self._set_aside(held, unknown)
                continue
            blockers = turn.blockers.get(held.job_id, ()) if held.blockers else ()
            attempt = Attempt(app, task, held, blockers, name, ledger, note, self.note_progress)
            self.held[held[:2]] = attempt
            in_danger = held.lost >= last
            if in_danger and attempt.task.slots != "process" and attempt.set_back < MOST_SET_BACK:
                self.last_tries.add(attempt)
                continue
            if task.chunk is not None and (held.lost or may_share(held)):
                attempt.ahead = place >= turn.begun
                if not may_share(held):
                    self.lost_items.add(attempt)
                elif (full := self.chunks.add(attempt)) is not None:
                    self._start_chunk(full)
                continue
            if place >= turn.begun:
                attempt.ahead = True
                ahead.append(attempt)
                continue
            if in_danger:
                self.ahead.begins(attempt)
            self.start(attempt)
        if ahead:
            if self.bell.is_set():  # what has ended is written at once
                self.ahead.to_slots.hold_back()
            self.ahead.start(ahead)
        if self.chunks.at < NEVER or self.lost_items.at < NEVER:
            self.start_chunks(time.monotonic())
        if unknown:
            self.run(self.store.park(unknown))
            for name, count in Counter(held.task for held in unknown).items():
                self.publish(JobParked(task=name, count=count))

    def _set_aside(self, held: Claimed, unknown: list[Claimed]) -> None:
        """A job of a task that is not known here; it may have come too late all the same."""
        if held.expires_at is not None and held.expires_at <= held.claimed_at:
            self._late[held[:2]] = held.task
            self.endings.add(expiry(held))
        else:
            unknown.append(held)
