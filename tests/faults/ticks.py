"""Ticks under kills: six workers fire the same schedules while they are killed, one by one, and the
server is restarted; and a process that dies at each statement of `fire`.

    python -m tests.faults.ticks --engine postgres --seconds 60 --restarts 3

All ticks are made good, so that each of them has exactly one job in the end. Exit code 1 when one
has two, or none.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests import servers
from tests.faults import tasks
from tests.faults.crash_point import CrashPoint, When, install
from tests.faults.fresh import Place, places, run
from tests.faults.server_restarts import furnished
from tests.faults.workers import Worker, at, number, rows, wait
from towline import Cron
from towline.errors import StoreError
from towline.times import MICRO

WORKERS = 6
SCHEDULES = 8
LEASE = 2.0
MINUTE = 60 * MICRO
BEGIN = 1_800_000_000 * MICRO  # of the clock that is moved by hand; a full minute


@dataclass
class Ticks:
    """What became of them."""

    came: int = 0
    twice: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    kills: int = 0
    restarts: int = 0

    def __str__(self) -> str:
        return (
            f"{self.came} ticks, {self.kills} kills, {self.restarts} restarts: "
            f"twice {len(self.twice)}, lost {len(self.lost)}"
        )


def judge(place: Place, found: Ticks) -> Ticks:
    """Each schedule's ticks, from its first job to its last, are there once."""
    of: dict[str, list[int]] = {}
    text = "SELECT schedule, tick FROM towline_job WHERE tick IS NOT NULL ORDER BY schedule, tick"
    for name, tick in rows(place, text):
        of.setdefault(name, []).append(int(tick))
    (spans,) = [dict(rows(place, "SELECT name, every FROM towline_schedule"))]
    counted = dict(rows(place, "SELECT name, ticks FROM towline_schedule"))
    left_out = dict(rows(place, "SELECT name, missed + skipped FROM towline_schedule"))
    for name, every in spans.items():
        ticks = of.get(name, [])
        found.came += len(ticks)
        found.twice += [f"{name} {t}" for t, n in Counter(ticks).items() if n > 1]
        if ticks:
            all_of_them = range(ticks[0], ticks[-1] + 1, int(every))
            found.lost += [f"{name} {tick}" for tick in set(all_of_them) - set(ticks)]
        if counted[name] != len(ticks) or left_out[name]:
            found.lost.append(f"{name}: {counted[name]} counted of {len(ticks)}")
    return found


# ---- a process that dies at a statement


def fire_and_die(place: Place, now: int, number: int, when: When) -> None:
    """Fire what is due, and die at a statement of it unless it is over before."""
    place.enter()
    tasks.app.use(place.url, clock=lambda: now)
    tasks.app.runner.prepare()
    point = CrashPoint(number, when)
    install(point)
    tasks.app.close()  # what was opened before does not pass the point
    tasks.app.runner.prepare()
    tasks.app.runner.run(tasks.app.runner.store.schedule("s0"))
    with point:
        tasks.app.runner.run(tasks.app.runner.store.fire(["plain"]))


def die_at_every_statement(place: Place, whens: Sequence[When] = ("before", "after")) -> Ticks:
    """A minute passes, a process dies while it fires, and another fires after it."""
    found = Ticks()
    now = BEGIN
    with at(place), moved_clock(place, lambda: now):
        for name in ("s0", "s1"):
            cron = Cron(every=60, overlap="replace" if name == "s0" else "allow")
            tasks.app.set_schedule(name, tasks.plain.call(), cron)
        statement = 1
        over = False
        while not over:
            for when in whens:
                now += MINUTE
                code = run(fire_and_die, place, now, statement, when)
                assert code in (0, -signal.SIGKILL), f"exit code {code}"
                found.kills += code != 0
                over = over or code == 0
                wait("nothing is due", lambda: fired_all(now))  # noqa: B023
            statement += 1
    return judge(place, found)


@contextmanager
def moved_clock(place: Place, clock: Callable[[], int]) -> Iterator[None]:
    """The application goes by this clock, and afterwards by its own again."""
    before = tasks.app.settings
    tasks.app.use(place.url, clock=clock)
    yield
    tasks.app.settings = before
    tasks.app.use(place.url)


def fired_all(now: int) -> bool:
    """Fire. A server may take a moment to see that who held a schedule is dead."""
    fired = tasks.app.runner.run(tasks.app.runner.store.fire(["plain"]))
    return fired.next_tick is not None and fired.next_tick > now


# ---- six workers


@contextmanager
def crew(start: Callable[..., Worker], dice: random.Random) -> Iterator[Callable[[], None]]:
    """Workers; a function that kills one of them, for which another comes."""
    names = iter(range(10_000))

    def new() -> Worker:
        return start(f"w{next(names)}", f"--lease={LEASE}", "--concurrency=2", "--log-level=error")

    workers = [new() for _ in range(WORKERS)]

    def kill_one() -> None:
        victim = dice.randrange(WORKERS)
        workers[victim].kill()
        workers[victim] = new()

    yield kill_one
    for worker in workers:
        worker.stop()


def storm(
    place: Place, *, ticks: int, kills: int, restart: Callable[[], None] | None, seed: int = 0
) -> Ticks:
    """Let schedules tick so often while workers are killed; then look what became of the ticks."""
    dice = random.Random(seed)
    found = Ticks()
    with at(place) as start:
        for n in range(SCHEDULES):
            cron = Cron(every=1 + n % 2, catch_up=1000, overlap="allow")
            tasks.app.set_schedule(f"s{n}", tasks.plain.call(), cron)
        jobs = partial(number, place, "SELECT count(*) FROM towline_job")
        with crew(start, dice) as kill_one:
            wait("the first ticks", lambda: counted(jobs) > 0)
            for n in range(kills):
                due = ticks * (n + 1) // (kills + 1)
                wait("some more ticks", lambda: counted(jobs) >= due)  # noqa: B023
                time.sleep(dice.uniform(0, 0.5))
                kill_one()
                found.kills += 1
                if restart is not None and n == kills // 2:
                    restart()
                    found.restarts += 1
            wait("the last ticks", lambda: counted(jobs) >= ticks)
    return judge(place, found)


def counted(jobs: Callable[[], int]) -> int:
    """None while the server is away."""
    try:
        return jobs()
    except Exception as error:
        if isinstance(error, StoreError | OSError) or type(error).__module__.startswith("psycopg"):
            return 0
        raise


@contextmanager
def restartable(folder: Path, server: str) -> Iterator[tuple[Place, Callable[[], None]]]:
    """A place on a server that can be crashed and started again."""
    with servers.durable_server(server) as cluster, furnished(cluster, folder) as place:

        def restart() -> None:
            cluster.stop("immediate")
            cluster.start()

        yield place, restart


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--ticks", type=int, default=300)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ticks-", ignore_cleanup_errors=True) as folder:
        opened: Any = (
            restartable(Path(folder), servers.startable()[-1])
            if chosen.engine == "postgres"
            else places("sqlite", Path(folder))
        )
        with opened as given:
            place, restart = given if isinstance(given, tuple) else (given, None)
            found = storm(
                place, ticks=chosen.ticks, kills=chosen.kills, restart=restart, seed=chosen.seed
            )
    print(found)
    return 1 if found.twice or found.lost else 0


if __name__ == "__main__":
    sys.exit(main())
