"""Towline itself, on either engine, as an application would use it."""

from __future__ import annotations

import os
import time
from typing import Any

from bench.systems import harness
from bench.systems.harness import TEXT, Params, ran
from towline import Next, Towline

# Process slots import this file again, so the place comes by the environment.
app = Towline(os.environ.get("BENCH_URL"), durable=os.environ.get("BENCH_DURABLE") != "0")

FAN = 100
LINKS = 5


@app.task
def plain(number: int, text: str) -> None:
    ran(number)


@app.task
async def awaiting(number: int, text: str) -> None:
    ran(number)


@app.task(run_in="process")
def apart(number: int, text: str) -> None:
    ran(number)


@app.task
def link(number: int, left: int) -> Next[None] | None:
    """One link of a chain; its numbers follow one another."""
    ran(number)
    return link.then(number + 1, left - 1) if left else None


@app.task
def gather(number: int) -> None:
    ran(number)


@app.task(name="work", queue="queue0")
def seeded(text: str) -> None:
    """What bench.seed fills a database with; it lies behind the jobs that are measured."""


TASKS = {"sync": plain, "async": awaiting, "process": apart}


def open_app(params: Params) -> None:
    place = params["place"]
    url = place if "://" in place else f"sqlite:///{place}"
    durable = bool(params.get("durable", True))
    os.environ["BENCH_URL"], os.environ["BENCH_DURABLE"] = url, str(int(durable))
    app.use(url, durable=durable)
    app.migrate()


def enqueue(params: Params) -> dict[str, Any]:
    open_app(params)
    return harness.one_by_one(params, lambda number: plain.enqueue(number, TEXT))


def bulk(params: Params) -> dict[str, Any]:
    open_app(params)
    app.enqueue_many([plain.call(-n - 1, TEXT) for n in range(harness.WARM)])
    count = params["count"]
    return harness.timed(
        count, lambda: app.enqueue_many([plain.call(number, TEXT) for number in range(count)])
    )


def fill(params: Params) -> None:
    """Store jobs of the kind that the scenario wants, behind whatever is there."""
    open_app(params)
    first, count = params.get("first", 0), params["count"]
    kind = params.get("kind", "plain")
    if kind == "chains":
        calls = [link.call(first + LINKS * n, LINKS - 1) for n in range(count // LINKS)]
        app.enqueue_many(calls)
    elif kind == "fan-in":
        for start in range(first, first + count, FAN + 1):
            blockers = [plain.call(start + n, TEXT) for n in range(FAN)]
            app.enqueue_many([*blockers, gather.using(after=blockers).call(start + FAN)])
    else:
        task = TASKS[params.get("handler", "sync")]
        if queue := params.get("queue"):
            task = task.using(queue=queue, priority=9)  # type: ignore[assignment]
        for start in range(first, first + count, 5000):
            numbers = range(start, min(start + 5000, first + count))
            app.enqueue_many([task.call(number, TEXT) for number in numbers])


def worker(params: Params) -> None:
    open_app(params)
    queues = ["default"] + ([params["queue"]] if "queue" in params else [])
    hand = app.worker(concurrency=params.get("concurrency", 8), queues=queues)
    harness.gate()
    hand.run()


def pulse(params: Params) -> dict[str, Any]:
    open_app(params)
    return harness.pulse(params, lambda number: plain.enqueue(number, TEXT))


def look(params: Params) -> None:
    """What a dashboard asks for, again and again, until it is stopped."""
    open_app(params)
    harness.gate()
    while True:
        list(app.jobs(limit=50))
        list(app.jobs(state="completed", limit=50))
        app.counts()
        app.stats(by="minute")
        time.sleep(params.get("pause", 0.1))


def left(params: Params) -> dict[str, Any]:
    open_app(params)
    open_states = ("pending", "scheduled", "blocked", "running", "parked")
    found = [by_state for queue, by_state in app.counts().items() if queue == "default"]
    return {"left": sum(row.get(state, 0) for row in found for state in open_states)}


if __name__ == "__main__":
    harness.main({
        "enqueue": enqueue,
        "bulk": bulk,
        "fill": fill,
        "worker": worker,
        "pulse": pulse,
        "look": look,
        "left": left,
    })  # fmt: skip
