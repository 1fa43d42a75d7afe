"""The contract: every operation of the store with its promise. Read this page first.

An operation yields named statements of the engine and never touches a connection, so it runs
blocking or awaiting, on our connection or the caller's. How it is done stands in the subjects
beside this page, as functions that call one another with `yield from`; what engines do in their
own way is in `ground`. No operation runs inside another.

`Loss` says when a crash of the machine may take an acknowledged commit: never, unless it is named.

A subject needs those to its left, no other:

    limit · ground · lane · read, cascade · waiting, key · enqueue · finish, revive · expiry, lease
    served · gate · turn · listing, counts · audit · limits · retention, control, stats, why
                                             failures, group · schedule, limits (in `flow`)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ..model import Outcome, State
from ..operation import Loss, Op
from ..records import (
    AttemptRecord,
    BlockerRecord,
    ChainRecord,
    Claimed,
    DependentRecord,
    Ending,
    Enqueued,
    JobRecord,
    NewJob,
    PausedRecord,
    WorkerRecord,
)
from . import (
    audit,
    control,
    counts,
    enqueue,
    failures,
    finish,
    graph,
    listing,
    read,
    retention,
    stats,
    turn,
    why,
)
from . import lease as leases
from .audit import AuditPage
from .control import BulkPage
from .failures import Failures
from .finish import Finished
from .flow import Flow
from .graph import MOST_CHAINS, Graph
from .ground import OUTSIDE
from .lease import SWEEP_LIMIT, Begin, Begun, Expired, Renewed, Report, Swept
from .listing import ChainFilter, JobFilter, RecordPage
from .retention import PRUNE_BATCH, KeepFor, Pruned
from .served import Portion
from .stats import RollupRecord, StatsFilter
from .turn import Peeked, Turn
from .why import Why


class Store(Flow):
    """All operations, with those of `flow`. An engine overrides steps of `Ground`, and an operation
    only where it is one statement there."""

    # ---- storing jobs

    def enqueue(self, jobs: Sequence[NewJob]) -> Op[Sequence[Enqueued]]:
        """Store jobs, each the first of a chain; answers come in the order given.

        All or nothing. A key that is taken gives the chain that has it, or does what on_conflict
        says. Blockers may be stored chains or jobs of the same batch.
        """
        return Op("enqueue", enqueue.enqueue, self, jobs, loss=Loss.IF_ALLOWED)

    # ---- a worker's turn

    def turn(
        self, worker: int, name: str, queues: Sequence[str], room: int,
        endings: Sequence[Ending] = (), unpark: Sequence[str] = (), *,
        ahead: int = 0, begins: Sequence[Begin] = (), reports: Sequence[Report] = (),
        gated: Sequence[str] = (), portions: Sequence[Portion] = (), alone: bool = False,
        freed: Collection[str] = (),
    ) -> Op[Turn]:  # fmt: skip
        """Promote what is due, finish what ended, claim what fits: one transaction.

        `room` slots are free; up to `ahead` jobs more are claimed. What began meanwhile of those,
        and the last reports of what ended, are recorded on the way. Parked jobs of the tasks to
        unpark come back as many as fit, in the same transaction: else workers that do not know them
        would park them again before they are claimed. Of `queues` the first jobs of all are taken;
        with `portions`, which name the same queues, those of the first portion before the next,
        no more than each one says. A worker that was swept meanwhile finishes and claims nothing;
        its renewal says so. Queues with limits or lanes are claimed from if they are named as
        `gated`; which are, a turn with room left says, and a peek. `alone`: it may be the claim and
        no more, where that is less. `freed`: queues in which jobs have ended that no turn wrote.

        Only a turn that finishes something must survive a power cut.
        """
        if alone and (claim := self.claim_alone(worker, name, queues, room, ahead)) is not None:
            return claim
        return Op(
            "turn", turn.turn, self, worker, name, queues, room, endings, unpark, ahead, begins,
            reports, gated, portions, freed, loss=Loss.NEVER if endings else Loss.WITH_WORKERS,
        )  # fmt: skip

    def peek(
        self, queues: Sequence[str], most: int = 1, tasks: Sequence[str] = (),
        worker: int | None = None,
    ) -> Op[Peeked]:  # fmt: skip
        """Whether a claim would find something, without taking the writer; and what is due next.

        Pending jobs are counted up to `most` of each queue. Parked ones of these tasks come back
        by a turn that unparks them. `worker`: what a turn of this worker would see, and when it
        would see more.
        """
        look = Loss.WITH_WORKERS
        return Op("peek", turn.peek, self, queues, most, tasks, worker, reads=True, loss=look)

    def claim(
        self, worker: int, queues: Sequence[str], room: int, name: str | None = None, ahead: int = 0
    ) -> Op[list[Claimed]]:
        """Take up to `room` pending jobs: higher priority first, then age. Paused queues give none.

        Up to `ahead` more are taken, which are not seen running before they begin.

        Each claim gives out the job's next attempt number, which is never given out again. A
        worker that gives its name and is no longer registered under it claims nothing.
        """
        loss = Loss.WITH_WORKERS
        return Op("claim", turn.claim, self, worker, queues, room, name, ahead, loss=loss)

    def finish(
        self, endings: Sequence[Ending], worker: str | None = None, slot: int = OUTSIDE
    ) -> Op[Finished]:
        """Record endings; one whose attempt is no longer the running one changes nothing.

        The attempt's row, the job's end, its continuation, the chain's end and every job that
        this frees are written in the one transaction that is open. Which were accepted is said.
        """
        return Op("finish", finish.finish, self, endings, worker, slot)

    def park(self, jobs: Sequence[Claimed]) -> Op[int]:
        """Set claimed jobs aside whose task this worker does not know; no attempt is used."""
        return Op("park", turn.park, self, jobs, loss=Loss.WITH_WORKERS)

    def drop_orphans(self, queues: Sequence[str]) -> Op[int]:
        """Remove rows at the head of these queues whose job is gone; return how many.

        No operation leaves such rows, but jobs deleted by hand do: as many as fit into a turn would
        keep all that is behind them from being claimed.
        """
        return Op("drop_orphans", turn.drop_orphans, self, queues, loss=Loss.WITH_WORKERS)

    # ---- a worker's lease

    def register(
        self, name: str, *, host: str, pid: int, birth: str | None, version: str,
        queues: Sequence[str], concurrency: int, lease: int, number: int | None = None,
        declares: str | None = None,
    ) -> Op[int]:  # fmt: skip
        """Enter a worker and return its number. Everything it claims hangs on this one lease.

        The number is drawn by lot, unless it is given: one from a counter would be given out again
        by a database that has lost its last commits, and with it the fence of who had it before.
        """
        return Op(
            "register", leases.register, self, name, host, pid, birth, version, queues, concurrency,
            lease, number, declares, loss=Loss.WITH_WORKERS,
        )  # fmt: skip

    def unregister(self, worker: int) -> Op[None]:
        """Take a worker out; its row stays while something still runs in its name."""
        return Op("unregister", leases.unregister, self, worker, loss=Loss.WITH_WORKERS)

    def renew(
        self, worker: int, name: str, lease: int, held: Collection[tuple[int, int]]
    ) -> Op[Renewed]:
        """Extend the lease of everything a worker holds, by its one row.

        Says which of the held (job, attempt) are no longer the worker's, and puts back what runs
        in its name without its knowledge: nothing is orphaned inside a living worker.
        """
        return Op("renew", leases.renew, self, worker, name, lease, held, loss=Loss.ANY_TIME)

    def running(self, worker: int) -> Op[set[tuple[int, int]]]:
        """What runs in a worker's name, as (job, attempt)."""
        return Op("running", leases.running, self, worker, reads=True)

    def still_running(self, held: Claimed) -> Op[bool]:
        """Whether an attempt is still the running one; it stays so until the commit."""
        return Op("still_running", leases.still_running, self, held)

    def progress(self, reports: Sequence[Report], begins: Sequence[Begin] = ()) -> Op[list[bool]]:
        """Record how far attempts are; say which were still the worker's.

        `begins`: that attempts which were claimed ahead have begun.
        """
        loss = Loss.WITH_WORKERS if begins else Loss.ANY_TIME
        return Op("progress", leases.progress, self, reports, begins, loss=loss)

    def expired(self) -> Op[Expired]:
        """Workers whose lease has run out: suspects for a sweep; and whether jobs run in the name
        of a worker that is not registered at all. A look that does not take the writer."""
        return Op("expired", leases.expired, self, reads=True)

    def sweep(
        self, suspects: Collection[int] | None = None, gone: Collection[int] = (),
        limit: int = SWEEP_LIMIT, begun: Mapping[int, Begun] | None = None,
    ) -> Op[Swept]:  # fmt: skip
        """Take back the jobs of dead workers, a bounded number; return how many.

        Dead is: the lease has run out *and* it was a suspect before (all are when suspects is
        None), or the process is provably gone. A lost attempt is recorded; its job comes back after
        a wide jitter, or fails at the crash limit.

        `begun` says of workers which attempts they had begun, where that is known: what is not
        among them goes back as if it had never been claimed.

        Rows whose job was deleted by hand go, and count: else they would fill every batch.
        """
        return Op("sweep", leases.sweep, self, suspects, gone, limit, begun or {})

    # ---- control from outside a worker: the first job of a chain that went on stands for its last

    def cancel(
        self, job_id: int, reason: str | None = None, by: str | None = None
    ) -> Op[JobRecord]:
        """End an open job as cancelled, its chain with it; what its handler says is refused."""
        end = Outcome.CANCELLED, None, reason, None, by
        return Op("cancel", audit.noted, self, by, "cancel", control.end, job_id, *end, by=by)

    def complete(
        self, job_id: int, output: str | None, next: NewJob | None = None, by: str | None = None
    ) -> Op[JobRecord]:
        """Complete an open job from outside, with an output or with its continuation."""
        end = Outcome.COMPLETED, output, None, next, by
        return Op("complete", audit.noted, self, by, "complete", control.end, job_id, *end, by=by)

    def fail(self, job_id: int, reason: str, by: str | None = None) -> Op[JobRecord]:
        """Fail an open job from outside, without another try."""
        end = Outcome.FAILED, None, reason, None, by
        return Op("fail", audit.noted, self, by, "fail", control.end, job_id, *end, by=by)

    def run_now(self, job_id: int, by: str | None = None) -> Op[JobRecord]:
        """Make a scheduled job pending at once; one that is pending stays as it is."""
        return Op("run_now", audit.noted, self, by, "run_now", control.run_now, job_id, by=by)

    def retry(self, job_id: int, by: str | None = None) -> Op[JobRecord]:
        """Make a failed or cancelled job pending again with fresh attempts; history stays. Jobs
        that this chain's failure had failed are revived."""
        return Op("retry", audit.noted, self, by, "retry", control.retry, job_id, by=by)

    def bulk(
        self, action: str, filter: JobFilter, preview: bool, cursor: int | None, limit: int,
        by: str | None = None,
    ) -> Op[BulkPage]:  # fmt: skip
        """Cancel, retry or run_now the jobs of one page that can be; with preview, only count
        them."""
        name, given = "preview" if preview else "bulk", (preview, cursor, limit, by)
        return Op(name, control.bulk, self, action, filter, *given, by=by)

    def pause(self, queue: str, by: str | None = None) -> Op[None]:
        """Stop claims from a queue, for every worker and across restarts."""
        return Op("pause", control.pause, self, queue, by, by=by, queue=queue)

    def resume(self, queue: str, by: str | None = None) -> Op[None]:
        """Let workers claim from a paused queue again."""
        return Op("resume", control.resume, self, queue, by, by=by, queue=queue)

    def note(self, job_id: int, action: str, by: str) -> Op[None]:
        """Leave a line about a job in the audit, of something that changes nothing of it. What
        changes something leaves its own, in its transaction, if it is told by whom."""
        return Op("note", audit.seen, self, job_id, action, by)

    # ---- reading

    def audit(
        self, job_id: int | None, queue: str | None, limit: int, cursor: int | None = None
    ) -> Op[AuditPage]:
        """What people did to a job, to a queue, or at all, newest first."""
        return Op("audit", audit.lines, self, job_id, queue, limit, cursor, reads=True)

    def job(self, job_id: int, created_at: int | None = None) -> Op[JobRecord]:
        """A job as it stands. A handle says when its job was created: after a rollback the id may
        be another job's, and then it is not found."""
        return Op("job", read.job, self, job_id, created_at, reads=True)

    def target(self, job_id: int) -> Op[JobRecord]:
        """The job that control of this one acts on."""
        return Op("target", read.target, self, job_id, reads=True)

    def chain(self, chain_id: int) -> Op[tuple[ChainRecord, JobRecord]]:
        """A chain and its last job."""
        return Op("chain", read.chain, self, chain_id, reads=True)

    def jobs(
        self, filter: JobFilter, limit: int, cursor: int | None = None, newest: bool = True
    ) -> Op[RecordPage[JobRecord]]:
        """A page of jobs; it may come back short with a cursor."""
        return Op("jobs", listing.jobs, self, filter, limit, cursor, newest, reads=True)

    def chains(
        self, filter: ChainFilter, limit: int, cursor: int | None = None, newest: bool = True
    ) -> Op[RecordPage[ChainRecord]]:
        """A page of chains; it may come back short with a cursor."""
        return Op("chains", listing.chains, self, filter, limit, cursor, newest, reads=True)

    def attempts(self, job_id: int) -> Op[list[AttemptRecord]]:
        """Every attempt of a job, oldest first, the running one last."""
        return Op("attempts", listing.attempts, self, job_id, reads=True)

    def attempts_of(self, jobs: Sequence[int]) -> Op[dict[int, list[AttemptRecord]]]:
        """The same of many jobs; one that has none, or is not there, is left out."""
        return Op("attempts_of", listing.attempts_of, self, jobs, reads=True)

    def blockers(self, jobs: Sequence[int]) -> Op[dict[int, list[BlockerRecord]]]:
        """What jobs wait or waited for, in declared order, with each chain's output or error."""
        return Op("blockers", read.blockers, self, jobs, reads=True)

    def dependents(self, chain_id: int) -> Op[list[DependentRecord]]:
        """Jobs that wait, or waited, for a chain."""
        return Op("dependents", listing.dependents, self, chain_id, reads=True)

    def graph(self, chain_id: int, most: int = MOST_CHAINS) -> Op[Graph]:
        """A chain with all that it waits for and all that needs it, up to so many chains."""
        return Op("graph", graph.graph, self, chain_id, most, reads=True)

    def needed(self, chain_ids: Sequence[int]) -> Op[dict[int, int]]:
        """Which of these chains cannot be deleted together, each with an open job outside of them
        that waits for it."""
        return Op("needed", retention.needed, self, chain_ids, reads=True)

    def counts(self, *, by_task: bool = False) -> Op[dict[str, dict[State, tuple[int, bool]]]]:
        """Jobs by queue, or task, and state; True marks a number that is "at least".

        Open jobs are counted from their rows up to a limit, ended ones from the roll-ups.
        """
        how = counts.by_task if by_task else counts.by_queue
        return Op("counts", how, self, reads=True)

    def stats(
        self, filter: StatsFilter, unit: int | None = None, whole: bool = False
    ) -> Op[list[RollupRecord]]:
        """Jobs that ended, by bucket of `unit` minutes, queue, task and outcome, oldest first;
        without a unit one bucket is all of the time; as a whole, queue and task are empty. What was
        deleted since is counted too."""
        return Op("stats", stats.stats, self, filter, unit, whole, reads=True)

    def failures(self, filter: StatsFilter) -> Op[Failures]:
        """Jobs that failed for good, by task and kind of error; the times are those of the end, to
        the microsecond. A bounded number of the newest jobs is looked at."""
        return Op("failures", failures.failures, self, filter, reads=True)

    def workers(self) -> Op[list[WorkerRecord]]:
        """Registered workers."""
        return Op("workers", listing.workers, self, reads=True)

    def why(self, job_id: int) -> Op[Why]:
        """What decides whether a job runs now, and what keeps it from running."""
        return Op("why", why.why, self, job_id, reads=True)

    def paused(self) -> Op[list[PausedRecord]]:
        """Paused queues, by name."""
        return Op("paused", listing.paused, self, reads=True)

    def parked(self, limit: int = 1000) -> Op[dict[str, int]]:
        """Tasks that no worker knew, with their jobs that are set aside; counts up to `limit`."""
        return Op("parked", listing.parked, self, limit, reads=True)

    # ---- deleting

    def delete(
        self, chain_ids: Sequence[int], cascade: bool = False, force: bool = True,
        by: str | None = None,
    ) -> Op[list[int]]:  # fmt: skip
        """Delete chains with their jobs, attempts and edges; return the chains that went.

        With cascade also every chain they waited for, followed from continuations too. Refused,
        naming the dependents, while an open job outside the set waits for one of them; and, unless
        forced, while a job of one of them runs.
        """
        return Op("delete", retention.delete, self, chain_ids, cascade, force, by, by=by)

    def prune(self, ages: KeepFor, limit: int = PRUNE_BATCH) -> Op[Pruned]:
        """Delete ended chains older than their age, one bounded batch past a remembered position.

        Never deletes what a job still waits for, or would need again when it is retried.
        """
        return Op("prune", retention.prune, self, ages, limit, loss=Loss.WITH_WORKERS)

    def prune_by(self, ages: KeepFor, position: int, preview: bool = False) -> Op[Pruned]:
        """The same past this position, once, for other ages; with preview only count them."""
        given = ages, position, preview
        return Op("prune", retention.prune_by, self, *given, loss=Loss.WITH_WORKERS)
