"""Rows an operation takes before it reads what it acts on: PostgreSQL has many writers at a time.

Whoever waits takes rows in the order of their ids, a chain before its jobs. A statement sees the
database as it was when it began, so what is decided by a lock is read by a later statement.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ..errors import WrongIsolation
from ..operation import Steps
from ..sql import Queries, Row
from ..store import Store
from ..store.base import Clock, as_json, host_clock, int_of

READ_COMMITTED = "read committed"


def ended_channel(channel: str) -> str:
    """Where is said that chains ended, beside the channel of new work."""
    return f"{channel}_ended"


class Holding(Store):
    """The database's clock and ids, and what is held."""

    def __init__(self, sql: Queries, channel: str | None, clock: Clock | None = None) -> None:
        super().__init__(sql, clock or host_clock)
        self._own_clock = clock is None
        self._channel = channel

    def now(self) -> Steps[int]:
        """The database's clock decides; a test may bring its own."""
        if not self._own_clock:
            return self.clock()
        ((now,),) = yield self.sql.clock()
        return int_of(now)

    def new_ids(self, number: int) -> Steps[Sequence[int]]:
        return [int_of(id) for (id,) in (yield self.sql.next_job_id(number=number))]

    def hold_chains(self, chains: Iterable[int]) -> Steps[None]:
        yield self.sql.hold_chains(chains=as_json(set(chains)))

    def hold_jobs(self, jobs: Iterable[int], *, behind: bool = False) -> Steps[bool]:
        listed = as_json(jobs)
        rows = yield self.sql.chains_of_jobs(jobs=listed)
        if behind:
            self.refuse_old_snapshot(rows)
        yield from self.hold_chains(int_of(id) for id, _ in rows)
        yield self.sql.hold_jobs(jobs=listed)
        return True

    def share_blockers(self, jobs: Iterable[int]) -> Steps[None]:
        rows = yield self.sql.blockers_of_jobs(jobs=as_json(jobs))
        if rows:
            yield self.sql.share_chains(chains=as_json(id for (id,) in rows))

    def upstream(self, chains: Iterable[int], reopened: bool) -> Steps[set[int]]:
        """Look, share what was found, and look again, until there is nothing new: of several
        that would close a circle together the last one sees the others. Who asks shares the
        chains he begins with."""
        chains = list(chains)
        shared = set(chains)
        while True:
            found = yield from super().upstream(chains, reopened)
            if found <= shared:
                return found
            yield self.sql.share_chains(chains=as_json(found - shared))
            shared |= found

    def hold_workers(self, dead: set[int], gone: Collection[int], now: int) -> Steps[set[int]]:
        if not dead:
            return dead
        rows = yield self.sql.hold_workers(
            workers=as_json(sorted(dead)), gone=as_json(sorted(gone)), now=now
        )
        return {int_of(id) for (id,) in rows}

    def is_registered(self, worker: int, name: str) -> Steps[bool]:
        ((found,),) = yield self.sql.is_registered(id=worker, name=name)
        return bool(found)

    def hold_to_delete(self, chains: Sequence[int], jobs: Collection[int]) -> Steps[bool]:
        listed = as_json(chains)
        self.refuse_old_snapshot((yield self.sql.hold_doomed(chains=listed)))
        yield self.sql.hold_jobs(jobs=as_json(jobs))
        yield self.sql.hold_keys(chains=listed)
        rows = yield self.sql.chain_job_ids(chains=listed)
        return {int_of(id) for id, *_ in rows} <= set(jobs)

    def hold_old(self, rows: Sequence[Row]) -> Steps[Sequence[Row]]:
        """A chain that somebody looks at, or whose key somebody takes, is pruned another time."""
        held = yield self.sql.hold_doomed_now(chains=as_json(id for id, *_ in rows))
        self.refuse_old_snapshot(held)
        keys = yield self.sql.hold_keys_now(chains=as_json(id for id, *_ in held))
        busy = {chain for chain, ours in keys if not ours}
        return [row[:-1] for row in held if row[0] not in busy]

    def prune_position(self) -> Steps[int | None]:
        marks = yield self.sql.read_mark(name="prune")
        return int_of(marks[0][0]) if marks else None

    def wake(self, queues: Iterable[str]) -> Steps[None]:
        named = sorted(set(queues))
        yield from super().wake(named)
        if named and self._channel:
            yield self.sql.notify(channel=self._channel, queues=as_json(named))

    def tell_ended(self) -> Steps[None]:
        yield from super().tell_ended()
        if self._channel:
            yield self.sql.notify_ended(channel=ended_channel(self._channel))

    def refuse_old_snapshot(self, rows: Sequence[Row]) -> None:
        """Refuse to end, open again or delete what was taken, when the transaction goes on seeing
        the database as it was at its first statement. Each row ends with the level."""
        level = rows[0][-1] if rows else READ_COMMITTED
        if level not in (READ_COMMITTED, "read uncommitted"):  # which the server takes for the same
            raise WrongIsolation(
                f"a {str(level).upper()} transaction does not see who has just begun to wait for a "
                "chain, so it must not end, retry or delete jobs: use READ COMMITTED for this "
                "transaction, or call this without on= after your commit"
            )
