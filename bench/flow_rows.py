"""What `bench.flow` measures: each row is a ratio, or a figure, taken in one go on one engine.

Turns and calls are measured in this process, at the store; drains by the times that the attempts
have in the database, so that starting processes does not count.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import machine, revisions
from bench.flow_jobs import GATED, MAIL, PLAIN, Jobs
from towline import Call, Cron
from towline.model import Outcome
from towline.records import Claimed, Ending
from towline.store.limit import Numbers

BEFORE = "1c8f084"  # the last revision that had none of it
TURNS = 60  # that a figure is the median of
SLICE = 10_000  # calls that are stored together
ROOT = Path(__file__).resolve().parents[1]

Figures = dict[str, float]
New = Callable[[], str]
"""Gives the address of a new, empty database."""


@contextmanager
def opened(url: str) -> Iterator[Jobs]:
    jobs = Jobs(url)
    with closing(jobs.app):
        jobs.app.migrate()
        yield jobs


def store(jobs: Jobs, calls: Iterator[Call[Any]] | Sequence[Call[Any]]) -> None:
    part: list[Call[Any]] = []
    for call in calls:
        part.append(call)
        if len(part) == SLICE:
            jobs.app.enqueue_many(part)
            part = []
    if part:
        jobs.app.enqueue_many(part)


def fill_lanes(jobs: Jobs, number: int, lanes: int) -> None:
    store(jobs, (jobs.laned.call(f"l{n % lanes}", n) for n in range(number)))


def collect_notes(jobs: Jobs, lanes: int) -> None:
    """Let claims digest what was told of lanes while they were filled, on PostgreSQL a note for
    each lane and call; and what autovacuum does within a minute. A turn that comes before pays for
    a million of them, which a worker meets once, behind a bulk of that size."""
    run, ops = jobs.app.runner.run, jobs.app.runner.store
    passes = 0  # all lanes are gone through, and once more
    while passes < 2 * lanes // 100 + 10:
        held = run(ops.claim(1, [MAIL], 1))
        run(ops.finish([Ending(one, Outcome.RELEASED, started=False) for one in held]))
        passes += 1
    jobs.app.vacuum()


# ---- turns


def turns(jobs: Jobs, queue: str, room: int, fresh: Callable[[int], Call[Any]]) -> float:
    """Microseconds for each job of a turn that ends so many and claims as many. What it takes is
    stored again, so that as much waits at the end as at the beginning."""
    app, ops = jobs.app, jobs.app.runner.store
    name = f"bench-{time.monotonic_ns()}"
    worker = app.runner.run(
        ops.register(
            name, host="here", pid=1, birth=None, version="0", queues=[queue], concurrency=room,
            lease=3_600_000_000,
        )
    )  # fmt: skip
    gated = [queue] if queue == MAIL else []
    held: list[Claimed] = []
    times: list[float] = []
    for _ in range(TURNS + 3):
        ends = [Ending(one, Outcome.COMPLETED, "1") for one in held]
        began = time.perf_counter()
        turn = app.runner.run(ops.turn(worker, name, [queue], room, ends, gated=gated))
        times.append((time.perf_counter() - began) / room * 1e6)
        held = turn.claimed
        assert len(held) == room, f"{len(held)} of {room}"
        store(jobs, [fresh(n) for n in range(room)])
    app.runner.run(ops.finish([Ending(one, Outcome.COMPLETED, "1") for one in held], name, worker))
    app.runner.run(ops.unregister(worker))
    return statistics.median(times[3:])


def plain_turns(jobs: Jobs, room: int) -> float:
    store(jobs, [jobs.plain.call(n) for n in range(2 * room)])
    return turns(jobs, PLAIN, room, jobs.plain.call)


def laned_turns(jobs: Jobs, room: int, lanes: int) -> float:
    return turns(jobs, MAIL, room, lambda n: jobs.laned.call(f"l{(n * 7919) % lanes}", n))


def in_lanes(new: New, rounds: int, many: int) -> Figures:
    """A plain turn, one in few lanes, one in many, and a plain one beside those."""
    few, few_lanes, many_lanes = max(many // 50, 2_000), 100, max(many // 100, 100)
    with opened(new()) as alone, opened(new()) as some, opened(new()) as crowd:
        for jobs, number, lanes in ((some, few, few_lanes), (crowd, many, many_lanes)):
            fill_lanes(jobs, number, lanes)
            collect_notes(jobs, lanes)
        taken: dict[str, list[float]] = {}

        def add(name: str, value: float) -> None:
            taken.setdefault(name, []).append(value)

        for _ in range(rounds):
            for room in (8, 100):
                plain = plain_turns(alone, room)
                laned = laned_turns(some, room, few_lanes)
                add(f"beside_{room}", plain / plain_turns(crowd, room))
                add(f"laned_{room}", laned / plain)
                add(f"many_{room}", laned_turns(crowd, room, many_lanes) / laned)
                add(f"plain_{room}_us", plain)
                add(f"laned_{room}_us", laned)
    return {name: statistics.median(values) for name, values in taken.items()}


def closed_lanes(new: New, rounds: int, lanes: int) -> Figures:
    """A look at a queue all of whose lanes are closed, by a plain turn of eight."""
    with opened(new()) as jobs:
        stop_lanes(jobs, lanes)
        ops, looks, plain = jobs.app.runner.store, list[float](), list[float]()
        for _ in range(rounds):
            plain.append(plain_turns(jobs, 8) * 8)
            for _ in range(TURNS):
                began = time.perf_counter()
                pending = jobs.app.runner.run(ops.peek([MAIL])).pending
                looks.append((time.perf_counter() - began) * 1e6)
                assert not pending
    look = statistics.median(looks)
    return {"closed": look / statistics.median(plain), "look_us": look}


def stop_lanes(jobs: Jobs, lanes: int) -> None:
    """So many lanes with a job each, all of which a limit has closed."""
    fill_lanes(jobs, lanes, lanes)
    run, ops = jobs.app.runner.run, jobs.app.runner.store
    run(ops.set_limit(MAIL, "*", Numbers(concurrency=0)))
    while run(ops.peek([MAIL])).pending:
        assert not run(ops.claim(1, [MAIL], 1_000))
    jobs.app.vacuum()  # as autovacuum would


def enqueue(new: New, rounds: int, count: int) -> Figures:
    """One call at a time: plain, and into an open lane."""
    with opened(new()) as jobs:
        jobs.laned.enqueue("open", 0)
        plain, laned = list[float](), list[float]()
        for _ in range(rounds * 10):
            plain.append(timed(count, jobs.plain.enqueue))
            laned.append(timed(count, lambda n: jobs.laned.enqueue("open", n)))
    ours, usual = statistics.median(laned), statistics.median(plain)
    return {"enqueue": usual / ours, "plain_us": usual, "laned_us": ours}


def timed(count: int, call: Callable[[int], object]) -> float:
    began = time.perf_counter()
    for n in range(count):
        call(n)
    return (time.perf_counter() - began) / count * 1e6


# ---- workers


@contextmanager
def workers(url: str, number: int, slots: int, how: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    command = [sys.executable, "-m", "bench.flow_jobs", url, str(slots), how]
    ran = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) for _ in range(number)]
    try:
        yield ran
    finally:
        for one in ran:
            one.terminate()
            one.wait(60)


def drained(jobs: Jobs, url: str, queue: str, number: int, slots: int) -> float:
    """Jobs per second, from the first start to the last end of this queue's jobs."""
    with workers(url, number, slots, "drain") as ran:
        for one in ran:
            if one.wait(1800):
                raise RuntimeError(f"a worker ended with {one.returncode}")
    ((count, first, last),) = asked(
        url,
        "SELECT count(*), min(a.started_at), max(a.ended_at) FROM towline_attempt AS a"
        f" JOIN towline_job AS j ON j.id = a.job_id AND j.queue = '{queue}'",
    )
    return count / max((last - first) / 1e6, 1e-6)


def asked(url: str, text: str) -> list[tuple[int, ...]]:
    if url.startswith("sqlite"):
        import sqlite3

        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as raw:
            return raw.execute(text).fetchall()
    import psycopg

    with psycopg.connect(url) as connection:
        return connection.execute(text.encode()).fetchall()


def beside(
    new: New, rounds: int, one: Callable[[Jobs, str], float], other: Callable[[Jobs, str], float]
) -> float:
    """The first figure by the second, each on a database of its own; who begins changes."""
    ratios: list[float] = []
    for number in range(rounds):
        found: dict[bool, float] = {}
        for first in (True, False) if number % 2 else (False, True):
            url = new()
            with opened(url) as jobs:
                found[first] = (one if first else other)(jobs, url)
        ratios.append(found[True] / found[False])
    return statistics.median(ratios)


def queue_limit(new: New, rounds: int, count: int) -> Figures:
    """Four workers of eight slots, handlers of 50 ms, under a limit that never binds."""

    def limited(jobs: Jobs, url: str) -> float:
        jobs.app.set_limit(GATED, concurrency=1_000_000)
        store(jobs, [jobs.gated.call(n, 0.05) for n in range(count)])
        return drained(jobs, url, GATED, 4, 8)

    def free(jobs: Jobs, url: str) -> float:
        store(jobs, [jobs.slow.call(n, 0.05) for n in range(count)])
        return drained(jobs, url, "slow", 4, 8)

    return {"queue_limit": beside(new, rounds, limited, free)}


def plain_drain(count: int, number: int, slots: int = 8) -> Callable[[Jobs, str], float]:
    def drain(jobs: Jobs, url: str) -> float:
        store(jobs, [jobs.plain.call(n) for n in range(count)])
        return drained(jobs, url, PLAIN, number, slots)

    return drain


def lane_drain(new: New, rounds: int, count: int) -> Figures:
    """Jobs that do nothing, in a hundred lanes, three workers."""

    def laned(jobs: Jobs, url: str) -> float:
        fill_lanes(jobs, count, 100)
        return drained(jobs, url, MAIL, 3, 8)

    return {"lane_drain": beside(new, rounds, laned, plain_drain(count, 3))}


def group_drain(new: New, rounds: int, count: int) -> Figures:
    def grouped(jobs: Jobs, url: str) -> float:
        jobs.app.enqueue_group([jobs.plain.call(n) for n in range(count)])
        return drained(jobs, url, PLAIN, 1, 8)

    return {"group_drain": beside(new, rounds, grouped, plain_drain(count, 1))}


def chunk(new: New, rounds: int, count: int) -> Figures:
    """Items in chunks of 500 whose handler takes 1 ms, by as many jobs of 1 ms; one slot."""

    def together(jobs: Jobs, url: str) -> float:
        store(jobs, [jobs.together.call(n) for n in range(count)])
        return drained(jobs, url, "chunk", 1, 1)

    def apart(jobs: Jobs, url: str) -> float:
        store(jobs, [jobs.slow.call(n, 0.001) for n in range(count)])
        return drained(jobs, url, "slow", 1, 1)

    return {"chunk": beside(new, rounds, together, apart)}


def ticks(new: New, seconds: float) -> Figures:
    """From a tick to the start of its job, on a worker that has nothing else to do."""
    url = new()
    with opened(url) as jobs:
        base = datetime.now(UTC)
        for n in range(4):
            start = base.replace(microsecond=n * 250_000)
            jobs.app.set_schedule(f"s{n}", jobs.plain.call(n), Cron(every=1, start=start))
        with workers(url, 1, 8, "stay"):
            time.sleep(seconds + 2)
    rows = asked(
        url,
        "SELECT a.started_at - j.tick FROM towline_attempt AS a JOIN towline_job AS j"
        " ON j.id = a.job_id WHERE j.tick IS NOT NULL ORDER BY j.id",
    )
    waits = sorted(wait / 1000 for (wait,) in rows[8:])  # without those of the start
    return {
        "tick_p50_ms": statistics.median(waits),
        "tick_p99_ms": waits[min(len(waits) - 1, round(len(waits) * 0.99))],
        "ticks": len(waits),
    }


def idle(new: New, number: int, seconds: float) -> Figures:
    """What a worker uses while nothing happens, in percent of a core, beside so many schedules and
    closed lanes."""
    url = new()
    with opened(url) as jobs:
        stop_lanes(jobs, number)
        for n in range(number):
            jobs.app.set_schedule(f"s{n}", jobs.plain.call(n), Cron(every=86_400 * 365))
        with workers(url, 1, 8, "stay") as (worker,):
            time.sleep(5)
            before = machine.exact_cpu([worker.pid])
            time.sleep(seconds)
            used = machine.grown(before, machine.exact_cpu([worker.pid]))
    return {"idle_percent": 100 * used / seconds}


def unused(engine: str, rounds: int, folder: Path, short: bool) -> Figures:
    """What people do all day, by the last revision that had none of it: processor's time."""
    folder = folder / "unused"
    folder.mkdir()
    script, other = folder / "script.py", folder / "other"
    script.write_text(revisions.SCRIPT)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(other)], check=True)
    subprocess.run(["git", "checkout", "-q", BEFORE], cwd=other, check=True)
    found: Figures = {}
    with revisions.databases(engine, folder) as database:
        for kind in ("enqueue", "drain"):
            count = revisions.COUNTS[engine][kind] // (10 if short else 1)
            taken: dict[Path, list[float]] = {ROOT: [], other: []}
            for number in range(rounds):
                for root in (ROOT, other) if number % 2 else (other, ROOT):
                    taken[root].append(revisions.measure(script, root, kind, database(), count)[1])
            found[f"unused_{kind}"] = min(taken[other]) / min(taken[ROOT])
    return found
