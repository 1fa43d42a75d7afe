"""The application that `bench.flow` measures: its tasks, and a worker of it as a process.

python -m bench.flow_jobs URL SLOTS drain|stay
"""

from __future__ import annotations

import sys
import time

from towline import Towline

MAIL, PLAIN, SLOW, GATED = "mail", "default", "slow", "gated"


class Jobs:
    """An app with tasks for plain jobs, jobs in lanes, and chunks."""

    def __init__(self, url: str) -> None:
        self.app = app = Towline(url, durable=False)

        @app.task(queue=PLAIN)
        def plain(n: int) -> int:
            return n

        @app.task(queue=MAIL, lane="tenant")
        def laned(tenant: str, n: int) -> int:
            return n

        @app.task(queue=SLOW)
        def slow(n: int, seconds: float) -> None:
            time.sleep(seconds)

        @app.task(queue=GATED)
        def gated(n: int, seconds: float) -> None:
            time.sleep(seconds)

        @app.chunk(size=500, wait=1.0, queue="chunk")
        def together(items: list[int]) -> None:
            time.sleep(0.001)

        self.plain, self.laned, self.slow, self.gated = plain, laned, slow, gated
        self.together = together


def main() -> None:
    url, slots, how = sys.argv[1:]
    jobs = Jobs(url)
    jobs.app.worker(concurrency=int(slots), drain=how == "drain").run()


if __name__ == "__main__":
    main()
