"""What an operation takes for itself before it reads what it will act on.

SQLite has one writer, so whoever writes holds everything and there is nothing to take: each step
here answers at once. An engine with many writers at a time overrides them:

    a chain that ends, opens again or begins to wait   is held: nobody begins to wait for it
    a chain that somebody begins to wait for           is shared: it stays as it is
    a job that is acted on from outside                is held, its chain first
    what a worker ends                                 is held without waiting, or left for later
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..operation import ENDED, Mark, Steps
from ..sql import Row
from .base import Base, as_json, int_of


class Hold(Base):
    """Steps that an engine with many writers overrides."""

    def hold_chains(self, chains: Iterable[int]) -> Steps[None]:
        """Chains that are about to end, to open again or to wait."""
        return
        yield

    def hold_jobs(self, jobs: Iterable[int], *, behind: bool = False) -> Steps[bool]:
        """Jobs that are about to be changed from outside, their chains first.

        `behind`: what waits behind them is followed, too, and must be seen as it is by now.
        True: what was read of them before may have changed.
        """
        return False
        yield

    def share_blockers(self, jobs: Iterable[int]) -> Steps[None]:
        """The chains that these jobs wait for stay as they are."""
        return
        yield

    def upstream(self, chains: Iterable[int], reopened: bool) -> Steps[set[int]]:
        """These chains and all that they wait for in turn, which stays so."""
        rows = yield self.sql.find_upstream(chains=as_json(chains), reopened=int(reopened))
        return {int_of(id) for (id,) in rows}

    def hold_workers(self, dead: set[int], gone: Collection[int], now: int) -> Steps[set[int]]:
        """Of these workers, those that are still dead and now ours to sweep."""
        return dead
        yield

    def is_registered(self, worker: int, name: str) -> Steps[bool]:
        """Whether a worker whose row could not be renewed is there all the same."""
        return False
        yield

    def hold_to_delete(self, chains: Sequence[int], jobs: Collection[int]) -> Steps[bool]:
        """Chains that are about to be deleted; False if they have other jobs by now."""
        return True
        yield

    def hold_old(self, rows: Sequence[Row]) -> Steps[Sequence[Row]]:
        """Of these ended chains (id, state, created_at, ended_at), those now ours to prune."""
        return rows
        yield

    def prune_position(self) -> Steps[int | None]:
        """Where retention stopped; None when somebody else is at it."""
        marks = yield self.sql.read_mark(name="prune")
        return int_of(marks[0][0]) if marks else 0

    def wake(self, queues: Iterable[str]) -> Steps[None]:
        """Say that there may be work in these queues: whoever runs the operation tells workers."""
        named = set(queues)
        if named:
            yield Mark(named)

    def tell_ended(self) -> Steps[None]:
        """Say that chains ended: whoever runs the operation tells those who wait for one."""
        yield ENDED
