"""How long each page of the dashboard takes, and its data, beside a million ended jobs.

    python -m bench.pages [--engine postgres] [--finished 1000000] [--pending 100000]

Server side, the median of 20 calls of each view that share nothing, with the HTML made of it.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.seed import Numbers, seed, seed_postgres
from bench.servers import usual_server
from tests.dashboard.serving import served
from towline import Towline, dashboard
from towline.dashboard import live

CALLS = 20


def measure(app: Towline, numbers: Numbers) -> None:
    live.KEPT = 0.0  # each call looks anew
    first, last = 1, numbers.ids("pending")[-1]
    roads = [
        "/", "/?range=30d", "/jobs", "/jobs?state=failed", "/jobs?state=completed",
        "/jobs?state=pending", f"/jobs/{first}", f"/jobs/{last}", f"/chains/{first}",
        f"/chains/{first}/graph", "/queues", "/tasks", "/workers", "/doctor",
    ]  # fmt: skip
    with served(dashboard.asgi(app)) as client:
        for road in roads:
            page, data = median(client, road), median(client, f"/api{road}")
            print(f"{road:24} page {page:7.1f} ms   data {data:7.1f} ms", flush=True)


def median(client: httpx.Client, road: str) -> float:
    taken = []
    for _ in range(CALLS):
        begun = time.perf_counter()
        answer = client.get(road)
        taken.append(1000 * (time.perf_counter() - begun))
        assert answer.status_code == 200, answer.text
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--finished", type=int, default=1_000_000)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    chosen = parser.parse_args()
    numbers = Numbers(finished=chosen.finished, pending=chosen.pending, queues=5)
    with filled(chosen.engine, numbers) as url:
        app = Towline(url)
        measure(app, numbers)
        app.close()


@contextmanager
def filled(engine: str, numbers: Numbers) -> Iterator[str]:
    """A database with so many jobs."""
    if engine == "postgres":
        with usual_server() as server:
            seed_postgres(server.url, numbers)
            yield server.url
        return
    with tempfile.TemporaryDirectory() as folder:
        seed(Path(folder) / "x.db", numbers)
        yield f"sqlite:///{folder}/x.db"


if __name__ == "__main__":
    main()
