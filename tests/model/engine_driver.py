"""One engine with the verbs of a program: a real database behind our store.

Reads are in `engine_reads`. Whoever has a handle knows an id and the time of creation that goes
with it, so a handle of a job that was rolled back finds nothing, also where its id is another's by
now (E12).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.database import Database
from tests.kit import Clock
from tests.model.engine_reads import EngineReads
from tests.model.program import Answer, End, Held, Keep, New, Plan, Refusal, Seen, Step, Where
from tests.model.storing import UNSTORED, said_of
from towline.errors import DuplicateKey, StillNeeded, StoreError, TowlineError
from towline.operation import Op
from towline.records import Claimed, Ending, JobRecord, NewBlocker, NewJob
from towline.schedule import NewSchedule
from towline.sql import SERVER_TABLES, TABLES
from towline.store.finish import Finished
from towline.store.lease import Begin, Begun, Report
from towline.store.limit import Numbers
from towline.store.retention import KeepFor
from towline.store.turn import promote, unpark
from towline.ticks import Timing

ORPHANS = 10**9  # an id that no program comes to
KEPT = ("migration", "mark")

STORED = {"expires": "expires_at", "after": "blockers"}
"""Names of the store for what a program says."""


class EngineDriver(EngineReads):
    """A database, our app on it, and a connection of the caller's."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock)
        self._claims: dict[Held, Claimed] = {}

    def reset(self) -> None:
        """An empty store for the next program."""
        if self.in_transaction:
            self.rollback()
        for table in (*TABLES, *(SERVER_TABLES if self.has_levels else ())):
            if table not in KEPT:
                self.sql(f"DELETE FROM towline_{table}")
        self.sql("UPDATE towline_mark SET value = 0 WHERE name = 'prune'")
        self._claims.clear()
        self.forget()

    def take(self, step: Step) -> Answer:
        """Take a step: its answer, or the refusal. A database that fails is no answer."""
        try:
            self.woken, self.told_ended = set(), False
            return getattr(self, step.verb)(*step.told)
        except StoreError:
            raise
        except TowlineError as error:
            return self._refusal(error)

    def _refusal(self, error: TowlineError) -> Refusal:
        ids: tuple[int, ...] = ()
        if isinstance(error, DuplicateKey):
            ids = (error.chain_id,)
        elif isinstance(error, StillNeeded):
            ids = error.dependents
        told = (self.names[id] if id in self.present else UNSTORED for id in ids)
        return Refusal(type(error).__name__, tuple(sorted(told)))

    # ---- the caller's transaction

    def begin(self, level: str | None = None) -> None:
        if self.has_levels:
            self.sql(f"BEGIN ISOLATION LEVEL {level or 'READ COMMITTED'}")
        else:
            self.sql("BEGIN IMMEDIATE")
        self.depth = 1

    def savepoint(self) -> None:
        self.sql(f"SAVEPOINT mine{self.depth}")
        self.depth += 1

    def rollback_to(self) -> None:
        self.sql(f"ROLLBACK TO SAVEPOINT mine{self.depth - 1}")

    def release(self) -> None:
        self.depth -= 1
        self.sql(f"RELEASE SAVEPOINT mine{self.depth}")

    def commit(self) -> None:
        self.sql("COMMIT")
        self.depth = 0

    def rollback(self) -> None:
        self.sql("ROLLBACK")
        self.depth = 0

    # ---- enqueue

    def enqueue(self, news: Sequence[New]) -> list[tuple[Seen, bool]]:
        batch = {new.name: index for index, new in enumerate(news)}
        answers = self.run(self.store.enqueue([self._new_job(new, batch) for new in news]))
        self.learn_from(record for record, _ in answers)
        return [(self.job_seen(record), created) for record, created in answers]

    def _new_job(self, new: New, batch: dict[str, int], *, follows: bool = False) -> NewJob:
        return NewJob(
            new.task, new.arguments, queue=new.queue or "default", priority=new.priority or 0,
            max_attempts=new.max_attempts, timeout=new.timeout, delay=new.delay, at=new.at,
            label=new.name, key=new.key, scope=new.scope, window=new.window,
            on_conflict=new.on_conflict, policy=new.policy, trace=new.trace,
            blockers=[self._blocker(chain, name, batch) for chain, name in new.after],
            inherit_queue=follows and new.queue is None,
            inherit_priority=follows and new.priority is None,
            lane=new.lane, weight=new.weight, expires=new.expires,
            given=[STORED.get(name, name) for name in said_of(new)],
        )  # fmt: skip

    def _next_job(self, new: New) -> NewJob:
        """A continuation, with what it brings along."""
        batch = {child.name: index for index, child in enumerate(new.children)}
        job = self._new_job(new, batch, follows=True)
        job.children = [self._new_job(child, batch) for child in new.children]
        return job

    def _blocker(self, chain: str, name: str | None, batch: dict[str, int]) -> NewBlocker:
        if chain in batch:
            return NewBlocker(index=batch[chain], name=name)
        id, created_at = self.ids[chain]
        return NewBlocker(chain_id=id, created_at=created_at, name=name)

    # ---- work

    def register(self, worker: str, lease: int) -> None:
        self.learn_worker(worker, self.run(
            self.store.register(
                worker, host="here", pid=1, birth=None, version="0", queues=["default"],
                concurrency=1, lease=lease,
            )
        ))  # fmt: skip

    def unregister(self, worker: str) -> None:
        self.run(self.store.unregister(self.workers[worker]))

    def claim(
        self, worker: str, queues: Sequence[str], room: int, named: bool, ahead: int
    ) -> list[Seen]:
        name = worker if named else None
        return self._claimed(
            self.run(self.store.claim(self.workers[worker], queues, room, name, ahead))
        )

    def _claimed(self, claims: list[Claimed]) -> list[Seen]:
        for claim in claims:
            name = claim.label or self.names[claim.job_id]
            self.learn(name, claim.job_id, claim.created_at)
            assert claim.worker is not None
            worker = self.worker_names[claim.worker]
            self._claims[Held(name, claim.attempt, worker)] = claim
        return [
            {
                **claim._asdict(),
                "job_id": self.names[claim.job_id],
                "chain_id": self.names[claim.chain_id],
                "worker": self.worker_names[claim.worker or 0],
            }
            for claim in claims
        ]

    def turn(
        self, worker: str, queues: Sequence[str], room: int, ends: Sequence[End],
        unpark: Sequence[str], ahead: int, begins: Sequence[tuple[Held, int]],
        reports: Sequence[tuple[Held, float, str]], gated: Sequence[str],
    ) -> tuple[object, ...]:  # fmt: skip
        endings = [self._ending(end) for end in ends]
        turn = self.run(
            self.store.turn(
                self.workers[worker], worker, queues, room, endings, unpark, ahead=ahead,
                begins=self._begins(begins), reports=self._reports(reports), gated=gated,
            )
        )  # fmt: skip
        assert not turn.finished.postponed, "a turn was put off though nobody holds anything"
        finished, claimed = self._finished([turn.finished]), self._claimed(turn.claimed)
        blockers = {self.names[job]: self.blockers_seen(b) for job, b in turn.blockers.items()}
        return turn.promoted, finished, claimed, blockers, turn.next_due, turn.unparked

    def mark_begun(self, begins: Sequence[tuple[Held, int]]) -> None:
        self.run(self.store.progress((), self._begins(begins)))

    def _begins(self, begins: Sequence[tuple[Held, int]]) -> list[Begin]:
        return [(self._claims[held], at) for held, at in begins]

    def _reports(self, reports: Sequence[tuple[Held, float, str]]) -> list[Report]:
        return [(self._claims[held], share, text) for held, share, text in reports]

    def finish(self, ends: Sequence[End], worker: str | None) -> tuple[list[str], list[str]]:
        """What is postponed is tried again, as a worker does in its next turn."""
        endings = [self._ending(end) for end in ends]
        slot = self.workers[worker] if worker else 0
        answers: list[Finished] = []
        while endings:
            answers.append(self.run(self.store.finish(endings, worker, slot)))
            left = [e for e in endings if e.held.job_id in answers[-1].postponed]
            assert len(left) < len(endings), "postponed though nobody holds anything"
            endings = left
        return self._finished(answers)

    def _ending(self, end: End) -> Ending:
        return Ending(
            self._claims[end.held], end.outcome, end.output, end.error, end.delay, end.started_at,
            end.started,
            None if end.next is None else self._next_job(end.next),
            end.error_type,
        )  # fmt: skip

    def _finished(self, answers: Iterable[Finished]) -> tuple[list[str], list[str]]:
        accepted = [self.names[id] for answer in answers for id in answer.accepted]
        refused = [self.names[id] for answer in answers for id in answer.refused]
        return sorted(accepted), sorted(refused)

    def renew(
        self, worker: str, lease: int, held: Sequence[Held]
    ) -> tuple[bool, list[tuple[str, int]]]:
        known = {(self.ids[one.name][0], one.attempt) for one in held}
        renewed = self.run(self.store.renew(self.workers[worker], worker, lease, known))
        assert not renewed.postponed, "a renewal was put off though nobody looks"
        lost = sorted((self.names[id], attempt) for id, attempt in renewed.lost)
        return renewed.registered, lost

    def peek(
        self, queues: Sequence[str], most: int, tasks: Sequence[str]
    ) -> tuple[int, bool, int | None]:
        ahead = self.run(self.store.peek(queues, most, tasks))
        return ahead.pending, ahead.parked, ahead.next_due

    def drop_orphans(self, queue: str, number: int) -> int:
        """Somebody has left open rows without their jobs, by hand."""
        for orphan in range(number):
            self.sql(
                "INSERT INTO towline_live (state, queue, priority, job_id, run_at)"
                f" VALUES (0, '{queue}', {orphan}, {ORPHANS + orphan}, 0)"
            )
        return self.run(self.store.drop_orphans([queue]))

    def runs(self, worker: str) -> list[tuple[str, int]]:
        found = self.run(self.store.running(self.workers[worker]))
        return sorted((self.names[id], attempt) for id, attempt in found)

    def still_running(self, held: Held) -> bool:
        return self.run(self.store.still_running(self._claims[held]))

    def parked(self) -> dict[str, int]:
        return self.run(self.store.parked())

    def progress(self, reports: Sequence[tuple[Held, float, str]]) -> list[bool]:
        return self.run(self.store.progress(self._reports(reports)))

    def park(self, held: Sequence[Held]) -> int:
        return self.run(self.store.park([self._claims[one] for one in held]))

    def unpark(self, tasks: Sequence[str], queues: Sequence[str], limit: int) -> list[int]:
        return self._until_less(
            lambda: Op("unpark", lambda: unpark(self.store, tasks, queues, limit)), limit
        )

    def promote(self, limit: int) -> list[int]:
        return self._until_less(lambda: Op("promote", lambda: promote(self.store, limit)), limit)

    def sweep(
        self, suspects: Sequence[str] | None, gone: Sequence[str], limit: int,
        begun: Sequence[tuple[str, Sequence[Held]]],
    ) -> list[int]:  # fmt: skip
        ids = None if suspects is None else [self.workers[name] for name in suspects]
        dead = [self.workers[name] for name in gone]
        known = {
            self.workers[name]: Begun(
                frozenset((self._claims[one].job_id, one.attempt) for one in held)
            )
            for name, held in begun
        }
        return self._until_less(lambda: self.store.sweep(ids, dead, limit, known), limit)

    def _until_less(self, begin: Callable[[], Op[Any]], limit: int) -> list[int]:
        """Which of many a bounded verb takes first is the engine's choice, so it takes all."""
        counts = [self.run(begin())]
        while counts[-1] >= limit:
            counts.append(self.run(begin()))
        return counts

    # ---- limits and schedules

    def set_limit(
        self, queue: str, lane: str | None, concurrency: int | None, rate: int | None, per: int
    ) -> None:
        numbers = Numbers(concurrency, rate, None if rate is None else per)
        self.run(self.store.set_limit(queue, lane, numbers))

    def set_schedule(self, plan: Plan) -> Seen:
        job = NewJob(plan.task, f'{{"{plan.name}": 1}}', queue=plan.queue, expires=plan.expires)
        timing = Timing(None, plan.every, "UTC", None, None)
        new = NewSchedule(plan.name, job, timing, 0, plan.catch_up, plan.overlap)
        return self.schedule_seen(self.run(self.store.set_schedule(new)).record)

    def pause_schedule(self, name: str, by: str | None) -> Seen:
        return self.schedule_seen(self.run(self.store.pause_schedule(name, by)).record)

    def resume_schedule(self, name: str) -> Seen:
        return self.schedule_seen(self.run(self.store.resume_schedule(name)).record)

    def delete_schedule(self, name: str) -> None:
        self.run(self.store.delete_schedule(name))

    def run_schedule(self, name: str) -> Seen:
        record = self.run(self.store.run_schedule(name))
        self.learn_from([record])
        return self.job_seen(record)

    def fire(self, tasks: Sequence[str]) -> int:
        fired = self.run(self.store.fire(tasks))
        assert not fired.postponed, "a tick was put off though nobody holds anything"
        return fired.jobs

    # ---- from outside

    def cancel(self, name: str, reason: str | None, by: str | None) -> Seen:
        return self._control(name, lambda id: self.store.cancel(id, reason, by))

    def fail(self, name: str, reason: str, by: str | None) -> Seen:
        return self._control(name, lambda id: self.store.fail(id, reason, by))

    def complete(self, name: str, output: str | None, next: New | None, by: str | None) -> Seen:
        following = None if next is None else self._next_job(next)
        return self._control(name, lambda id: self.store.complete(id, output, following, by))

    def run_now(self, name: str) -> Seen:
        return self._control(name, self.store.run_now)

    def retry(self, name: str) -> Seen:
        return self._control(name, self.store.retry)

    def _control(self, name: str, begin: Callable[[int], Op[JobRecord]]) -> Seen:
        record = self.run(self.checked(name, begin))
        self.learn_all()
        return self.job_seen(record)

    def pause(self, queue: str) -> None:
        self.run(self.store.pause(queue))

    def resume(self, queue: str) -> None:
        self.run(self.store.resume(queue))

    def delete(self, name: str, cascade: bool) -> list[str]:
        gone = self.run(self.checked(name, lambda id: self.store.delete([id], cascade)))
        return sorted(self.names[id] for id in gone)

    def prune(self, keep: Keep, limit: int) -> tuple[int, bool]:
        ages = KeepFor(keep.completed, keep.failed, keep.cancelled)
        pruned = self.run(self.store.prune(ages, limit))
        return pruned.chains, pruned.done

    def bulk(self, action: str, where: Where, preview: bool, limit: int, by: str | None) -> int:
        number, cursor = 0, None
        while True:
            op = self.store.bulk(action, self.job_filter(where), preview, cursor, limit, by)
            touched = self.run(op)
            number, cursor = number + touched.number, touched.cursor
            if cursor is None:
                return number
