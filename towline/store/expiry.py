"""Jobs that come too late to start: they end in the claim that finds them, cancelled, without a
start. Their slots, if a limit counts them, are free again."""

from __future__ import annotations

from collections.abc import Sequence

from ..model import Outcome
from ..operation import Steps
from ..records import Claimed, Ending
from ..times import to_datetime
from . import finish
from .ground import Ground


def expire(
    store: Ground, late: Sequence[Claimed], worker: int, name: str | None, now: int
) -> Steps[set[int]]:
    """End jobs that were claimed too late to start; return those that could be. What another
    transaction holds stays claimed: its worker ends it when it would begin."""
    ended = yield from finish.finish(store, list(map(expiry, late)), name, worker, now)
    return set(ended.accepted)


def expiry(held: Claimed) -> Ending:
    """The end of a job that came too late to start."""
    assert held.expires_at is not None
    reason = f"not started before {to_datetime(held.expires_at).isoformat()}"
    return Ending(held, Outcome.CANCELLED, error=reason, started=False)
