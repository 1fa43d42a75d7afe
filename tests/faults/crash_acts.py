"""What the crash loop does to itself: every operation, each with a crash point in its middle.

An act makes what it needs, arms the point for the operation it is named after, and writes in the
event log what it was told. It runs in a process of its own, which is killed there or ends well.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from tests import database as databases
from tests.faults import event_log, tasks
from tests.faults.crash_point import CrashPoint
from tests.faults.tasks import ANYHOW, BORN, OWN, app
from tests.kit import MINUTE
from tests.races.auditor import ask, open_reader
from towline import Job
from towline.model import Outcome
from towline.operation import Op
from towline.records import Claimed, Ending, NewBlocker, NewJob
from towline.store import turn as turns
from towline.store.retention import KeepFor
from towline.store.turn import Turn
from towline.worker.attempt import Attempt
from towline.worker.identity import identity_of

Act = Callable[[CrashPoint], None]
ACTS: dict[str, Act] = {}
EVERY_THREAD = ("a worker's life",)
LEASE = MINUTE
NOW = KeepFor(0, 0, 0)


def act(name: str) -> Callable[[Act], Act]:
    def keep(function: Act) -> Act:
        ACTS[name] = function
        return function

    return keep


def stored(*jobs: Job[Any]) -> None:
    """Write down that these were acknowledged."""
    event_log.write_new(job.id for job in jobs)


class Hand:
    """A worker that is played by hand, so that each of its statements is known."""

    def __init__(self) -> None:
        self.name = f"hand-{os.getpid()}"
        self.worker = self.register(LEASE)

    def register(self, lease: int) -> int:
        return app.runner.run(
            app.runner.store.register(
                self.name, host=os.uname().nodename, pid=os.getpid(),
                birth=identity_of(os.getpid()), version="0", queues=["default"], concurrency=8,
                lease=lease,
            )
        )  # fmt: skip

    def turn(self, endings: Sequence[Ending] = (), room: int = 0) -> Turn:
        turn = app.runner.run(
            app.runner.store.turn(self.worker, self.name, ["default"], room, endings)
        )
        for held in turn.claimed:
            event_log.write_start(held)
        return turn

    def claim(self, number: int) -> list[Claimed]:
        claimed = self.turn(room=number).claimed
        assert len(claimed) == number, f"claimed {len(claimed)} of {number}"
        return claimed


# ---- enqueue


@act("enqueue")
def enqueue_one(point: CrashPoint) -> None:
    with point:
        job = tasks.plain.enqueue()
    stored(job)


@act("enqueue a graph")
def enqueue_graph(point: CrashPoint) -> None:
    calls = [tasks.first.call(), tasks.plain.using(key="one", scope="open").call()]
    graph = [*calls, tasks.join.using(after=calls).call()]
    with point:
        jobs = app.enqueue_many(graph)
    stored(*jobs)


@act("enqueue many")
def enqueue_many(point: CrashPoint) -> None:
    """Enough of them for PostgreSQL's COPY."""
    with point:
        jobs = app.enqueue_many([tasks.plain.call() for _ in range(210)])
    stored(*jobs)


@act("enqueue in the caller's transaction")
def enqueue_on(point: CrashPoint) -> None:
    sign = "?" if tasks.is_sqlite() else "%s"
    with closing(databases.connect(app.url)) as connection, point:
        job = tasks.plain.using(on=connection, label=OWN).enqueue()
        connection.execute(f"INSERT INTO mine (id) VALUES ({sign})", (job.id,))
        connection.commit()
    stored(job)


# ---- a worker's operations


@act("claim")
def claim(point: CrashPoint) -> None:
    stored(tasks.plain.enqueue(), tasks.awaiting.enqueue(), tasks.first.enqueue())
    hand = Hand()
    with point:
        hand.claim(3)


@act("renew")
def renew(point: CrashPoint) -> None:
    """One of the jobs runs without the worker's knowledge: it is put back."""
    stored(tasks.plain.enqueue(), tasks.plain.enqueue())
    hand = Hand()
    known, _ = hand.claim(2)
    with point:
        app.runner.run(
            app.runner.store.renew(hand.worker, hand.name, LEASE, [(known.job_id, known.attempt)])
        )


@act("progress")
def progress(point: CrashPoint) -> None:
    stored(tasks.plain.enqueue())
    (held,) = Hand().claim(1)
    with point:
        app.runner.run(app.runner.store.progress([(held, 0.5, "half of it")]))


@act("park and unpark")
def park(point: CrashPoint) -> None:
    stored(tasks.plain.enqueue())
    held = Hand().claim(1)
    with point:
        app.runner.run(app.runner.store.park(held))
        app.runner.run(Op("unpark", lambda: turns.unpark(app.runner.store, ["plain"], ["default"])))


@act("promote")
def promote(point: CrashPoint) -> None:
    stored(*(tasks.plain.using(delay=0.01).enqueue() for _ in range(2)))
    time.sleep(0.02)
    with point:
        app.runner.run(Op("promote", lambda: turns.promote(app.runner.store)))


@act("sweep")
def sweep(point: CrashPoint) -> None:
    """The lease of a worker, this very process, has run out."""
    stored(tasks.plain.enqueue(), tasks.first.enqueue())
    hand = Hand()
    hand.worker = hand.register(lease=1)
    time.sleep(0.001)
    hand.claim(2)
    with point:
        app.runner.run(app.runner.store.sweep())


# ---- finish


def finish(point: CrashPoint, ending: Callable[[Claimed], Ending], *jobs: Job[Any]) -> None:
    """Claim the jobs that can be, and end them all in one turn."""
    stored(*jobs)
    hand = Hand()
    claimed = hand.turn(room=len(jobs)).claimed
    assert claimed
    for held in claimed:
        event_log.write_end(held, "value" if ending(held).output else "no value")
    with point:
        hand.turn([ending(held) for held in claimed])


def completed(held: Claimed) -> Ending:
    stamp = event_log.stamp_of(held.job_id, held.attempt, held.claimed_at)
    return Ending(held, Outcome.COMPLETED, output=json.dumps(stamp))


def ends_as(outcome: Outcome, **fields: Any) -> Callable[[Claimed], Ending]:
    return lambda held: Ending(held, outcome, **fields)


@act("finish: completed")
def finish_completed(point: CrashPoint) -> None:
    finish(point, completed, tasks.plain.enqueue())


@act("finish: completed, with a key")
def finish_keyed(point: CrashPoint) -> None:
    finish(point, completed, tasks.plain.using(key="two").enqueue())


@act("finish: completed, with unblock")
def finish_unblocking(point: CrashPoint) -> None:
    """One dependent is freed, another waits for a second chain, which is open still."""
    one = tasks.plain.enqueue()
    other = tasks.plain.using(delay=60).enqueue()
    behind = [
        tasks.join.using(after=[one]).enqueue(),
        tasks.join.using(after=[one, other]).enqueue(),
    ]
    finish(point, completed, one, other, *behind)


@act("finish: continued")
def finish_continued(point: CrashPoint) -> None:
    following = NewJob("last", '{"pause": 0.0}', inherit_queue=True, inherit_priority=True)
    finish(point, ends_as(Outcome.CONTINUED, next=following), tasks.first.enqueue())


@act("finish: continued, with children")
def finish_fanning_out(point: CrashPoint) -> None:
    """Two that are free, one that waits for a third; what the continuation sees is theirs."""
    child = NewJob("plain", '{"pause": 0.0}', label=BORN)
    waiting = NewJob("join", '{"pause": 0.0}', label=BORN, blockers=[NewBlocker(index=0)])
    following = NewJob(
        "join", '{"pause": 0.0}', inherit_queue=True, children=[child, child, waiting],
        blockers=[NewBlocker(index=1), NewBlocker(index=2)],
    )  # fmt: skip
    finish(point, ends_as(Outcome.CONTINUED, next=following), tasks.first.enqueue())


@act("finish: continued, with many children")
def finish_fanning_out_widely(point: CrashPoint) -> None:
    """Written by the slot that ran the handler, in a transaction of its own."""
    job = tasks.splits.enqueue(120)
    stored(job)
    hand = Hand()
    (held,) = app.runner.run(app.runner.store.claim(hand.worker, ["default"], 1))
    attempt = Attempt(app, tasks.splits, held, worker=hand.name)
    attempt.begin()
    with point:
        assert attempt.run() is None


@act("finish: failed, to be tried again")
def finish_failed(point: CrashPoint) -> None:
    finish(point, ends_as(Outcome.FAILED, error="once", delay=50_000), tasks.plain.enqueue())


@act("finish: failed for good, with dependents")
def finish_failed_for_good(point: CrashPoint) -> None:
    """One behind it fails too; one behind it runs all the same."""
    one = tasks.fails.enqueue()
    behind = [
        tasks.behind_fails.using(after=[one]).enqueue(),
        tasks.plain.using(after=[one], on_blocker_failure="run").enqueue(),
    ]
    finish(point, ends_as(Outcome.FAILED, error="for good"), one, *behind)


@act("finish: timeout")
def finish_timeout(point: CrashPoint) -> None:
    finish(point, ends_as(Outcome.TIMEOUT, error="too long", delay=50_000), tasks.plain.enqueue())


@act("finish: snoozed")
def finish_snoozed(point: CrashPoint) -> None:
    finish(point, ends_as(Outcome.SNOOZED, delay=50_000), tasks.snoozes.enqueue())


@act("finish: cancelled")
def finish_cancelled(point: CrashPoint) -> None:
    finish(point, ends_as(Outcome.CANCELLED, error="not wanted"), tasks.cancels.enqueue())


@act("finish: lost")
def finish_lost(point: CrashPoint) -> None:
    finish(point, ends_as(Outcome.LOST, error="its process died", delay=1), tasks.plain.enqueue())


@act("finish: released")
def finish_released(point: CrashPoint) -> None:
    finish(point, ends_as(Outcome.RELEASED, started=False), tasks.plain.enqueue())


# ---- from outside


@act("cancel: waiting, with dependents")
def cancel_waiting(point: CrashPoint) -> None:
    one = tasks.plain.using(label=ANYHOW).enqueue()
    behind = [
        tasks.plain.using(after=[one], label=ANYHOW).enqueue(),
        tasks.plain.using(after=[one], on_blocker_failure="run").enqueue(),
    ]
    stored(one, *behind)
    with point:
        app.cancel(one.id, reason="not wanted")
    event_log.write("cancelled", jobs=[one.id])


@act("cancel: running")
def cancel_running(point: CrashPoint) -> None:
    job = tasks.plain.using(label=ANYHOW).enqueue()
    stored(job)
    Hand().claim(1)
    with point:
        app.cancel(job.id, reason="not wanted")
    event_log.write("cancelled", jobs=[job.id])


@act("retry of a failed job")
def retry(point: CrashPoint) -> None:
    job = tasks.plain.using(label=ANYHOW).enqueue()
    behind = tasks.plain.using(after=[job], label=ANYHOW).enqueue()
    stored(job, behind)
    app.fail(job.id, "broken")
    with point:
        app.retry(job.id)


@act("prune")
def prune(point: CrashPoint) -> None:
    jobs = [tasks.plain.using(label=ANYHOW, key="three").enqueue()]
    jobs.append(tasks.plain.using(after=jobs, label=ANYHOW).enqueue())
    stored(*jobs)
    app.cancel(jobs[0].id, reason="not wanted")
    with closing(open_reader(app.url)) as reader:
        ended = [id for (id,) in ask(reader, "SELECT id FROM towline_job")]
    event_log.write("gone", jobs=ended)
    stored(tasks.plain.using(delay=60).enqueue())  # open, so it stays
    with point:
        app.runner.run(app.runner.store.prune(NOW))


@act("migrate")
def migrate(point: CrashPoint) -> None:
    """A database that never saw us. The tables of the act before are gone."""
    with point:
        app.migrate()
    stored(tasks.plain.enqueue())


# ---- all of it


@act("a worker's life")
def worker(point: CrashPoint) -> None:
    """From registering to signing off, on threads and on the loop, the application's own
    transaction in between."""
    one = tasks.first.enqueue()
    jobs: list[Job[Any]] = [one, tasks.join.using(after=[one]).enqueue()]
    jobs += [task.enqueue() for task in (tasks.books, tasks.awaiting, tasks.cancels)]
    stored(*jobs)
    with point:
        app.worker(concurrency=2, lease=1, drain=True).run()
