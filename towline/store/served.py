"""Which queues a worker serves: names, or words for several of them; and in which order.

`"*"` is every queue, `"-slow"` all but one. What they stand for is looked up when it is needed: a
queue may be used for the first time this moment. Names alone cost no statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..model import Live
from ..naming import EVERY, serves
from ..operation import Steps
from .ground import Ground


class Portion(NamedTuple):
    """Queues that are claimed from as one, and how many jobs at most."""

    queues: Sequence[str]
    most: int


def named(store: Ground, queues: Sequence[str], *states: Live) -> Steps[Sequence[str]]:
    """The names of what is served, of those that have jobs in one of these states."""
    if EVERY not in queues:
        return queues
    found: set[str] = set()
    for state in states:
        for queue, _ in (yield store.sql.live_strips(state=int(state))):
            if serves(queues, str(queue)):
                found.add(str(queue))
    return sorted(found)


def among(portion: Portion, names: Sequence[str]) -> Portion:
    """A portion by its names, where those of all that is served are known."""
    if EVERY not in portion.queues:
        return portion
    return Portion([name for name in names if serves(portion.queues, name)], portion.most)
