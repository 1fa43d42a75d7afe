"""What open dashboards cost a worker: its drain rate with ten of them open, by that with none.

    python -m bench.dashboards [--engine postgres] [--open 10] [--rounds 5] [--seconds 5]

Beside a million ended and 100,000 pending jobs. Worker, dashboard and those who watch are processes
of their own; who watches holds the stream and fetches the page when it is told to, as a browser
does. Rounds with and without take turns, and a ratio is of one round.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.pages import filled
from bench.rounds import rotated
from bench.seed import TASK, Numbers, new_job, queue_names
from towline import Towline

QUEUES = queue_names(5)
WARM = 1.0  # seconds before it is counted
PAGES = (
    "/", "/jobs", "/", "/queues", "/jobs?state=pending", "/tasks", "/jobs/{id}", "/workers",
    "/chains/{id}", "/?range=24h",
)  # fmt: skip


def drain(url: str, seconds: float) -> None:
    """A worker for so long; prints how many jobs a second it ran."""
    app = Towline(url)
    ran = itertools.count()

    @app.task(name=TASK)
    def work(text: str) -> None:
        next(ran)

    with app.worker(queues=QUEUES, concurrency=8):
        time.sleep(WARM)
        first, begun = next(ran), time.perf_counter()
        time.sleep(seconds)
        print((next(ran) - first - 1) / (time.perf_counter() - begun), flush=True)
    app.close()


async def watch_all(place: str, number: int, job: int) -> None:
    """So many open pages, until this process is ended."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=place, timeout=60, limits=limits) as client:
        roads = [PAGES[n % len(PAGES)].format(id=job) for n in range(number)]
        await asyncio.gather(*(watch(client, road) for road in roads))


async def watch(client: httpx.AsyncClient, road: str) -> None:
    (await client.get(road)).raise_for_status()
    async with client.stream("GET", "/live") as stream:
        async for line in stream.aiter_lines():
            if line == "data: changed":
                (await client.get(road)).raise_for_status()


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", *words]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        try:
            yield running
        finally:
            running.terminate()
            running.communicate()


def drained(url: str, seconds: float) -> float:
    words = ("bench.dashboards", "--drain", url, "--seconds", str(seconds))
    with process(*words) as worker:
        out, error = worker.communicate()
    assert worker.returncode == 0, error
    return float(out)


def beside(url: str, number: int, job: int, seconds: float) -> float:
    """The rate with so many dashboards open."""
    if number == 0:
        return drained(url, seconds)
    with process("towline", "dashboard", "--url", url, "--port", "0") as server:
        assert server.stderr is not None
        place = server.stderr.readline().split()[1]
        words = ("--watch", place, "--open", str(number), "--job", str(job))
        with process("bench.dashboards", *words) as watching:
            time.sleep(WARM)
            before, begun = cpu_seconds(server.pid), time.perf_counter()
            rate = drained(url, seconds)
            share = (cpu_seconds(server.pid) - before) / (time.perf_counter() - begun)
            if watching.poll() is not None:
                raise RuntimeError(f"those who watch are gone: {watching.communicate()[1]}")
        print(f"the dashboard took {100 * share:.0f} % of a core")
        return rate


def cpu_seconds(pid: int) -> float:
    """What a process has used; a busy machine hides it less than a rate."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def compare(url: str, number: int, rounds: int, seconds: float, job: int) -> None:
    app = Towline(url)
    pending = waiting(app)
    ratios: list[float] = []
    for turn in range(rounds):
        rates: dict[int, float] = {}
        for opened in rotated([0, number], turn):
            again = [new_job(n, len(QUEUES)) for n in range(pending - waiting(app))]
            app.runner.run(app.runner.store.enqueue(again))
            rates[opened] = beside(url, opened, job, seconds)
        ratios.append(rates[number] / rates[0])
        shown = f"none {rates[0]:7.0f}/s   {number} open {rates[number]:7.0f}/s"
        print(f"round {turn + 1}   {shown}   ratio {ratios[-1]:.2f}", flush=True)
    print(f"median {statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}")
    app.close()


def waiting(app: Towline) -> int:
    return sum(of.get("pending", 0) for of in app.counts().values())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--open", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0)
    for own in ("--drain", "--watch", "--job"):
        parser.add_argument(own, help=argparse.SUPPRESS)  # what a process of ours is to do
    chosen = parser.parse_args()
    if chosen.drain:
        drain(chosen.drain, chosen.seconds)
    elif chosen.watch:
        asyncio.run(watch_all(chosen.watch, chosen.open, int(chosen.job)))
    else:
        numbers = Numbers(finished=chosen.finished, pending=chosen.pending, queues=len(QUEUES))
        with filled(chosen.engine, numbers) as url:
            job = numbers.ids("pending")[-1]
            compare(url, chosen.open, chosen.rounds, chosen.seconds, job)


if __name__ == "__main__":
    main()
