"""How long each page of the dashboard takes, and its data, beside a million ended jobs.

    python -m bench.pages [--engine postgres] [--finished 1000000] [--pending 100000] [--paint]

Server side, the median of 20 calls of each view that share nothing, with the HTML made of it. With
--paint also in a browser: from asking for a page to its first paint, the median of 5.
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

from bench.seed import TASK, Numbers, seed, seed_postgres
from bench.servers import usual_server
from tests.dashboard.serving import served
from towline import Towline, dashboard
from towline.dashboard import live

CALLS = 20
PAINTS = 5
PAINTED = """() => new Promise(done =>
  new PerformanceObserver(list => done(list.getEntries()[0].startTime))
    .observe({ type: "paint", buffered: true }))"""


def measure(app: Towline, numbers: Numbers, paint: bool) -> None:
    live.KEPT = live.LONGEST = 0.0  # each call looks anew
    first, last = 1, numbers.ids("pending")[-1]
    roads = [
        "/", "/?range=30d", "/jobs", "/jobs?state=failed", "/jobs?state=completed",
        "/jobs?state=pending", f"/jobs/{first}", f"/jobs/{last}", f"/chains/{first}",
        f"/chains/{first}/graph", "/queues", "/tasks", "/tasks?range=30d", f"/tasks?task={TASK}",
        "/workers", "/doctor", "/audit", "/many?action=retry&all=1&state=failed",
        "/many?action=delete&all=1&state=pending",
    ]  # fmt: skip
    with served(dashboard.asgi(app)) as client:
        for road in roads:
            page, data = median(client, road), median(client, f"/api{road}")
            print(f"{road:40} page {page:7.1f} ms   data {data:7.1f} ms", flush=True)
        if paint:
            show_paints(str(client.base_url), roads)


def show_paints(url: str, roads: list[str]) -> None:
    from playwright.sync_api import sync_playwright

    from tests.browser import SWITCHES, chromium

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=SWITCHES)
        page = browser.new_page(base_url=url)
        for road in roads:
            taken = []
            for _ in range(PAINTS):
                page.goto(road)
                taken.append(page.evaluate(PAINTED))
            print(f"{road:40} first paint {statistics.median(taken):7.1f} ms", flush=True)
        browser.close()


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
    parser.add_argument("--paint", action="store_true", help="in a browser, too")
    chosen = parser.parse_args()
    numbers = Numbers(finished=chosen.finished, pending=chosen.pending, queues=5)
    with filled(chosen.engine, numbers) as url:
        app = Towline(url)
        measure(app, numbers, chosen.paint)
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
