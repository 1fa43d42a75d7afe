"""Random kills: workers and the processes of their slots are killed while jobs run.

    python -m tests.faults.kills --engine sqlite --jobs 20000 --kills 200

Jobs with chains and joins; a kill each time so many more handlers have ended. A worker that was
killed is started again, as a supervisor would. In the end the audit over tables and event log. Exit
code 1 on any finding.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.faults import event_log, tasks
from tests.faults.audit import Audit, judge
from tests.faults.fresh import Place, heal, places, run
from tests.faults.workers import Worker, at, open_jobs, wait
from tests.races.auditor import open_reader
from tests.races.logs import Finding
from towline import Call

LEASE = 2.0
WORKERS = 3
CONCURRENCY = 4
PAUSE = 0.15  # seconds a handler takes at most
BATCH = 500
SHARE_OF_CHILDREN = 0.25  # of the kills hit a process of a slot, where there is one
AT_LIMIT = 3  # jobs that may have been hit three times by chance
LONG = 1800.0  # seconds for all of it


def graph(dice: random.Random) -> list[Call[Any]]:
    """A chain of two, a few jobs of every kind, and a join behind some of them: eight jobs."""

    def pause() -> float:
        return dice.uniform(0, PAUSE)

    before: list[Call[Any]] = [
        tasks.first.call(pause() / 2),
        tasks.plain.call(pause()),
        tasks.awaiting.call(pause()),
        tasks.plain.call(pause()),
    ]
    behind = [tasks.join.using(after=dice.sample(before, 2)).call(pause())]
    behind.append(tasks.join.using(after=[behind[0], before[0]]).call(pause()))
    apart = tasks.apart if dice.random() < 0.2 else tasks.plain
    return [*before, *behind, apart.call(pause())]


EIGHT = 8  # the chain's second job is stored by its first


def enqueue(jobs: int, dice: random.Random) -> None:
    calls: list[Call[Any]] = []
    for _ in range(jobs // EIGHT):
        calls += graph(dice)
        if len(calls) >= BATCH:
            event_log.write_new(job.id for job in tasks.app.enqueue_many(calls))
            calls = []
    event_log.write_new(job.id for job in tasks.app.enqueue_many(calls))


class Progress:
    """How many handlers have ended, read from the end of the event log as it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._ended = 0

    def ended(self) -> int:
        with open(self._path, "rb") as file:
            file.seek(self._read)
            lines, end, _ = file.read().rpartition(b"\n")
        self._read += len(lines + end)
        self._ended += lines.count(b'"e": "end"')
        return self._ended


class Crew:
    """Workers of which one is always about to be killed."""

    def __init__(self, start: Callable[..., Worker], dice: random.Random) -> None:
        self._start = start
        self._dice = dice
        self._names = 0
        self.workers = [self._new() for _ in range(WORKERS)]
        self.kills = self.kills_of_children = 0

    def _new(self) -> Worker:
        self._names += 1
        options = (f"--lease={LEASE}", f"--concurrency={CONCURRENCY}", "--log-level=error")
        return self._start(f"w{self._names}", *options)

    def kill_one(self) -> None:
        victim = self._dice.choice(self.workers)
        children = victim.children()
        if children and self._dice.random() < SHARE_OF_CHILDREN:
            try:
                os.kill(self._dice.choice(children), signal.SIGKILL)
            except ProcessLookupError:
                return  # it ended by itself meanwhile
            self.kills_of_children += 1
        else:
            victim.kill()
            self.workers[self.workers.index(victim)] = self._new()
        self.kills += 1

    def dead(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.process.poll() is not None]


def kill_at_random(place: Place, jobs: int, kills: int, *, seed: int = 0, again: int = 1) -> Audit:
    """Store the jobs, kill as they progress, let the crew do the rest, and judge.

    `again`: so many handlers per kill may have ended and not been recorded, on average. A worker
    writes several endings at a time, so this depends on how quickly the database answers.
    """
    dice = random.Random(seed)
    with at(place) as start:
        enqueue(jobs, dice)
        progress = Progress(place.folder / event_log.NAME)
        crew = Crew(start, dice)
        began = time.monotonic()
        while crew.kills < kills and progress.ended() < jobs:
            due = (crew.kills + dice.random()) * jobs / (kills + 1)
            wait("some more jobs end", lambda: progress.ended() >= min(due, jobs), LONG)  # noqa: B023
            time.sleep(dice.uniform(0, PAUSE))  # or it would always come right behind an end
            crew.kill_one()
        wait("nothing is left to do", lambda: not open_jobs(place) or crew.dead(), LONG)
        took = time.monotonic() - began
        died = [Finding("worker", f"{worker.name} died by itself") for worker in crew.dead()]
        codes = [worker.stop() for worker in crew.workers]
    run(heal, place)
    with closing(open_reader(place.url)) as reader:
        audit = judge(reader, place.folder, again * crew.kills, at_limit=AT_LIMIT)
    audit.findings += died
    audit.findings += [Finding("exit", f"exit code {code}") for code in codes if code]
    audit.figures["kills"] = crew.kills
    audit.figures["of slot processes"] = crew.kills_of_children
    audit.figures["seconds"] = round(took)
    return audit


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as folder:
        with places(chosen.engine, Path(folder)) as place:
            audit = kill_at_random(
                place, chosen.jobs, chosen.kills, seed=chosen.seed, again=CONCURRENCY
            )
    return 1 if audit.say(chosen.engine) else 0


if __name__ == "__main__":
    sys.exit(main())
