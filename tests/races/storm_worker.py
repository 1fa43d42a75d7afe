"""A worker of the storm: claims, ends, renews, plays dead, and tries what it no longer may.

It writes down what it is about to do and what it was told, one line each, for the auditor.
"""

from __future__ import annotations

import json
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import psycopg

from tests.races.together import still_owed
from towline import Towline
from towline.app.handles import Job
from towline.errors import CommitUnknown
from towline.model import ChainState, Live, Outcome, Policy
from towline.operation import Op
from towline.records import Claimed, Ending, NewBlocker, NewJob
from towline.store import read
from towline.store.lease import Begun
from towline.store.turn import promote, unpark

T = TypeVar("T")

# The commit may have happened or not, so nothing is said. On the caller's connection the driver's
# error does not tell at which statement the connection was lost.
UNKNOWN = (CommitUnknown, psycopg.OperationalError)

SECOND = 1_000_000
LEASE = SECOND
STALE = 40  # attempts to remember after they are over
QUEUES = ("default", "slow", "mail")
TASKS = ("add", "send", "scale")


class Log:
    """A file to which each event is appended by one write; a kill leaves at most a torn line."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def __call__(self, event: str, **fields: Any) -> None:
        os.write(self._file, json.dumps({"e": event, **fields}).encode() + b"\n")


class StormWorker:
    """Draws what a worker does, and how its jobs end."""

    def __init__(self, app: Towline, log: Log, name: str, seed: str) -> None:
        self.app = app
        self.store = app.runner.store
        self.clock = app.runner.store.clock
        self.log = log
        self.name = name
        self.rng = random.Random(seed)
        self.tokens = 0
        self.seen: deque[int] = deque(maxlen=48)  # jobs of anybody
        self.chains: deque[int] = deque(maxlen=24)
        self.held: list[Claimed] = []
        self.owed: list[Ending] = []  # postponed: to be tried again
        self.stale: list[Claimed] = []  # known to be over
        self.doubtful: list[Claimed] = []  # claimed under a registration that is gone
        self.dead_until = 0  # plays dead: neither renews nor claims
        self.register()

    # ---- small things

    def token(self) -> str:
        self.tokens += 1
        return f"{self.name}.{self.tokens}"

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def look(self, jobs: Iterable[Job[Any]]) -> None:
        """Remember jobs to do something with later."""
        for job in jobs:
            self.seen.append(job.id)
            self.chains.append(job.chain_id)

    def some_job(self) -> int:
        if self.held and self.chance(0.3):
            return self.rng.choice(self.held).job_id
        return self.rng.choice(self.seen) if self.seen else 1

    def some_chains(self) -> list[int]:
        """Chains to wait for: some long ended, some ending right now, some deleted."""
        known = sorted({*self.chains, *(held.chain_id for held in self.held)})
        return self.rng.sample(known, min(self.rng.choice((0, 1, 1, 2, 3, 5)), len(known)))

    def some_delay(self) -> float | None:
        return self.rng.choice((None, None, None, 0.0, 0.02, 0.2, 0.7))

    def until(self) -> int | None:
        """When what we were just told had happened at the latest, unless its time is exact: on
        SQLite the clock is read by whoever holds the writer."""
        return None if self.app.runner.engine.name == "sqlite" else self.clock()

    def register(self) -> None:
        self.worker_name = self.token()
        before = self.clock()
        self.worker = self.app.runner.run(
            self.store.register(
                self.worker_name, host="here", pid=os.getpid(), birth=None, version="0",
                queues=QUEUES, concurrency=8, lease=LEASE,
            )
        )  # fmt: skip
        self.note_lease(before)

    def note_lease(self, before: int) -> None:
        self.log("lease", worker=self.worker_name, since=self.clock(), until=before + LEASE)

    def renew(self) -> None:
        if self.clock() < self.dead_until:
            return
        before = self.clock()
        held = {(job.job_id, job.attempt) for job in self.held}
        renewed = self.app.runner.run(self.store.renew(self.worker, self.worker_name, LEASE, held))
        if renewed.postponed:
            return
        if not renewed.registered:
            self.doubtful += self.held
            self.held = []
            self.register()
            return
        self.note_lease(before)
        lost = set(renewed.lost)
        self.stale += [job for job in self.held if (job.job_id, job.attempt) in lost]
        self.held = [job for job in self.held if (job.job_id, job.attempt) not in lost]

    def die(self) -> None:
        """Stop renewing for longer than the lease; come back as if nothing had been."""
        self.dead_until = self.clock() + round(LEASE * self.rng.uniform(1.1, 2.5))

    def turn(self) -> None:
        if self.clock() < self.dead_until:
            return
        endings = {ending.held.job_id: ending for ending in self.owed}
        for held in (*self.held, *self.doubtful):
            if held.job_id not in endings and self.chance(0.7):
                endings[held.job_id] = self.some_ending(held)
        room = max(0, self.rng.randint(1, 8) - len(self.held) + len(endings))
        queues = self.rng.sample(QUEUES, self.rng.randint(1, 3))
        ahead = self.rng.choice((0, 0, 3))
        begins = [(held, self.clock()) for held in self.held if self.chance(0.3)]
        claimed = self.end(
            list(endings.values()),
            lambda ends: self.store.turn(
                self.worker, self.worker_name, queues, room, ends, ahead=ahead, begins=begins
            ),
        )
        self.log("claim", by=self.worker_name, until=self.until(), jobs=[
            (job.job_id, job.attempt, job.claimed_at) for job in claimed.claimed
        ])  # fmt: skip
        self.held += claimed.claimed
        for job in claimed.claimed:
            self.check_blockers(job, [b.state for b in claimed.blockers.get(job.job_id, ())])

    def check_blockers(self, job: Claimed, states: Sequence[ChainState]) -> None:
        """A claimed job sees all it waited for, ended. Once it has run under policy "run", a
        blocker may have been retried since."""
        if len(states) != job.blockers or (ChainState.OPEN in states and job.attempt == 1):
            what = f"job {job.job_id}, attempt {job.attempt}, was claimed with {job.blockers}"
            self.log("finding", kind="early", text=f"{what} blockers: {states}")

    def some_ending(self, held: Claimed) -> Ending:
        (kind,) = self.rng.choices(
            list(Outcome), [60, 14, 10, 3, 5, 4, 0, 4]
        )  # never says of itself that it is lost
        ending = Ending(held, kind, error=self.token())
        match kind:
            case Outcome.COMPLETED:
                ending.output, ending.error = json.dumps(ending.error), None
            case Outcome.CONTINUED:
                ending.next = self.some_continuation()
            case Outcome.FAILED | Outcome.TIMEOUT:
                ending.delay = self.rng.choice((None, 0, 50_000, 300_000))
            case Outcome.SNOOZED:
                ending.delay = self.rng.choice((0, 50_000, 500_000))
            case Outcome.RELEASED:
                ending.started = self.chance(0.5)
        return ending

    def some_continuation(self) -> NewJob:
        """Sometimes behind others, which may wait for this very chain: then it is refused."""
        blockers = self.some_chains() if self.chance(0.4) else []
        delay = self.some_delay()
        return NewJob(
            self.rng.choice(TASKS),
            '{"text": "continued"}',
            queue=self.rng.choice(QUEUES),
            label=self.token(),
            delay=None if delay is None else round(delay * SECOND),
            blockers=[NewBlocker(chain_id=id) for id in blockers],
            policy=self.rng.choice(list(Policy)),
            inherit_priority=True,
        )

    def end(self, endings: Sequence[Ending], turn: Callable[[Sequence[Ending]], Op[T]]) -> T:
        """End attempts, with a word before and after; forget those that are over."""
        tokens = {ending.held.job_id: self.say_ending(ending) for ending in endings}
        following = {e.held.job_id: e.next.label for e in endings if e.next is not None}
        try:
            answer: Any = self.app.runner.run(turn(endings))
        except UNKNOWN:
            self.owed = []
            raise
        except BaseException:
            self.log("refused", tokens=list(tokens.values()))
            self.log("none", tokens=list(following.values()))
            self.owed = []  # their tokens are used up: other endings will be drawn
            raise
        finished = getattr(answer, "finished", answer)
        self.log("ended", tokens=[tokens[id] for id in finished.accepted])
        self.log("refused", tokens=[tokens[id] for id in finished.refused])
        self.log("none", tokens=[following[id] for id in finished.refused if id in following])
        self.log("postponed", number=len(finished.postponed))
        owed = still_owed(endings, finished)
        self.owed = [e for e in self.owed if e not in endings] + owed
        over = [ending.held for ending in endings if ending not in owed]
        self.stale = [*self.stale, *over][-STALE:]  # accepted or not, this attempt is over
        self.held = [job for job in self.held if job not in over]
        self.doubtful = [job for job in self.doubtful if job not in over]
        return answer  # type: ignore[no-any-return]

    def say_ending(self, ending: Ending) -> str:
        token = ending.error or json.loads(ending.output or "")
        held, following = ending.held, ending.next
        if following is not None:
            self.log("maybe", tokens=[following.label])
        self.log(
            "ending", token=token, job=held.job_id, attempt=held.attempt, outcome=ending.outcome,
            started=ending.started, next=following and following.label,
        )  # fmt: skip
        return str(token)

    def finish_stale(self) -> None:
        """End, report and park what is over: nothing of it may be accepted."""
        if not self.stale:
            return
        ids = sorted({held.job_id for held in self.stale})
        records = self.app.runner.run(
            Op("records", lambda: read.records(self.store, ids), reads=True)
        )
        running = {record.id for record in records if record.live_state == Live.RUNNING}
        # Best of all one that somebody else runs just now.
        again = [held for held in self.stale if held.job_id in running]
        held = self.rng.choice(again or self.stale)
        ending = self.some_ending(held)
        if ending.next is not None:
            ending.next.blockers = ()
        finished = self.end(
            [ending], lambda ends: self.store.finish(ends, self.worker_name, self.worker)
        )
        (reported,) = self.app.runner.run(self.store.progress([(held, 0.5, "stale")]))
        parked = self.app.runner.run(self.store.park([held]))
        if finished.accepted or reported or parked:
            text = f"stale attempt {held.attempt} of job {held.job_id} was accepted"
            self.log("finding", kind="fence", text=text)

    def progress(self) -> None:
        reports = [(held, self.rng.random(), "so far") for held in self.held]
        self.app.runner.run(self.store.progress(reports))

    def park(self) -> None:
        if self.held:
            held = self.held.pop()
            self.app.runner.run(self.store.park([held]))

    def unpark(self) -> None:
        limit = self.rng.choice((1, 1000))
        self.app.runner.run(
            Op("unpark", lambda: unpark(self.store, self.rng.sample(TASKS, 2), QUEUES, limit))
        )

    def promote(self) -> None:
        self.app.runner.run(Op("promote", lambda: promote(self.store, self.rng.choice((1, 1000)))))

    def sweep(self) -> None:
        """After the lease, of suspects seen before, or of processes that are gone."""
        suspects = None
        gone: list[int] = []
        if self.chance(0.5):
            suspects = sorted(self.app.runner.run(self.store.expired()).workers)
        else:
            workers = self.app.runner.run(self.store.workers())
            gone = [w.id for w in workers if not os.path.exists(f"/proc/{w.pid}")]
        limit = self.rng.choice((2, 500))
        known = [worker for worker in (suspects or gone) if self.chance(0.5)]
        begun = dict.fromkeys(known, Begun(frozenset()))
        self.app.runner.run(self.store.sweep(suspects, gone, limit, begun))
