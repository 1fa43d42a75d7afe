"""Fan-in: many jobs behind three blockers each, which end at the same moment in many hands.

    python -m tests.races.fan_in --runs 50 --server "postgres 18"

Of three blockers one is a chain that continues, and all three of a job are ended by different
finishers, each a process with a connection of its own, who march along the jobs in step. A job that
is never claimed is stuck; one that is claimed before all it waits for has completed is early.
Exit code 1 on any. A peer left 146 of 200 jobs stuck at this.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.forked import CONTEXT
from tests.races.auditor import audit_tables, open_reader
from tests.races.together import PATIENCE, Run, run_of, still_owed, waiting, with_app
from towline import Towline
from towline.model import Outcome
from towline.records import Claimed, Ending, NewBlocker, NewJob

STEPS = 2  # jobs of a chain that continues
BLOCKERS = "blockers"
DEPENDENTS = "default"
QUEUES = (DEPENDENTS, BLOCKERS)


@dataclass
class Part:
    """What one finisher did and saw."""

    runs: list[Run] = field(default_factory=list)  # of dependents
    postponed: int = 0
    refused: int = 0


@dataclass
class Result:
    """What became of one run."""

    jobs: int
    stuck: int = 0
    early: int = 0
    twice: int = 0
    refused: int = 0
    postponed: int = 0
    hands: int = 0  # finishers that ran dependents
    findings: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        return not (self.stuck or self.early or self.twice or self.refused or self.findings)


def graph(jobs: int) -> list[NewJob]:
    """Blockers first, job by job, so that they are claimed in this order; then the jobs."""
    batch = []
    for _ in range(jobs):
        batch += [NewJob(task, "{}", queue=BLOCKERS) for task in ("plain", "other", "walk")]
    for n in range(jobs):
        blockers = [NewBlocker(index=3 * n + place) for place in range(3)]
        batch.append(NewJob("dependent", "{}", blockers=blockers))
    return batch


def ending(held: Claimed) -> Ending:
    if held.task == "walk" and held.position + 1 < STEPS:
        following = NewJob("walk", "{}", queue=BLOCKERS)
        return Ending(held, Outcome.CONTINUED, next=following)
    return Ending(held, Outcome.COMPLETED, output=f'"{held.task}"')


def deal(held: Sequence[Claimed], finishers: int) -> list[list[Claimed]]:
    """Give each job's three blockers to three finishers, at the same place of their lists."""
    hands: list[list[Claimed]] = [[] for _ in range(finishers)]
    for number, job in enumerate(sorted(held)):
        hands[(number // 3 + number % 3 * 3) % finishers].append(job)
    return hands


_start: Any = None


def _enter(start: Any) -> None:
    global _start
    _start = start


def finish_hand(url: str, index: int, hand: list[Claimed]) -> Part:
    """End what one was dealt, a few at a time, then whatever comes, until nothing is open."""
    part = Part()

    def work(app: Towline) -> None:
        store = app.runner.store
        name = f"w{index}"
        dice = random.Random(f"{url} {index}")
        worker = app.runner.run(
            store.register(
                name, host="here", pid=os.getpid(), birth=None, version="0", queues=QUEUES,
                concurrency=8, lease=10**9,
            )
        )  # fmt: skip
        _start.wait(PATIENCE)
        owed: list[Ending] = []
        held: list[Claimed] = list(hand)
        while True:
            some = dice.randint(1, 3)
            endings, held = [*owed, *map(ending, held[:some])], held[some:]
            turn = app.runner.run(store.turn(worker, name, QUEUES, 2, endings))
            owed = still_owed(endings, turn.finished)
            part.postponed += len(owed)
            part.refused += len(turn.finished.refused)
            # What was just claimed comes first: the next step of a chain ends beside its brothers.
            held = [*turn.claimed, *held]
            part.runs += [
                run_of(job, turn.blockers.get(job.job_id, []))
                for job in turn.claimed
                if job.task == "dependent"
            ]
            if not held and not owed and not turn.claimed:
                if not any(waiting(app, 0, 1, 3, queue=queue) for queue in QUEUES):
                    return

    with_app(url, work)
    return part


class Finishers:
    """Processes that stay from run to run."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._pool = ProcessPoolExecutor(
            number, mp_context=CONTEXT, initializer=_enter, initargs=(CONTEXT.Barrier(number),)
        )

    def close(self) -> None:
        self._pool.shutdown()

    def run(self, url: str, jobs: int) -> Result:
        """One fan-in on an empty database; it is there to be looked at afterwards."""

        def begin(app: Towline) -> list[Claimed]:
            app.runner.run(app.runner.store.enqueue(graph(jobs)))
            return app.runner.run(app.runner.store.claim(1, [BLOCKERS], 3 * jobs))

        held = with_app(url, begin)
        assert len(held) == 3 * jobs
        futures = [
            self._pool.submit(finish_hand, url, index, hand)
            for index, hand in enumerate(deal(held, self.number))
        ]
        return judge(url, jobs, [future.result() for future in futures])


def judge(url: str, jobs: int, parts: Sequence[Part]) -> Result:
    runs = [run for part in parts for run in part.runs]
    times = Counter(run.job_id for run in runs)
    done = ("completed",) * 3, ('"plain"', '"other"', '"walk"')
    with closing(open_reader(url)) as reader:
        found = audit_tables(reader, healed=True)
        ((open_jobs,),) = reader.execute("SELECT count(*) FROM towline_live").fetchall()
    return Result(
        jobs,
        stuck=max(open_jobs, jobs - len(times)),
        early=sum((run.states, run.outputs) != done for run in runs),
        twice=len(runs) - len(times),
        refused=sum(part.refused for part in parts),
        postponed=sum(part.postponed for part in parts),
        hands=sum(bool(part.runs) for part in parts),
        findings=[f"{kind}: {text}" for kind, text in found],
    )


@contextmanager
def fresh(server: str) -> Iterator[str]:
    """The URL of a database with our tables."""
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from tests import database as databases  # only here: finishers start quicker without

    with TemporaryDirectory() as folder, databases.opened(server, Path(folder)) as database:
        yield database.url


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--finishers", type=int, default=10)
    parser.add_argument("--server", default="postgres 18", help='or "sqlite"')
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    with closing(Finishers(chosen.finishers)) as finishers:
        results = []
        for number in range(chosen.runs):
            with fresh(chosen.server) as url:
                results.append(finishers.run(url, chosen.jobs))
            if not results[-1].clean:
                print(f"run {number}: {results[-1]}")
    shape = f"{chosen.jobs} jobs × 3 blockers, {chosen.finishers} finishers"
    print(f"fan-in on {chosen.server}: {chosen.runs} runs of {shape}")
    print(f"  {'seconds':26}{time.monotonic() - began:>8.0f}")
    for name in ("jobs", "stuck", "early", "twice", "refused", "postponed"):
        print(f"  {name:26}{sum(getattr(result, name) for result in results):>8}")
    print(f"  {'runs with a finding':26}{sum(not result.clean for result in results):>8}")
    return 0 if all(result.clean for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
