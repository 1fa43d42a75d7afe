"""Opening ended jobs again: a retry, and all that the failure of the retried job had failed.

The mirror of the cascade, and as it one step for all dependents of a level: what waited for the
chains just opened comes back, or waits again, and then what waited for those. A dependent that
cannot come back stays as it ended: its key belongs to a newer chain, another chain it waited for
was deleted, or now waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..errors import DuplicateKey, InvalidState
from ..model import CHAIN_STATES, ChainState, Live, Policy
from ..operation import Row, Scalar, Steps
from ..records import JobRecord
from . import cascade, key, read
from .cascade import BAD
from .enqueue import LIVE
from .ground import FOREVER, EndedJob, Ground, as_json, chunks, int_of
from .key import KEY_MISSES, TAKE_KEY
from .lane import waiting_state
from .waiting import BLOCK_AGAIN


class Ended(NamedTuple):
    """An ended job, and the states of the chains it waited for."""

    record: JobRecord
    blockers: Mapping[int, ChainState]

    @property
    def unmet(self) -> int:
        """How many blockers it would wait for; under policy "wait" also those that failed."""
        return sum(
            state is ChainState.OPEN or (state in BAD and self.record.policy == Policy.WAIT)
            for state in self.blockers.values()
        )


def revive(
    store: Ground, record: JobRecord, blockers: Mapping[int, ChainState], now: int
) -> Steps[None]:
    """Open an ended job and its chain again, then what its failure had failed, and so on."""
    known: set[int] = set()  # the chains opened, and all that they wait for in turn
    opened = yield from _open_level(store, [Ended(record, blockers)], known, now, asked=True)
    ended: list[EndedJob] = []
    queues: set[str] = set()
    laned: list[Row] = []
    while opened:
        for job in opened:
            queues.add(job.queue)
            if job.lane is not None:  # it may wait for a blocker instead
                laned.append((job.queue, job.priority, job.lane))
            ended.append(EndedJob(job.queue, job.task, job.last_outcome or 0, ended=0, removed=1))
        behind = yield from _find_behind(store, opened)
        opened = yield from _open_level(store, behind, known, now, asked=False)
    yield from store.tell_filled(laned, now)
    yield from store.wake(queues)
    yield from store.count_ended(ended, now)


def blocker_states(
    store: Ground, jobs: Sequence[int]
) -> Steps[Mapping[int, dict[int, ChainState]]]:
    """What each of these jobs waits or waited for, as it stands until the commit."""
    yield from store.share_blockers(jobs)
    states: dict[int, dict[int, ChainState]] = {job: {} for job in jobs}
    for job, chain, state in (yield store.sql.blocker_states(jobs=as_json(jobs))):
        states[int_of(job)][int_of(chain)] = CHAIN_STATES[int_of(state)]
    return states


def _find_behind(store: Ground, opened: Sequence[JobRecord]) -> Steps[list[Ended]]:
    """The jobs that these chains had failed and that can come back. Those that are open wait
    again, unless they run just now."""
    behind = yield from cascade.behind(store, {record.chain_id for record in opened})
    found: list[Ended] = []
    for part in chunks(sorted({dependent.job_id for dependent in behind})):
        yield from store.hold_jobs(part)
        states = yield from blocker_states(store, part)
        again: list[Row] = []
        for record in (yield from read.records(store, part)):
            ended = Ended(record, states[record.id])
            if record.live_state is not None:
                if record.live_state != Live.RUNNING:
                    again.append((
                        ended.unmet, record.live_state, record.queue, record.priority,
                        record.id,
                    ))  # fmt: skip
            elif (
                record.last_blocker is not None
                and len(ended.blockers) == record.blockers
                and not any(state in BAD for state in ended.blockers.values())
            ):
                found.append(ended)
        if again:
            yield store.sql.block_again.many(BLOCK_AGAIN, again)
    return found


def _open_level(
    store: Ground, jobs: Sequence[Ended], known: set[int], now: int, *, asked: bool
) -> Steps[list[JobRecord]]:
    """Open those of these jobs that can be; refuse if one cannot that was asked for.

    What they wait for is walked once for all. Only a job whose chain was met on the way can
    close a circle: such ones go one by one, each by a walk of its own.
    """
    wanted = {chain for job in jobs if job.unmet for chain in job.blockers} - known
    if wanted:
        known |= yield from store.upstream(wanted, reopened=True)
    clear: list[Ended] = []
    met: list[Ended] = []
    for job in jobs:
        (met if job.unmet and job.record.chain_id in known else clear).append(job)
    opened = yield from _open_jobs(store, clear, now, asked)
    known.update(record.chain_id for record in opened)
    for job in met:
        if job.record.chain_id in (yield from store.upstream(job.blockers, reopened=True)):
            if not asked:
                continue
            raise InvalidState(
                f"job {job.record.id} cannot run again: what it waits for now waits for its "
                "own chain; enqueue it anew"
            )
        opened += yield from _open_jobs(store, [job], now, asked)
    return opened


def _open_jobs(
    store: Ground, jobs: Sequence[Ended], now: int, asked: bool
) -> Steps[list[JobRecord]]:
    opened: list[JobRecord] = []
    for part in chunks(jobs):
        taken = yield from _take_keys_back(store, [job.record for job in part], asked)
        part = [job for job in part if job.record.id not in taken]
        finals: list[Row] = []
        lives: list[Row] = []
        for job in part:
            record, waits = job.record, job.unmet
            # What waits again keeps its time; what does not is wanted now.
            state = Live.BLOCKED if waits else waiting_state(record.lane)
            run_at = (record.last_run_at or now) if waits else now
            finals.append((record.id, record.last_number))
            lives.append((
                int(state), record.queue, record.priority, record.id, record.last_number,
                waits, run_at, record.lane, record.weight,
            ))  # fmt: skip
        if part:
            yield store.sql.clear_final.many(("job_id", "number"), finals)
            yield store.sql.insert_live.many(LIVE, lives)
            chains: list[Row] = [(job.record.chain_id,) for job in part]
            yield store.sql.reopen_chain.many(("id",), chains)
        opened += [job.record for job in part]
    return opened


def _take_keys_back(store: Ground, records: Sequence[JobRecord], asked: bool) -> Steps[set[int]]:
    """A revived chain needs its key: at most one open chain may have it. Return the jobs whose
    key is another chain's now."""
    keyed = [record for record in records if record.key is not None]
    if not keyed:
        return set()
    found = yield from read.chain_records(store, [record.chain_id for record in keyed])
    chains = {chain.id: chain for chain in found}
    asking: dict[tuple[str, str], JobRecord] = {}
    for record in keyed:
        asking.setdefault((chains[record.chain_id].task, record.key or ""), record)
    wanted: list[Row] = [
        (*name, record.chain_id, chains[record.chain_id].created_at, FOREVER)
        for name, record in sorted(asking.items())
    ]
    counts = yield store.sql.take_key.counted(TAKE_KEY, wanted)
    kept: set[Scalar] = set()
    for row, (won,) in zip(wanted, counts, strict=True):
        if asked and not won:
            yield from _insist(store, row)
        if asked or won:
            kept.add(row[2])
    return {record.id for record in keyed if record.chain_id not in kept}


def _insist(store: Ground, wanted: Row) -> Steps[None]:
    """Ask for a key once more: the chain that had it may have been deleted this moment. Refuse
    when it was not, unless the chain is in a line and the next in it still waits: then what has
    the key waits for it, too."""
    task, name, own = str(wanted[0]), str(wanted[1]), int_of(wanted[2])
    if (yield from key.is_waited_for_in_line(store, own)):
        return
    for _ in range(KEY_MISSES):
        holder = yield store.sql.read_key(task=task, key=name)
        if holder:
            chain = int_of(holder[0][0])
            raise DuplicateKey(
                f"chain {own} cannot be retried: open chain {chain} has taken its key {name!r}",
                chain,
            )
        ((won,),) = yield store.sql.take_key.counted(TAKE_KEY, [wanted])
        if won:
            return
    raise key.orphan(task, name)
