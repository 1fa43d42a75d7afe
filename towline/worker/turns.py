"""What a worker holds and what it writes: one *turn* after the other.

A turn promotes what is due, finishes what ended and claims what fits, in one transaction. What
cannot be written stays here and is tried again; what cannot be stored at all fails its job alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import StoreError
from ..model import Claimed, Ending, type_of
from ..store.work import Report, Turn
from ..wakes.bell import Bell
from .ahead import Ahead
from .attempt import MOST_SET_BACK, Attempt
from .endings import Endings
from .last_try import Alone
from .lookout import Lookout
from .oversight import Oversight
from .pace import Pace
from .settings import PATIENCE, Settings
from .slots import Slots, kind_of

if TYPE_CHECKING:
    from ..app import Towline
    from ..operation import Op
    from .upkeep import Upkeep

log = logging.getLogger("towline.worker")

MOST = 200  # jobs in one turn


class Turns:
    """The attempts of one worker, from their claim to the commit of their end."""

    def __init__(
        self, app: Towline, settings: Settings, slots: Callable[[str], Slots], upkeep: Upkeep
    ) -> None:
        self._app = app
        self._runner = app.runner
        self._settings = settings
        self._slots = slots
        self._upkeep = upkeep
        self.worker = 0
        self.bell = Bell()
        self.held: dict[tuple[int, int], Attempt] = {}
        self._endings = Endings()
        self._reports: dict[tuple[int, int], Report] = {}  # the last of attempts that ended
        self._pace = Pace()
        self._lookout = Lookout(self._pace, upkeep, len(settings.queues))
        self._oversight = Oversight(self.held, slots, self._end)
        self._ahead = Ahead(self._pace)
        self._alone = Alone()
        self.finished = 0

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is claimed."""
        return False

    def _end(self, attempt: Attempt, ending: Ending | None) -> None:
        """An attempt is over, and so it will be recorded."""
        attempt.over = True
        if self._alone.wants_it_all:
            self._alone.over(attempt)
        if ending is None:
            return
        self._endings.add(ending)
        if attempt.report is not attempt.reported and ending.started:
            attempt.reported = attempt.report
            self._reports[attempt.key] = report_of(attempt)

    def _room(self) -> int:
        """How many more attempts may be claimed, for free slots and ahead of them."""
        if self.is_stopping or self._endings.full or self._alone.wants_it_all:
            return 0
        return self._settings.concurrency + self._prefetch() - len(self.held)

    def _prefetch(self) -> int:
        """How many may be claimed ahead; none while processes are used, which take longer."""
        ahead = self._settings.prefetch
        if self._pace.stalled:
            return 0
        if ahead is None:
            ahead = min(self._pace.ahead(self._settings.concurrency), 2 * MOST)
            if ahead and any(attempt.task.run_in == "process" for attempt in self.held.values()):
                ahead = 0
        return ahead

    def _look(self, *, shy: bool) -> None:
        """Look for work without taking the writer, which others may need."""
        settings = self._settings
        tasks = sorted(self._app.registry)
        self._lookout.woken = False  # before: who rings while we look may have come too late for it
        try:
            found = self._run(self._runner.store.peek(settings.queues, self._upkeep.peers, tasks))
        except BaseException:
            self._lookout.woken = True
            raise
        self._lookout.looked(found, tasks, shy=shy)
        if self._lookout.barren:
            if number := self._run(self._runner.store.drop_orphans(settings.queues)):
                log.warning("removed %d open jobs whose rows in the table of jobs are gone", number)

    def _running(self) -> set[tuple[int, int]]:
        ours: set[tuple[int, int]] = self._run(self._runner.store.running(self.worker))
        return ours

    def _turn(self) -> None:
        now = time.monotonic()
        room = min(max(self._room(), 0), MOST)
        free = min(max(self._settings.concurrency - len(self.held), 0), room)
        sent = self._endings.batch(now)
        lasting = self._ahead.lasting(now)
        reports = []
        if self._reports:
            reports = [self._reports[e.key] for e in sent if e.key in self._reports]
        settings = self._settings
        self._pace.begin_turn(sum(ending.started for ending in sent))
        try:
            turn = self._run(
                self._runner.store.turn(
                    self.worker, settings.name, settings.queues, free, sent,
                    self._lookout.unpark, ahead=room - free, begins=begins_of(lasting),
                    reports=reports,
                )
            )  # fmt: skip
        except StoreError:  # trouble of the database, and of no job: it is kept and tried again
            raise
        except Exception as error:
            if not sent:
                raise
            self._finish_singly(sent, error)  # one of them cannot be written as it is
            return
        self._pace.end_turn()
        self._pace.claimed(turn.claimed)
        self._ahead.recorded(lasting)
        self._settle(sent, turn.finished.postponed)
        if room:  # else there is nothing to say about what waits
            self._lookout.took(turn, room)
        self._start(turn, free)

    def _settle(self, sent: Sequence[Ending], postponed: Collection[int]) -> None:
        written = self._endings.settle(sent, postponed)
        self.finished += len(written)
        if self._reports:
            for key in written:
                self._reports.pop(key, None)

    def _finish_singly(self, sent: Sequence[Ending], why: Exception) -> None:
        """What cannot be stored is a failure of its job, and of no other."""
        settings = self._settings
        log.debug("endings are written one by one", exc_info=why)
        for ending in sent:
            try:
                done = self._run(self._runner.store.finish([ending], settings.name, self.worker))
            except StoreError:  # trouble of the database, and of no job: it is kept and tried again
                raise
            except Exception as error:
                self._refuse(ending, error)
            else:
                self._settle([ending], done.postponed)

    def _refuse(self, ending: Ending, error: Exception) -> None:
        if ending.error_type == type_of(error):  # not even that it was refused can be written
            log.error("%s %s cannot be recorded", *ending.key, exc_info=error)
            self._endings.discard(ending.key)  # a renewal finds the job and puts it back
            self._reports.pop(ending.key, None)
        else:
            self._endings.add(ending.refused(error))

    def _start(self, turn: Turn, free: int) -> None:
        unknown: list[Claimed] = []
        last = self._runner.store.crash_limit - 1
        for place, held in enumerate(turn.claimed):
            task = self._app.registry.get(held.task)
            if task is None:
                unknown.append(held)
                continue
            blockers = turn.blockers.get(held.job_id, ())
            attempt = Attempt(self._app, task, held, blockers, self.bell.ring)
            attempt.worker = self._settings.name, self.worker
            attempt.ledger = self._ahead.ledger
            self.held[attempt.key] = attempt
            in_danger = held.lost >= last
            if in_danger and kind_of(attempt) != "process" and attempt.set_back < MOST_SET_BACK:
                self._alone.add(attempt)
                continue
            if place >= free:
                self._ahead.add(attempt)
            elif in_danger:
                self._ahead.begins(attempt)
            self._give(attempt)
        if unknown:
            names = ", ".join(sorted({held.task for held in unknown}))
            log.warning("no task named %s here: set aside until a worker knows it", names)
            self._run(self._runner.store.park(unknown))

    def _give(self, attempt: Attempt) -> None:
        """To the slots of its kind; back to the database when they cannot take it."""
        try:
            self._slots(kind_of(attempt)).start(attempt)
        except Exception:
            log.exception("%s could not be started: it is handed back", attempt)
            attempt.withdraw()
            del self.held[attempt.key]
            self._end(attempt, attempt.put_off())

    def _hand_back(self, now: float) -> None:
        """What was claimed ahead and waits behind a slow job is for others."""
        for attempt in self._ahead.waiting_too_long(now):
            if attempt.key in self.held and attempt.withdraw():
                del self.held[attempt.key]
                self._end(attempt, attempt.released())
                self._pace.stalled = True

    def _start_alone(self, now: float) -> None:
        """One that would fail if it lost its worker once more runs when nothing else does here."""
        if not self._alone.wants_it_all:
            return
        # What has ended and is not written yet would be lost with this worker as well.
        others = len(self._endings) > 0 or any(
            kind_of(a) != "process" and not self._alone.has(a) for a in self.held.values()
        )
        if (attempt := self._alone.ready(now, others)) is not None:
            self._ahead.begins(attempt)
            self._give(attempt)
        for attempt in self._alone.waiting_too_long(now):
            if attempt.key in self.held and attempt.withdraw():
                del self.held[attempt.key]
                self._end(attempt, attempt.put_off())

    def _run(self, op: Op[Any]) -> Any:
        return self._runner.run(op, patience=PATIENCE)


def begins_of(attempts: Collection[Attempt]) -> list[tuple[Claimed, int]]:
    return [(attempt.held, attempt.started_at or attempt.held.claimed_at) for attempt in attempts]


def report_of(attempt: Attempt) -> Report:
    fraction, text = attempt.report or (None, None)
    return attempt.held, fraction, text
