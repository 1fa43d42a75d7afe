"""One thread of the storm: does at random everything an application, a worker and a person do.

An error that the operation cannot have is a finding.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from psycopg import IsolationLevel, errors

from tests.races.auditor import OWN
from tests.races.storm_worker import QUEUES, SECOND, TASKS, UNKNOWN, Log, StormWorker
from tests.races.together import begin, own_connection
from towline import Towline
from towline.app.handles import Job
from towline.errors import (
    BlockerError,
    DuplicateKey,
    InvalidState,
    NotFound,
    StillNeeded,
    TowlineError,
    WrongIsolation,
)
from towline.model import Outcome
from towline.operation import Op, Query, Steps
from towline.store.ground import int_of
from towline.store.listing import JobFilter
from towline.store.retention import KeepFor
from towline.task import Call
from towline.task.options import Options

KEYS = ("k1", "k2", "k3")
GO_ON = ("run", "wait")  # of those in the line of a key
OLD = (IsolationLevel.REPEATABLE_READ, IsolationLevel.SERIALIZABLE)
CHAIN_IDS = Query("chain_ids", "SELECT id FROM towline_chain")
STATES = ("pending", "scheduled", "blocked", "running", "completed", "failed", "cancelled", None)


class RolledBack(TowlineError):
    """The caller has changed its mind."""


# How often each operation is drawn, and the errors it may answer with.
Errors = tuple[type[TowlineError], ...]
MENU: dict[str, tuple[float, Errors]] = {
    "enqueue one": (12, (BlockerError, DuplicateKey)),
    "enqueue behind": (0, (BlockerError, DuplicateKey)),
    "enqueue many": (4, (BlockerError, DuplicateKey)),
    "enqueue graph": (4, (BlockerError, DuplicateKey)),
    "enqueue on the caller's": (9, (BlockerError, DuplicateKey, WrongIsolation, RolledBack)),
    "turn": (45, (BlockerError,)),
    "renew": (12, ()),
    "die": (0.3, ()),
    "finish stale": (3, ()),
    "progress": (3, ()),
    "sweep": (3, ()),
    "park": (2, ()),
    "unpark": (3, ()),
    "promote": (3, ()),
    "cancel": (4, (NotFound, InvalidState, WrongIsolation, RolledBack)),
    "retry": (8, (NotFound, InvalidState, DuplicateKey, WrongIsolation, RolledBack)),
    "run now": (3, (NotFound, InvalidState, RolledBack)),
    "complete": (4, (NotFound, InvalidState, BlockerError, WrongIsolation, RolledBack)),
    "fail": (3, (NotFound, InvalidState, WrongIsolation, RolledBack)),
    "pause": (1, ()),
    "resume": (3, ()),
    "delete": (3, (NotFound, StillNeeded)),
    "prune": (1, ()),
    "bulk": (1, ()),
    "read": (8, (NotFound,)),
}


def add_tasks(app: Towline) -> None:
    """The tasks of the storm; nobody runs them, endings are drawn."""

    def note(text: str) -> str:
        return text

    for name in TASKS:
        app.task(name=name, queue=QUEUES[TASKS.index(name)])(note)


def met_others(error: BaseException) -> bool:
    """Whether this is a deadlock or a serialization failure, or follows from one."""
    met = (errors.DeadlockDetected, errors.SerializationFailure)
    return isinstance(error, met) or isinstance(error.__cause__, met)


class KeepsToken(Options, frozen=True):
    """A job keeps the token it was stored with, though another call replaces it."""

    def given(self, lane: str | None = None) -> Sequence[str]:
        return [name for name in super().given(lane) if name != "label"]


class StormClient(StormWorker):
    """Draws operations until its time is up."""

    def __init__(self, app: Towline, log: Log, name: str, seed: str) -> None:
        super().__init__(app, log, name, seed)
        self.default = own_connection(app.url)
        self.autocommit = own_connection(app.url, autocommit=True)
        self.target: int | None = None
        places = "?, ?" if app.runner.engine.name == "sqlite" else "%s, %s"
        self.booking = f"INSERT INTO booking (token, chain_id) VALUES ({places})"

    def run(self, deadline: float, stopped: Callable[[], bool] = lambda: False) -> None:
        """Everything once, so that nothing is left out on a slow machine; then as it comes."""
        weights = [self.weight(name) for name in MENU]
        once = self.rng.sample(list(MENU), len(MENU))
        while time.monotonic() < deadline and not stopped():
            self.do(once.pop() if once else self.rng.choices(list(MENU), weights)[0])
        self.default.close()
        self.autocommit.close()

    def do(self, name: str) -> None:
        """One operation of the menu; what it raises must be on the menu, too."""
        method: Callable[[], None] = getattr(self, name.replace(" ", "_").replace("'", ""))
        answer = "ok"
        try:
            method()
        except self.may_raise(name) as error:
            answer = type(error).__name__
        except Exception as error:
            answer = type(error).__name__
            text = f"{name} raised {traceback.format_exc(limit=-6)}"
            self.log("finding", kind="deadlock" if met_others(error) else "error", text=text)
        self.log("op", op=name, answer=answer)

    def weight(self, name: str) -> float:
        return MENU[name][0]

    def may_raise(self, name: str) -> tuple[type[BaseException], ...]:
        return MENU[name][1]

    # ---- enqueue

    def some_call(self, token: str, after: Sequence[Any] = ()) -> Call[Any]:
        options: dict[str, Any] = {
            "label": token,
            "after": after,
            "on_blocker_failure": self.rng.choice(("fail", "wait", "run", "run")),
            "delay": self.some_delay(),
            "priority": self.rng.choice((None, 0, 1, 5)),
            "max_attempts": self.rng.choice((1, 2, 5)),
        }
        if self.chance(0.35):
            scope = self.rng.choice(("open", "open", "any"))
            options |= {
                "key": self.rng.choice(KEYS),
                "scope": scope,
                "on_conflict": self.rng.choice(("return", "raise", "replace")),
            }
            if scope == "any":
                options["window"] = self.rng.choice((0.05, 0.5, 2))
            elif self.chance(0.5):
                how = "after" if after else self.rng.choice(("after", "latest"))
                options |= {"on_conflict": how, "on_blocker_failure": self.rng.choice(GO_ON)}
        task = self.app.registry[self.rng.choice(TASKS)]
        call = task.using(**options).call(token)
        return Call(call.task, call.arguments, KeepsToken(**options))

    def store_calls(
        self, calls: Sequence[Call[Any]], run: Callable[[], Iterable[Job[Any]]]
    ) -> list[Job[Any]]:
        """Enqueue, with a word before and after; duplicates are not stored."""
        tokens = [str(call.options.label) for call in calls]
        self.log("maybe", tokens=tokens)
        try:
            jobs = list(run())
        except UNKNOWN:
            raise
        except BaseException:
            self.log("none", tokens=tokens)
            raise
        new = [
            (t, job.id, job.chain_id) for t, job in zip(tokens, jobs, strict=True) if job.created
        ]
        self.log("new", jobs=new)
        self.log("none", tokens=sorted({*tokens} - {token for token, *_ in new}))
        self.look(jobs)
        return jobs

    def enqueue_one(self) -> None:
        call = self.some_call(self.token(), self.some_chains() if self.chance(0.5) else ())
        self.store_calls([call], lambda: self.app.enqueue_many([call]))

    def enqueue_behind(self) -> None:
        """Behind what somebody is about to end."""
        chains = self.some_chains() if self.target is None else [self.target]
        call = self.some_call(self.token(), chains)
        self.store_calls([call], lambda: self.app.enqueue_many([call]))

    def enqueue_many(self) -> None:
        calls = [self.some_call(self.token()) for _ in range(self.rng.randint(2, 12))]
        self.store_calls(calls, lambda: self.app.enqueue_many(calls))

    def enqueue_graph(self) -> None:
        """Each call behind earlier ones of the batch and stored chains; handed in shuffled."""
        calls: list[Call[Any]] = []
        for _ in range(self.rng.randint(2, 8)):
            earlier = self.rng.sample(calls, min(len(calls), self.rng.randint(0, 3)))
            stored = self.some_chains() if self.chance(0.2) else []
            calls.append(self.some_call(self.token(), [*earlier, *stored]))
        self.rng.shuffle(calls)
        self.store_calls(calls, lambda: self.app.enqueue_many(calls))

    def enqueue_on_the_callers(self) -> None:
        """On the application's connection, together with a row of its own, or rolled back."""
        if self.chance(0.2):
            call = self.some_call(self.token())
            self.store_calls([call], lambda: self.app.enqueue_many([call], on=self.autocommit))
            return
        calls = [self.some_call(OWN + self.token()) for _ in range(self.rng.randint(1, 3))]
        self.store_calls(calls, lambda: self.in_transaction(calls))

    def at_some_level(self, target: int | None = None) -> Any:
        """The application's connection, idle until now: its next transaction is of any level.

        Its snapshot may be old: somebody has begun to wait for the target since.
        """
        connection = self.default
        if self.app.runner.engine.name == "sqlite":
            return connection
        connection.isolation_level = self.rng.choice(list(IsolationLevel))
        if self.chance(0.5):
            connection.execute("SELECT count(*) FROM towline_chain")
            self.target = target
            self.do("enqueue behind")
        return connection

    def in_transaction(self, calls: Sequence[Call[Any]]) -> list[Job[Any]]:
        connection = self.at_some_level()
        try:
            return self.book(calls, connection)
        except errors.SerializationFailure:
            if connection.isolation_level in OLD:
                raise RolledBack from None
            raise

    def book(self, calls: Sequence[Call[Any]], connection: Any) -> list[Job[Any]]:
        try:
            if begun := self.chance(0.5):
                begin(connection)
            if in_savepoint := begun and self.chance(0.5):
                connection.execute("SAVEPOINT caller")
            jobs = self.app.enqueue_many(calls, on=connection)
            connection.cursor().executemany(
                self.booking,
                [(c.options.label, j.id) for c, j in zip(calls, jobs, strict=True) if j.created],
            )
            kept = self.chance(0.6)
            if in_savepoint:
                connection.execute("RELEASE caller" if kept else "ROLLBACK TO caller")
                connection.commit()
            elif kept:
                connection.commit()
        finally:
            self.back(connection)  # what was not committed
        if not kept:
            raise RolledBack
        return jobs

    def back(self, connection: Any) -> None:
        """Roll the caller's transaction back, if its connection is still there."""
        if not getattr(connection, "closed", False):
            connection.rollback()

    # ---- control

    def from_outside(
        self,
        outcome: Outcome,
        id: int,
        run: Callable[[str, object], Job[Any]],
        next: str | None = None,
    ) -> None:
        """End a job without being its worker; sometimes in a transaction that is rolled back."""
        token = self.token()
        if next is not None:
            self.log("maybe", tokens=[next])
        self.log("ending", token=token, outcome=outcome, next=next)
        on = self.at_some_level(id) if self.chance(0.3) else None
        kept = on is None or self.chance(0.5)
        job = None
        known = True
        try:
            job = run(token, on)
            if on is not None and kept:
                on.commit()
        except errors.SerializationFailure:
            if on is not None and on.isolation_level in OLD:
                raise RolledBack from None
            raise
        except UNKNOWN:
            known = False
            raise
        finally:
            if on is not None:
                self.back(on)
            if known and (job is None or not kept):
                self.log("refused", tokens=[token])
                self.log("none", tokens=[next])
        if kept and job is not None:
            self.log("ending", token=token, outcome=outcome, next=next, job=job.id)
            self.log("ended", tokens=[token])

    def some_open_job(self) -> int:
        """Mostly something that can be ended."""
        state = self.rng.choice(("pending", "scheduled", "running"))
        jobs = [job.id for job in self.app.jobs(state=state, limit=30)] if self.chance(0.6) else []
        return self.rng.choice(jobs) if jobs else self.some_job()

    def cancel(self) -> None:
        id = self.some_open_job()
        self.from_outside(Outcome.CANCELLED, id, lambda by, on: self.app.cancel(id, by=by, on=on))

    def fail(self) -> None:
        id = self.some_open_job()
        self.from_outside(Outcome.FAILED, id, lambda by, on: self.app.fail(id, "no", by=by, on=on))

    def complete(self) -> None:
        id = self.some_open_job()
        if self.chance(0.6):
            self.from_outside(
                Outcome.COMPLETED, id, lambda by, on: self.app.complete(id, "done", by=by, on=on)
            )
            return
        following = self.some_continuation()

        def run(by: str, on: object) -> Job[Any]:
            return Job(
                self.app, self.app.runner.run(self.store.complete(id, None, following, by), on)
            )

        self.from_outside(Outcome.CONTINUED, id, run, following.label)

    def retry(self) -> None:
        """Mostly something that can be: a job that failed, or one that was cancelled."""
        page = self.app.jobs(state=self.rng.choice(("failed", "cancelled")), limit=30)
        jobs = [job.id for job in page] if self.chance(0.8) else []
        id = self.rng.choice(jobs) if jobs else self.some_job()
        self.in_some_place(id, lambda on: self.app.retry(id, on=on))

    def run_now(self) -> None:
        id = self.some_job()
        self.in_some_place(id, lambda on: self.app.run_now(id, on=on))

    def in_some_place(self, target: int, run: Callable[[object], object]) -> None:
        """In a transaction of the library's, or of the caller's at some level."""
        if self.chance(0.7):
            run(None)
            return
        connection = self.at_some_level(target)
        try:
            run(connection)
            connection.commit()
        except errors.SerializationFailure:
            if connection.isolation_level in OLD:
                raise RolledBack from None
            raise
        finally:
            self.back(connection)

    def pause(self) -> None:
        self.app.pause(self.rng.choice(QUEUES), by=self.name)

    def resume(self) -> None:
        for queue in QUEUES:
            self.app.resume(queue)

    def bulk(self) -> None:
        """A page of cancels or retries by filter."""
        key = self.rng.choice(KEYS)
        if self.chance(0.5):
            self.app.runner.run(self.store.bulk("retry", JobFilter(key=key), False, None, 20))
            return
        token = self.token()
        self.log("ending", token=token, outcome=Outcome.CANCELLED, many=True)
        self.app.runner.run(self.store.bulk("cancel", JobFilter(key=key), False, None, 5, token))

    # ---- deleting and reading

    def leave(self, op: Op[Any]) -> None:
        """Delete, with a word inside the transaction and after it: which chains go."""

        def steps() -> Steps[list[int]]:
            before = {int_of(id) for (id,) in (yield CHAIN_IDS())}
            answer = yield from op
            if isinstance(answer, list):  # also of chains that were committed after our look
                before |= set(answer)
            gone = sorted(before - {int_of(id) for (id,) in (yield CHAIN_IDS())})
            self.log("leaving", chains=gone)
            return gone

        self.log("left", chains=self.app.runner.run(Op(op.name, steps)))

    def delete(self) -> None:
        newest = self.seen[-1] if self.seen and self.chance(0.3) else self.some_job()
        self.leave(self.store.delete([newest], self.chance(0.3)))

    def prune(self) -> None:
        ages = [round(self.rng.uniform(0.5, 6) * SECOND) for _ in range(3)]
        self.leave(self.store.prune(KeepFor(*ages), self.rng.choice((20, 500))))

    def read(self) -> None:
        """Lists and counts; they also show what others have stored."""
        page = self.app.jobs(state=self.rng.choice(STATES), limit=self.rng.choice((5, 20)))
        self.look(page)
        if self.chance(0.3):
            self.app.counts()
        if self.chance(0.3):
            self.chains += [chain.id for chain in self.app.chains(limit=10)]
        if self.chance(0.3):
            self.app.attempts(self.some_job())
            self.app.chain(self.some_job())
