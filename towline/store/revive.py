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
from ..model import CHAIN_STATES, ChainState, JobRecord, Live, Policy
from ..operation import Steps
from ..sql import Row
from . import cascade, read
from .cascade import EndedJob
from .enqueue import KEY_MISSES, LIVE, TAKE_KEY, orphan
from .ground import FOREVER, Ground, as_json, chunks, int_of

BAD = (ChainState.FAILED, ChainState.CANCELLED)
BLOCK_AGAIN = ("open_blockers", "state", "queue", "priority", "job_id")


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
    opened = yield from _open_level(store, [Ended(record, blockers)], known, now, record)
    ended: list[EndedJob] = []
    queues: set[str] = set()
    while opened:
        for job in opened:
            queues.add(job.queue)
            ended.append(EndedJob(job.queue, job.task, job.last_outcome or 0, None, 0, 1))
        behind = yield from _find_behind(store, opened)
        opened = yield from _open_level(store, behind, known, now, None)
    yield from store.wake(queues)
    yield from cascade.count_ended(store, ended, now)


def _find_behind(store: Ground, opened: Sequence[JobRecord]) -> Steps[list[Ended]]:
    """The jobs that these chains had failed and that can come back. Those that are open wait
    again, unless they run just now."""
    ids: set[int] = set()
    for part in chunks(sorted({record.chain_id for record in opened})):
        rows = yield store.sql.find_blocked_by(chains=as_json(part))
        ids.update(int_of(id) for (id,) in rows)
    found: list[Ended] = []
    for part in chunks(sorted(ids)):
        yield from store.hold_jobs(part)
        yield from store.share_blockers(part)
        states: dict[int, dict[int, ChainState]] = {}
        for job, chain, state in (yield store.sql.blocker_states(jobs=as_json(part))):
            states.setdefault(int_of(job), {})[int_of(chain)] = CHAIN_STATES[int_of(state)]
        again: list[Row] = []
        for record in (yield from read.records(store, part)):
            ended = Ended(record, states.get(record.id, {}))
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
    store: Ground, jobs: Sequence[Ended], known: set[int], now: int, asked: JobRecord | None
) -> Steps[list[JobRecord]]:
    """Open those of these jobs that can be; refuse if the one that was asked for cannot.

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
            if asked is None:
                continue
            raise InvalidState(
                f"job {job.record.id} cannot run again: what it waits for now waits for its "
                "own chain; enqueue it anew"
            )
        opened += yield from _open_jobs(store, [job], now, asked)
    return opened


def _open_jobs(
    store: Ground, jobs: Sequence[Ended], now: int, asked: JobRecord | None
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
            state = Live.BLOCKED if waits else Live.PENDING
            run_at = (record.last_run_at or now) if waits else now
            finals.append((record.id, record.last_number))
            lives.append((
                int(state), record.queue, record.priority, record.id, record.last_number,
                waits, run_at,
            ))  # fmt: skip
        if part:
            yield store.sql.clear_final.many(("job_id", "number"), finals)
            yield store.sql.insert_live.many(LIVE, lives)
            chains: list[Row] = [(job.record.chain_id,) for job in part]
            yield store.sql.reopen_chain.many(("id",), chains)
        opened += [job.record for job in part]
    return opened


def _take_keys_back(
    store: Ground, records: Sequence[JobRecord], asked: JobRecord | None
) -> Steps[set[int]]:
    """A revived chain needs its key: at most one open chain may have it. Return the jobs whose
    key is another chain's now."""
    keyed = [record for record in records if record.key is not None]
    if not keyed:
        return set()
    rows = yield store.sql.chain_records(ids=as_json(r.chain_id for r in keyed))
    tasks = {int_of(row[0]): (str(row[1]), int_of(row[3])) for row in rows}
    asking: dict[tuple[str, str], JobRecord] = {}
    lost: set[int] = set()
    for record in keyed:
        name = (tasks[record.chain_id][0], record.key or "")
        if asking.setdefault(name, record) is not record:
            lost.add(record.id)
    names = sorted(asking)
    wanted: list[Row] = [
        (*name, asking[name].chain_id, tasks[asking[name].chain_id][1], FOREVER) for name in names
    ]
    counts = yield store.sql.take_key.counted(TAKE_KEY, wanted)
    missed = [name for name, (won,) in zip(names, counts, strict=True) if not won]
    for task, key in missed:
        record = asking[task, key]
        lost.add(record.id)
        if asked is not None and (yield from _insist(store, wanted[names.index((task, key))])):
            lost.discard(record.id)
    return lost


def _insist(store: Ground, wanted: Row) -> Steps[bool]:
    """Ask for a key once more, since who had it may have been deleted this moment; say who has
    it otherwise."""
    task, key, own = str(wanted[0]), str(wanted[1]), int_of(wanted[2])
    for _ in range(KEY_MISSES):
        holder = yield store.sql.read_key(task=task, key=key)
        if holder:
            chain = int_of(holder[0][0])
            raise DuplicateKey(
                f"chain {own} cannot be retried: open chain {chain} has taken its key {key!r}",
                chain,
            )
        ((won,),) = yield store.sql.take_key.counted(TAKE_KEY, [wanted])
        if won:
            return True
    raise orphan(task, key)
