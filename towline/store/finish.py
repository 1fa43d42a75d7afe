"""Recording how attempts ended, fenced by job, attempt and worker.

completed             → the job is completed; its chain too
continued             → the job is completed; the next job of the chain is stored with it
failed, timeout       → scheduled again after a delay (used + 1), or failed when used up
snoozed               → scheduled again, no attempt used
cancelled             → cancelled, the chain too
lost                  → scheduled again after a wide jitter (lost + 1), or failed at the limit
released              → pending again, nothing used; an attempt never started leaves no row
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from ..model import (
    CHAIN_END,
    END_STATE,
    OUTCOME_CODE,
    Claimed,
    Ending,
    Finished,
    JobRecord,
    Live,
    NewJob,
    Outcome,
)
from ..operation import Steps, operation
from ..sql import Row
from ..times import micros
from .cascade import DELETE_LIVE, OUTSIDE, EndedChain, EndedJob
from .enqueue import Enqueue, Placed

CRASH_LIMIT = 3
# Seconds after which a lost attempt's job comes back: at least, at most, and however often.
LOST_BASE = 1.0
LOST_SPREAD = 10.0
LOST_CAP = 600.0

RECORD = (
    "outcome", "final", "worker", "started_at", "now", "output", "error", "error_type",
    "continued_by", "ended_by", "queue", "priority", "job_id", "attempt", "held_by",
)  # fmt: skip
PUT_BACK = ("state", "run_at", "used", "lost", "queue", "priority", "job_id", "attempt", "held_by")


@dataclass(slots=True)
class Verdict:
    """What one ending means: the job is over, or goes back with these counters."""

    ending: Ending
    final: bool
    state: Live = Live.PENDING
    run_at: int | None = None
    used: int = 0
    lost: int = 0
    successor: int | None = None


class Reserved(NamedTuple):
    """Endings that can be written now; those that must wait, since somebody holds what they need.

    `alone`: no job is behind the chains that end.
    """

    ready: Sequence[Verdict]
    later: Sequence[Verdict] = ()
    alone: bool = False


def lost_delay(losses: int, draw: Callable[[], float] = random.random) -> int:
    """Return the microseconds a lost attempt waits before its job comes back.

    Drawn widely, so that jobs that died with one worker are not claimed together again.
    """
    base = LOST_BASE + (LOST_SPREAD - LOST_BASE) * draw()
    return micros(min(LOST_CAP, base * 2 ** min(max(losses - 1, 0), 20)))


class Finish(Enqueue):
    """The operation every attempt ends with."""

    crash_limit = CRASH_LIMIT

    @operation()
    def finish(
        self, endings: Sequence[Ending], worker: str | None = None, slot: int = OUTSIDE
    ) -> Steps[Finished]:
        """Record endings; one whose attempt is no longer the running one changes nothing.

        The attempt's row, the job's end, its continuation, the chain's end and every job that
        this frees are written in the one transaction that is open. Which were accepted is said.
        """
        if not endings:
            return Finished()
        now = yield from self.now()
        verdicts = [self._judge(ending, now) for ending in endings]
        settled = yield from self.settle(verdicts, worker, slot, now)
        rest: Sequence[Verdict] = verdicts
        if settled:
            written = {id(verdict) for verdict in settled}
            rest = [verdict for verdict in verdicts if id(verdict) not in written]
        finished = yield from self._finish_rest(rest, worker, slot, now)
        if settled:
            place = {ending.held.job_id: number for number, ending in enumerate(endings)}
            finished.accepted += [verdict.ending.held.job_id for verdict in settled]
            finished.accepted.sort(key=place.__getitem__)
        return finished

    def settle(
        self, verdicts: Sequence[Verdict], worker: str | None, slot: int, now: int
    ) -> Steps[list[Verdict]]:
        """End the plainest in a quicker way, where an engine has one; return those."""
        return []
        yield

    def _finish_rest(
        self, verdicts: Sequence[Verdict], worker: str | None, slot: int, now: int
    ) -> Steps[Finished]:
        if not verdicts:
            return Finished()
        reserved = yield from self.reserve(verdicts)
        continued = [v for v in reserved.ready if v.ending.outcome is Outcome.CONTINUED]
        if continued:
            for verdict, successor in zip(
                continued, (yield from self.new_ids(len(continued))), strict=True
            ):
                verdict.successor = successor
        accepted = yield from self._record(reserved.ready, worker, now)
        yield from self.wake(
            v.ending.held.queue for v in accepted if not v.final and v.state is Live.PENDING
        )
        over = [verdict for verdict in accepted if verdict.final]
        freed = yield from self._consequences(over, now, alone=reserved.alone)
        yield from self.count_ended(
            [
                EndedJob(
                    v.ending.held.queue,
                    v.ending.held.task,
                    OUTCOME_CODE[v.ending.outcome],
                    max(now - (v.ending.started_at or v.ending.held.claimed_at), 0),
                )
                for v in over
            ],
            now,
            slot,
        )
        kept = {id(verdict) for verdict in accepted}
        later = {id(verdict) for verdict in reserved.later}
        return Finished(
            [v.ending.held.job_id for v in verdicts if id(v) in kept],
            [v.ending.held.job_id for v in verdicts if id(v) not in kept and id(v) not in later],
            freed,
            [v.ending.held.job_id for v in reserved.later],
        )

    def reserve(self, verdicts: Sequence[Verdict]) -> Steps[Reserved]:
        """Take all that these endings will touch, without waiting for anybody."""
        return Reserved(verdicts)
        yield

    def _judge(self, ending: Ending, now: int) -> Verdict:
        held = ending.held
        verdict = Verdict(ending, False, Live.SCHEDULED, None, held.used, held.lost)
        match ending.outcome:
            case Outcome.FAILED | Outcome.TIMEOUT:
                verdict.used += 1
                verdict.final = ending.delay is None or verdict.used >= held.max_attempts
            case Outcome.LOST:
                verdict.lost += 1
                verdict.final = ending.delay is None or verdict.lost >= self.crash_limit
            case Outcome.RELEASED:
                verdict.state = Live.PENDING
            case Outcome.SNOOZED:
                pass
            case _:
                verdict.final = True
        if verdict.state is Live.SCHEDULED:
            verdict.run_at = now + max(ending.delay or 0, 0)
        return verdict

    def _record(
        self, verdicts: Sequence[Verdict], worker: str | None, now: int
    ) -> Steps[list[Verdict]]:
        """Write attempt rows and move live rows; return what passed the fence."""
        started = [verdict for verdict in verdicts if verdict.ending.started]
        rows: list[Row] = []
        for verdict in started:
            ending = verdict.ending
            held = ending.held
            rows.append((
                OUTCOME_CODE[ending.outcome], 1 if verdict.final else None, worker,
                ending.started_at, now, ending.output, ending.error, ending.error_type,
                verdict.successor, None,
                held.queue, held.priority, held.job_id, held.attempt, held.worker,
            ))  # fmt: skip
        accepted: list[Verdict] = []
        if rows:
            counts = yield self.sql.record_attempts.counted(RECORD, rows)
            accepted = [v for v, (n,) in zip(started, counts, strict=True) if n]
            over: list[Row] = [_live_key(v.ending.held) for v in accepted if v.final]
            if over:
                yield self.sql.delete_live.many(DELETE_LIVE, over)
            back = [_put_back(v) for v in accepted if not v.final]
            if back:
                yield self.sql.put_back.many(PUT_BACK, back)
        unstarted = [verdict for verdict in verdicts if not verdict.ending.started]
        if unstarted:
            counts = yield self.sql.put_back.counted(PUT_BACK, [_put_back(v) for v in unstarted])
            accepted += [v for v, (n,) in zip(unstarted, counts, strict=True) if n]
        return accepted

    def _consequences(self, over: Sequence[Verdict], now: int, *, alone: bool) -> Steps[int]:
        """Store continuations and end chains for jobs that are over."""
        continued: list[Placed] = []
        ended: list[EndedChain] = []
        for verdict in over:
            held = verdict.ending.held
            if verdict.successor is not None and verdict.ending.next is not None:
                continued.append(successor_of(held, verdict.ending.next, verdict.successor))
            else:
                state = CHAIN_END[END_STATE[verdict.ending.outcome]]
                ended.append(EndedChain(held.chain_id, state, held.key))
        if continued:
            yield from self.insert(continued, now)
        return (yield from self.end_chains(ended, now, held=True, alone=alone))


def successor_of(before: Claimed | JobRecord, job: NewJob, id: int) -> Placed:
    """Place a continuation; it takes queue, priority and trace from its predecessor unless told."""
    heir = replace(
        job,
        queue=before.queue if job.inherit_queue else job.queue,
        priority=before.priority if job.inherit_priority else job.priority,
        key=before.key,
        trace=job.trace or before.trace,
    )
    return Placed(id, before.chain_id, before.position + 1, heir, heir.blockers)


def _live_key(held: Claimed) -> Row:
    return (int(Live.RUNNING), held.queue, held.priority, held.job_id)


def _put_back(verdict: Verdict) -> Row:
    held = verdict.ending.held
    return (
        int(verdict.state), verdict.run_at, verdict.used, verdict.lost,
        held.queue, held.priority, held.job_id, held.attempt, held.worker,
    )  # fmt: skip
