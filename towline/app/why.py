"""One sentence: why a job does not run, for every state it can be in."""

from __future__ import annotations

import json
from datetime import timedelta

from ..model import ChainState, Live, Outcome, State, unknown_task
from ..naming import EVERY, serves
from ..records import WorkerRecord
from ..store.why import MOST_BEFORE, MOST_NAMED, HeldBack, Why
from ..task import GROUP
from ..times import MICRO, length, to_datetime

SHOWN = 5  # chains and queues that are named; the others are counted


def sentence(why: Why) -> str:
    """What keeps the job from running, or what became of it."""
    return _SENTENCES[why.job.state](why)


def _pending(why: Why) -> str:
    job = why.job
    if job.parked_for == unknown_task(job.task):
        return f"no running worker knows task {job.task}: start one of a release that has it"
    if job.held_by is not None:
        return (
            f"worker {job.worker or job.held_by} has claimed it, and begins it when a slot is free"
        )
    if held_up := _held_up(why):
        return held_up
    if why.held_back is not None:
        return _held_back(why, why.held_back)
    if job.lane is not None and job.live_state == Live.PARKED:
        return _in_lane(why)
    if why.before >= MOST_BEFORE:
        return f"at least {MOST_BEFORE} jobs are before it in queue {job.queue}"
    if why.before:
        jobs = "1 job is" if why.before == 1 else f"{why.before} jobs are"
        return f"{jobs} before it in queue {job.queue}"
    return f"it is the next of queue {job.queue}: a worker takes it when a slot is free"


def _held_back(why: Why, held: HeldBack) -> str:
    """Which limit, filled by which jobs or closed until when."""
    job, most = why.job, held.numbers.concurrency
    where = f"queue {job.queue}" if held.lane is None else f"lane {held.lane} of queue {job.queue}"
    if held.rests:
        return f"{where} rests until {_time(held.opens_at or why.now)}: a handler asked for it"
    if held.opens_at is not None:
        per = _span(held.numbers.per or 0)
        return (
            f"{where} has used up its rate of {held.numbers.rate} in {per}: "
            f"the next begins in {_span(held.opens_at - why.now)} ({_time(held.opens_at)})"
        )
    if most == 0:
        return f"{where} is stopped: its limit is 0"
    jobs = [str(id) for id in held.jobs[:SHOWN]] + ["…"] * (len(held.jobs) > SHOWN)
    by = f" by {'job' if len(held.jobs) == 1 else 'jobs'} {', '.join(jobs)}" if jobs else ""
    weight = f", and it counts as {job.weight}" if (job.weight or 1) > 1 else ""
    return f"{where} is full: {held.running} of {most} running{by}{weight}"


def _in_lane(why: Why) -> str:
    job = why.job
    if not why.before:
        return f"it is the next of lane {job.lane} of queue {job.queue}: it waits for its turn"
    number = f"at least {why.before}" if why.before >= MOST_BEFORE else str(why.before)
    jobs = "1 job is" if why.before == 1 else f"{number} jobs are"
    return f"{jobs} before it in lane {job.lane} of queue {job.queue}"


def _scheduled(why: Why) -> str:
    job = why.job
    due = _due(job.run_at, why.now)
    if job.outcome is Outcome.SNOOZED:
        text = f"its handler has put it off: {due}"
    elif job.outcome is Outcome.LOST:
        text = f"its worker was lost, for the {_ordinal(job.lost or 1)} time: {due}"
    elif job.used:
        cause = _cause(why)
        text = f"it waits for its back-off after {cause}, attempt {job.used} of "
        text += f"{job.max_attempts}: {due}"
    else:
        text = f"it is {due}"
    held_up = _held_up(why)
    return f"{text}; {held_up}" if held_up else text


def _blocked(why: Why) -> str:
    job = why.job
    if job.blockers > MOST_NAMED:
        return f"it waits for {job.open_blockers:,} of its {job.blockers:,} chains"
    open = [blocker for blocker in why.blockers if blocker.state is not ChainState.COMPLETED]
    named = [f"{blocker.chain_id} ({blocker.state})" for blocker in open[:SHOWN]]
    if len(open) > SHOWN:
        named.append(f"and {len(open) - SHOWN} more")
    if not named:  # by the hand of somebody else
        return f"it waits for {job.open_blockers} chains that are not there any more"
    if job.task == GROUP:
        number = f"{len(open)} of the {job.blockers} members of its group"
        return f"it waits for {number}: {', '.join(named)}"
    return f"it waits for {'chain' if len(open) == 1 else 'chains'} {', '.join(named)}"


def _running(why: Why) -> str:
    job = why.job
    worker = next((w for w in why.workers if w.id == job.held_by), None)
    since = _ago(job.started_at or why.now, why.now)
    where = job.worker or "a worker that is gone"
    text = f"it runs on {where}, attempt {(job.used or 0) + 1} of {job.max_attempts}, begun {since}"
    if worker is None or worker.lease_until < why.now:
        others = any(other.lease_until >= why.now for other in why.workers)
        then = "another takes the job over" if others else "one that starts takes the job over"
        return f"{text}; that worker has not renewed its lease: {then}"
    return text


def _completed(why: Why) -> str:
    job = why.job
    ended = _ago(job.last_ended_at or why.now, why.now)
    if job.continued_by is not None:
        return f"it ended {ended} and was continued by job {job.continued_by}"
    return f"it was completed{_by(job.ended_by)} {ended}"


def _failed(why: Why) -> str:
    job = why.job
    ended = _ago(job.last_ended_at or why.now, why.now)
    if job.last_blocker is not None:
        return f"it failed {ended}: chain {job.last_blocker}, for which it waited, did not complete"
    if job.ended_by:
        return f"it was failed{_by(job.ended_by)} {ended}"
    return f"it failed {ended} with {_cause(why)}"


def _cancelled(why: Why) -> str:
    job = why.job
    ended = _ago(job.last_ended_at or why.now, why.now)
    return f"it was cancelled{_by(job.ended_by)} {ended}"


_SENTENCES = {
    State.PENDING: _pending,
    State.SCHEDULED: _scheduled,
    State.BLOCKED: _blocked,
    State.RUNNING: _running,
    State.COMPLETED: _completed,
    State.FAILED: _failed,
    State.CANCELLED: _cancelled,
}


# ---- parts


def _held_up(why: Why) -> str | None:
    """What keeps every job of its queue from running."""
    queue = why.job.queue
    if why.paused is not None:
        by = _by(why.paused.paused_by)
        since = why.paused.paused_at
        what = "every queue" if why.paused.name == EVERY else f"queue {queue}"
        return f"{what} is paused{by} since {_time(since)}, {_span(why.now - since)} ago"
    living = [worker for worker in why.workers if worker.lease_until >= why.now]
    if not living:
        return "no worker is running"
    if any(serves(_queues(worker), queue) for worker in living):
        return None
    served = sorted({name for worker in living for name in _queues(worker)})
    shown = ", ".join(served[:SHOWN]) + (", …" if len(served) > SHOWN else "")
    return f"no worker serves queue {queue}: those that run serve {shown}"


def _queues(worker: WorkerRecord) -> list[str]:
    queues: list[str] = json.loads(worker.queues)
    return queues


def _cause(why: Why) -> str:
    """How its last attempt went wrong, in a word."""
    job = why.job
    if job.outcome is Outcome.TIMEOUT:  # what it raised when it was stopped says nothing
        return "a timeout"
    if job.last_error_type:
        return job.last_error_type.removeprefix("builtins.")
    return "a failure"


def _by(name: str | None) -> str:
    return f" by {name}" if name else ""


def _due(at: int | None, now: int) -> str:
    if at is None:
        return "due now"
    if at <= now:
        return f"due since {_time(at)}"
    return f"due in {_span(at - now)} ({_time(at)})"


def _ago(at: int, now: int) -> str:
    return f"{_span(now - at)} ago ({_time(at)})"


def _span(micros: int) -> str:
    return length(timedelta(seconds=max(micros, 0) / MICRO))


def _time(micros: int) -> str:
    return f"{to_datetime(micros):%Y-%m-%d %H:%M:%S} UTC"


def _ordinal(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")
