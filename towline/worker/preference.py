"""From which of its queues a worker takes jobs first, and how many of each it runs at a time.

A turn claims from the first queue, and what room is left from the next. Every tenth turn takes one
job of a later queue before that, each of them in its turn: what is preferred goes first, and what
is not stands still for no backlog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import cycle

from ..naming import EVERY, serves
from ..store.served import Portion
from .attempt import Attempt
from .settings import Settings, Share

OTHERS_FIRST = 10  # one of so many turns


class Preference:
    """The shares of one worker. Asked only when it has some."""

    def __init__(self, settings: Settings) -> None:
        self._words = settings.queues
        self._shares = settings.shares
        self._limited = any(share.slots is not None for share in self._shares)
        self._turns = 0
        self._later: Iterator[Share] = cycle(self._shares[1:])

    def room(self, held: Collection[Attempt], most: int) -> int:
        """How many more may be claimed, of those for which there is room otherwise."""
        if not self._limited:
            return most
        return min(most, sum(self._free(share, held, max(most, 0)) for share in self._shares))

    def open(self, held: Collection[Attempt]) -> Sequence[str]:
        """The words for queues of which more may be claimed."""
        if not self._limited:
            return self._words
        full = [share for share in self._shares if not self._free(share, held, 1)]
        words = list(self._words)
        for share in full:
            word = EVERY if EVERY in share.queues else share.queues[0]
            words.remove(word)
            if word != EVERY:
                words.append(f"-{word}")
        if EVERY not in words:
            words = [word for word in words if not word.startswith("-")]
        return words

    def portions(self, held: Collection[Attempt], room: int) -> list[Portion]:
        """What a turn claims from, one after the other."""
        free = {share: self._free(share, held, room) for share in self._shares}
        first: list[Portion] = []
        self._turns += 1
        if self._turns % OTHERS_FIRST == 0 and len(self._shares) > 1:
            share = next(self._later)
            if free[share]:
                first.append(Portion(share.queues, 1))
                # What it takes now it must not take again: the turn cannot say how many it took.
                if share.slots is not None:
                    free[share] -= 1
        return first + [Portion(s.queues, free[s]) for s in self._shares if free[s]]

    def is_full(self, queue: str, held: Collection[Attempt]) -> bool:
        """Whether no more of this queue could be claimed because of its slots."""
        return self._limited and any(
            not self._free(share, held, 1) for share in self._shares if serves(share.queues, queue)
        )

    def _free(self, share: Share, held: Collection[Attempt], most: int) -> int:
        if share.slots is None:
            return most
        taken = Counter(attempt.held.queue for attempt in held)
        running = sum(number for queue, number in taken.items() if serves(share.queues, queue))
        return min(max(share.slots - running, 0), most)
