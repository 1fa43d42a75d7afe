"""A worker of the storm in lanes: each attempt writes down when it began and when it ended."""

from __future__ import annotations

import os
import random
import sys
import time

from towline import Backoff, Next, Snooze, Towline, context

LEASE = 4.0

app = Towline(os.environ.get("TOWLINE_LANES_URL", "sqlite:///lanes.db"), lock_timeout=30)
LOG = os.environ.get("TOWLINE_LANES_LOG", os.devnull)


def write(what: str, lane: str | None, weight: int) -> None:
    token = context().token
    line = f"{what} {os.getpid()} {token.job_id} {token.attempt} {lane or '-'} {weight} "
    line += f"{token.claimed_at} {time.time_ns() // 1000}\n"
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(log, line.encode())
    finally:
        os.close(log)


@app.task(queue="mail", lane="lane", max_attempts=50, backoff=Backoff(first=0.01, cap=0.05))
def work(lane: str | None, weight: int, pause: float, seed: float) -> Next[None] | None:
    write("began", lane, weight)
    try:
        time.sleep(pause)
        draw = random.Random(f"{seed}/{context().attempt}").random()
        if draw < 0.05:
            raise ValueError("as it happens")
        if draw < 0.08:
            raise Snooze(0.05)
        if draw < 0.10:
            raise Snooze(0.1, lane=True)
        if draw < 0.14:
            return work.using(weight=weight).then(lane, weight, pause, seed + 1)
        return None
    finally:
        write("ended", lane, weight)


@app.task(queue="rated")
def ping() -> None:
    write("began", "rated", 1)
    write("ended", "rated", 1)


def main() -> int:
    app.runner.store.backstop = None  # what is not told is not found
    return app.worker(concurrency=6, lease=LEASE, name=sys.argv[1]).run()


if __name__ == "__main__":
    sys.exit(main())
