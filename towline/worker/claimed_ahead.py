"""Jobs that a worker has claimed ahead of its free slots: quick ones need not wait for turns.

They must not wait for anything else. A line that stands still for a moment stands behind a slow
job: all that wait go back, and an idle worker may take them. Those that began and last are
recorded as begun; for quick ones that would cost more than they do.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence

from ..records import Claimed
from .attempt import Attempt
from .chunks import ChunkRun
from .duty import NEVER
from .lookout import Prefetch
from .slots import Slots
from .unwritten import Ledger

LASTING = 0.02  # seconds after which an attempt is worth being recorded as begun


class ToSlots:
    """What was claimed ahead, on its way to the slots of its kind.

    Quick handlers have the interpreter until the last of them is done, and the pump waits for it
    after each statement; when its database works, none of them is left. So they are held back from
    one turn to the next, and let go as long as the database works.
    """

    def __init__(
        self, slots: Mapping[str, Slots], refused: Callable[[Sequence[Attempt], Exception], None]
    ) -> None:
        self._slots = slots
        self._refused = refused
        self.held_back = False

    def add(self, attempts: Sequence[Attempt]) -> None:
        kinds: dict[str, list[Attempt]] = {}
        for attempt in attempts:
            each = attempt if attempt.task.chunk is None else ChunkRun.of(attempt)  # it runs alone
            kinds.setdefault(attempt.task.slots, []).append(each)
        for kind, some in kinds.items():
            try:
                self._slots[kind].start_ahead(some)
            except Exception as error:
                self._refused(some, error)

    def hold_back(self) -> None:
        self.held_back = True
        for slots in self._slots.values():
            slots.hold_back()

    def let_go(self, seconds: float | None = None) -> None:
        """For so long; None: until they are held back again."""
        self.held_back = seconds is not None
        for slots in self._slots.values():
            slots.let_go(NEVER if seconds is None else seconds)


class ClaimedAhead:
    """The line of what was claimed ahead, in the order in which slots take it."""

    def __init__(self, prefetch: Prefetch, to_slots: ToSlots) -> None:
        self._prefetch = prefetch
        self.to_slots = to_slots
        self._line: deque[Attempt] = deque()
        self._still_since = 0.0  # when the head of the line became that
        self._begun: dict[Attempt, None] = {}  # began, and the database does not know
        self.at = NEVER  # when there may be something to do
        self.ledger: Ledger | None = None

    def open(self, worker: int) -> None:
        """A worker has registered under this number: keep its ledger, where that can be done."""
        self.close()
        try:
            self.ledger = Ledger(worker)
        except OSError:
            self.ledger = None  # should it die, all that it held counts as begun

    def close(self) -> None:
        if self.ledger is not None:
            self.ledger.close()
        self.ledger = None
        self._line.clear()
        self._begun.clear()
        self.at = NEVER

    def start(self, attempts: Sequence[Attempt]) -> None:
        """They were claimed ahead, and go to their slots."""
        now = time.monotonic()
        if not self._line:
            self._still_since = now
        self._line.extend(attempts)
        self.at = min(self.at, now + LASTING)
        self.to_slots.add(attempts)

    def begins(self, attempt: Attempt) -> None:
        """It was not recorded as begun by its claim, and goes to a free slot now."""
        self._begun[attempt] = None
        self.at = min(self.at, time.monotonic() + LASTING)

    def waiting_too_long(self, now: float) -> Collection[Attempt]:
        """All that wait, if the line has stood still for longer than quick jobs take."""
        self._advance()
        if not self._line or now < self._still_since + self._prefetch.patience:
            return ()
        line, self._line = self._line, deque()
        return line

    def lasting(self, now: float) -> list[Attempt]:
        """Those that began a while ago and are not recorded as begun."""
        self._advance()
        found = []
        for attempt in list(self._begun):
            if attempt.over:
                del self._begun[attempt]
            elif attempt.begun is not None and now >= attempt.begun + LASTING:
                found.append(attempt)
        return found

    def recorded(self, attempts: Collection[Attempt]) -> None:
        """The database knows that these have begun; see when there is something to do again."""
        for attempt in attempts:
            self._begun.pop(attempt, None)
        self.at = time.monotonic() + LASTING if self._line or self._begun else NEVER

    def _advance(self) -> None:
        """Let those leave the head of the line that have begun or gone back."""
        line, moved = self._line, False
        while line and (line[0].begun is not None or line[0].withdrawn):
            attempt = line.popleft()
            moved = True
            if not attempt.withdrawn and not attempt.over:
                self._begun[attempt] = None
        if moved:
            self._still_since = time.monotonic()


def begins_of(attempts: Collection[Attempt]) -> list[tuple[Claimed, int]]:
    return [(attempt.held, attempt.started_at or attempt.held.claimed_at) for attempt in attempts]
