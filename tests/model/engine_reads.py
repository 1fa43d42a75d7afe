"""Reading one engine: what our reads show, with names in place of ids.

Names are labels. An id belongs to whoever was seen with it last: SQLite gives it out again after a
rollback.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from tests.database import SQLITE, Database
from tests.kit import Clock
from tests.model.program import Seen, Where, fired_name
from tests.races.auditor import audit_tables, open_reader
from tests.races.logs import Finding
from towline import Towline
from towline.model import ChainState, Outcome, State
from towline.operation import Op, Steps
from towline.records import AttemptRecord, BlockerRecord, ChainRecord, DependentRecord, JobRecord
from towline.schedule import ScheduleRecord
from towline.store.listing import ChainFilter, JobFilter, RecordPage

T = TypeVar("T")

ALL = 10_000
LIMIT = ("concurrency", "rate", "per", "running")
SCHEDULE = (
    "task", "every", "catch_up", "overlap", "next_at", "paused_at", "paused_by", "last_tick",
    "last_chain", "ticks", "skipped", "missed",
)  # fmt: skip
BLOCKER = re.compile(r"^blocker chain (\d+)")


class EngineReads:
    """A database, our app on it, a connection of the caller's, and the names of all in it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self.name = database.name
        self.has_levels = database.engine != SQLITE
        """Whether a transaction may go on seeing the database as it was; else it never has to."""
        self._app = Towline(database.url, clock=clock, durable=False, notify=False)
        self.store = self._app.runner.store
        self.store.backstop = None  # a lane that is not told of would sleep for ever
        if database.engine == SQLITE:
            self._connection = database.connect(isolation_level=None)
        else:
            self._connection = database.connect(autocommit=True)
        self._reader = open_reader(database.url)
        self.theirs = False
        """Whether verbs run on the caller's connection; inside his transaction they all do."""
        self.depth = 0
        """1 in his transaction, one more in each savepoint."""
        self.ids: dict[str, tuple[int, int]] = {}
        """The id and the time of creation of each name there ever was."""
        self.names: dict[int, str] = {}
        self.workers: dict[str, int] = {}
        self.worker_names: dict[int, str] = {}
        self.present: set[int] = set()
        """The jobs of the last dump."""
        self.woken: set[str] = set()
        """Queues that the last verb marked as having work."""
        self.told_ended = False
        # What the last dumps found, so that the next one reads only what has changed.
        self._attempts: dict[int, tuple[JobRecord, list[Seen]]] = {}
        self._last: dict[bool, tuple[tuple[list[JobRecord], list[ChainRecord]], Seen]] = {}
        # The first operation there is run inside another, which looks at the tables before.
        self._app.runner.run(self.store.workers(), on=self._connection)

    def close(self) -> None:
        self._connection.close()
        self._reader.close()
        self._app.close()

    def forget(self) -> None:
        """A new program begins."""
        for memory in (
            self.ids, self.names, self.workers, self.worker_names, self.present, self._attempts,
            self._last,
        ):  # fmt: skip
            memory.clear()
        self.theirs = False

    @property
    def in_transaction(self) -> bool:
        return bool(self.depth)

    def run(self, op: Op[T], *, outside: bool = False) -> T:
        """Run an operation on our connection or on the caller's; outside of his transaction if one
        wants to see what others see."""
        theirs = (self.theirs or self.in_transaction) and not outside
        answer = self._app.runner.run(op, on=self._connection if theirs else None)
        if op.follows is not None:
            self.woken |= op.follows.queues
            self.told_ended |= op.follows.ended
        return answer

    def sql(self, text: str) -> None:
        """The caller's own words."""
        self._connection.execute(text)

    def checked(self, name: str, begin: Callable[[int], Op[T]], *, reads: bool = False) -> Op[T]:
        """An operation by a handle: NotFound if its id is another's by now."""
        id, created_at = self.ids[name]

        def steps() -> Steps[T]:
            yield from self.store.job(id, created_at)
            return (yield from begin(id))

        return Op("checked", steps, reads=reads)

    # ---- names

    def learn(self, name: str, id: int, created_at: int) -> None:
        self.ids[name] = id, created_at
        self.names[id] = name

    def learn_worker(self, name: str, id: int) -> None:
        self.workers[name] = id
        self.worker_names[id] = name

    def learn_from(self, records: Iterable[JobRecord]) -> None:
        for record in records:
            name = record.label
            if record.schedule is not None:
                name = fired_name(record.schedule, record.tick, record.created_at)
            assert name is not None
            self.learn(name, record.id, record.created_at)

    def learn_all(self) -> None:
        """Everybody's name: a job was stored whose record nobody was given."""
        self.learn_from(self.run(self.store.jobs(JobFilter(), ALL)).records)

    def _named(self, id: int | None) -> str | None:
        return None if id is None else self.names[id]

    def _text(self, error: str | None) -> str | None:
        """A reason that tells a chain by its name."""
        found = BLOCKER.match(error or "")
        if error is None or found is None:
            return error
        return f"blocker chain {self.names[int(found[1])]}{error[found.end() :]}"

    # ---- records in the words of the model

    def job_seen(self, record: JobRecord) -> Seen:
        seen = msgspec.structs.asdict(record)
        for link in ("id", "chain_id", "continued_by", "last_blocker"):
            seen[link] = self._named(seen[link])
        seen["last_error"] = self._text(record.last_error)
        if record.held_by is not None:
            seen["held_by"] = self.worker_names[record.held_by]
        return seen

    def attempt_seen(self, record: AttemptRecord) -> Seen:
        return {
            **record._asdict(),
            "job_id": self.names[record.job_id],
            "error": self._text(record.error),
        }

    def chain_seen(self, record: ChainRecord) -> Seen:
        return {**record._asdict(), "id": self.names[record.id]}

    def blockers_seen(self, records: Iterable[BlockerRecord]) -> list[Seen]:
        return [
            {
                **record._asdict(),
                "job_id": self.names[record.job_id],
                "chain_id": self.names[record.chain_id],
                "error": self._text(record.error),
            }
            for record in records
        ]

    def dependent_seen(self, record: DependentRecord) -> Seen:
        links = ("chain_id", "job_id", "own_chain_id")
        seen = record._asdict()
        return {**seen, **{link: self.names[seen[link]] for link in links}}

    def schedule_seen(self, record: ScheduleRecord) -> Seen:
        seen = {name: getattr(record, name) for name in SCHEDULE}
        return {**seen, "last_chain": self._named(record.last_chain)}

    # ---- everything

    def dump(self, *, outside: bool = False, anew: bool = False) -> Seen:
        """All that reads show, in one transaction; from outside, what the caller has committed.

        What belongs to jobs and chains is read again when one of them has changed, or anew.
        """
        if anew:
            self._attempts.clear()
            self._last.clear()
        op = Op("dump", lambda: self._dump(outside), reads=True)
        return self.run(op, outside=outside)

    def _dump(self, outside: bool) -> Steps[Seen]:
        store = self.store
        jobs: list[JobRecord] = (yield from store.jobs(JobFilter(), ALL, newest=False)).records
        chains = (yield from store.chains(ChainFilter(), ALL, newest=False)).records
        self.learn_from(jobs)
        if not outside:
            self.present = {record.id for record in jobs}
        rows, shown = self._last.get(outside, (None, {}))
        if rows != (jobs, chains):
            shown = yield from self._belonging(jobs, chains)
            self._last[outside] = (jobs, chains), shown
        workers = yield from store.workers()
        return {
            **shown,
            "worker": {
                w.name: {
                    "started_at": w.started_at, "seen_at": w.seen_at, "lease_until": w.lease_until,
                }
                for w in workers
            },
            "limits": {
                (limit.queue, limit.lane): {name: getattr(limit, name) for name in LIMIT}
                for limit in (yield from store.limits())
            },
            "schedules": {
                record.name: self.schedule_seen(record)
                for record in (yield from store.schedules(None, ALL)).records
            },
            "paused": [queue.name for queue in (yield from store.paused())],
            "next due": (yield from store.peek(())).next_due,
        }  # fmt: skip

    def _belonging(self, jobs: list[JobRecord], chains: list[ChainRecord]) -> Steps[Seen]:
        """Jobs and chains with what belongs to them."""
        attempts: Seen = {}
        for record in jobs:
            known, shown = self._attempts.get(record.id, (None, []))
            if known != record:
                rows = yield from self.store.attempts(record.id)
                shown = [self.attempt_seen(row) for row in rows]
                self._attempts[record.id] = record, shown
            attempts[self.names[record.id]] = shown
        waiting = yield from self.store.blockers([record.id for record in jobs if record.blockers])
        counts = yield from self.store.counts()
        return {
            "job": {self.names[record.id]: self.job_seen(record) for record in jobs},
            "attempts": attempts,
            "blockers": {self.names[id]: self.blockers_seen(b) for id, b in waiting.items()},
            "chain": {self.names[record.id]: self.chain_seen(record) for record in chains},
            "counts": {
                (queue, str(state)): number
                for queue, states in counts.items()
                for state, (number, _) in states.items()
                if number
            },
        }

    def audit(self) -> list[Finding]:
        """What is wrong with the tables as others see them."""
        return audit_tables(self._reader)

    # ---- reading as verbs

    def expired(self) -> tuple[list[str], bool]:
        workers, strays = self.run(self.store.expired())
        return sorted(self.worker_names[id] for id in workers), strays

    def jobs(self, where: Where, limit: int, newest: bool) -> list[list[str]]:
        filter = self.job_filter(where)
        return self._pages(lambda cursor: self.store.jobs(filter, limit, cursor, newest))

    def chains(self, where: Where, limit: int, newest: bool) -> list[list[str]]:
        filter = ChainFilter(
            None if where.state is None else ChainState(where.state), where.task, where.key,
            where.label, where.since, where.until,
        )  # fmt: skip
        return self._pages(lambda cursor: self.store.chains(filter, limit, cursor, newest))

    def job_filter(self, where: Where) -> JobFilter:
        return JobFilter(
            None if where.state is None else State(where.state),
            None if where.outcome is None else Outcome(where.outcome),
            where.task, where.queue, None if where.chain is None else self.ids[where.chain][0],
            where.key, where.label, None, where.since, where.until,
        )  # fmt: skip

    def _pages(self, begin: Callable[[int | None], Op[RecordPage[Any]]]) -> list[list[str]]:
        pages: list[list[str]] = []
        cursor: int | None = None
        while True:
            found = self.run(begin(cursor))
            pages.append([self.names[record.id] for record in found.records])
            cursor = found.cursor
            if cursor is None:
                return pages

    def look(self, what: str, name: str) -> object:
        store = self.store
        if what == "job":
            return self.job_seen(self.run(self.checked(name, store.job, reads=True)))
        if what == "attempts":
            rows = self.run(self.checked(name, store.attempts, reads=True))
            return [self.attempt_seen(row) for row in rows]
        chain = self.run(self.checked(name, store.job, reads=True)).chain_id
        if what == "dependents":
            return [self.dependent_seen(row) for row in self.run(store.dependents(chain))]
        if what == "ended":
            record, tail = self.run(store.chain(chain))
            return None if record.state is ChainState.OPEN else self.job_seen(tail)
        record, tail = self.run(store.chain(chain))
        return self.chain_seen(record), self.job_seen(tail)
