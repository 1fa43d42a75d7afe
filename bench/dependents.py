"""Does what follows from one end cost the same per dependent, however many there are?

A chain with n jobs behind it ends by its worker (completed, failed) and is opened again (retried);
and the first of a line of n, each behind the one before, fails and is retried. Seconds, and
microseconds per dependent: linear work has the same in each column.

    python -m bench.dependents                       # SQLite
    python -m bench.dependents --server "postgres 18" --sizes 500 16000 40000
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from towline import Towline
from towline.model import Claimed, Ending, NewBlocker, NewJob, Outcome

SIZES = (500, 2_000, 8_000, 16_000)
LINES = (1_000, 2_000, 4_000)


@contextmanager
def opened(server: str) -> Iterator[str]:
    if server == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{folder}/bench.db"
    else:
        from bench._server import quiet_server

        with quiet_server(server) as running:
            yield running.url


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def run_one(app: Towline, worker: int) -> Claimed:
    """A new job of its own queue, running."""
    app.runner.run(app.runner.store.enqueue([NewJob("first", queue="first", arguments="{}")]))
    (held,) = app.runner.run(app.runner.store.claim(worker, ["first"], 1))
    return held


def fan(app: Towline, worker: int, number: int, keyed: bool) -> dict[str, float]:
    """n jobs behind one chain."""
    took: dict[str, float] = {}
    for outcome in (Outcome.COMPLETED, Outcome.FAILED):
        held = run_one(app, worker)
        app.runner.run(app.runner.store.enqueue([
            NewJob("behind", queue="never", arguments="{}",
                   key=f"{held.job_id} {n}" if keyed else None,
                   blockers=[NewBlocker(chain_id=held.chain_id)])
            for n in range(number)
        ]))  # fmt: skip
        ending = Ending(held, outcome, output="null", error="no")
        took[f"{outcome} by its worker"] = timed(
            partial(app.runner.run, app.runner.store.finish([ending]))
        )
    took["retried"] = timed(lambda: app.runner.run(app.runner.store.retry(held.job_id)))
    return took


def line(app: Towline, worker: int, number: int) -> dict[str, float]:
    """n jobs, each behind the one before."""
    held = run_one(app, worker)
    app.runner.run(app.runner.store.enqueue([
        NewJob("behind", queue="never", arguments="{}",
               blockers=[NewBlocker(index=n - 1) if n else NewBlocker(chain_id=held.chain_id)])
        for n in range(number)
    ]))  # fmt: skip
    ending = Ending(held, Outcome.FAILED, error="no")
    took = {
        "line failed by its worker": timed(
            lambda: app.runner.run(app.runner.store.finish([ending]))
        )
    }
    took["line retried"] = timed(lambda: app.runner.run(app.runner.store.retry(held.job_id)))
    return took


def show(title: str, sizes: Sequence[int], rows: Sequence[dict[str, float]]) -> None:
    print(f"{title:32}" + "".join(f"{size:>18,}" for size in sizes))
    for name in rows[0]:
        cells = [
            f"{r[name]:8.3f} s {r[name] / n * 1e6:5.0f} µs"
            for r, n in zip(rows, sizes, strict=True)
        ]
        print(f"  {name:30}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--server", default="sqlite", metavar="NAME")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--lines", type=int, nargs="*", default=LINES)
    given = parser.parse_args()
    with opened(given.server) as url, closing(Towline(url, lock_timeout=600)) as app:
        worker = app.runner.run(app.runner.store.register(
            "w", host="h", pid=1, birth=None, version="0", queues=["first"], concurrency=1,
            lease=10**12,
        ))  # fmt: skip
        print(given.server)
        show("dependents", given.sizes, [fan(app, worker, n, False) for n in given.sizes])
        show("dependents with keys", given.sizes, [fan(app, worker, n, True) for n in given.sizes])
        if given.lines:
            show("line", given.lines, [line(app, worker, n) for n in given.lines])


if __name__ == "__main__":
    main()
