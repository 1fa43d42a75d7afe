"""Callers that leave their transactions open for three leases, while workers go on: figures for P9.

    python -m tests.postgres.open_callers --server "postgres 18" --lease 1

One caller has enqueued behind a running chain, one has cancelled a running job, one was given the
running chain that has its key. None commits. Workers finish, claim, renew and sweep meanwhile, and
one of them keeps trying to end those three jobs. Then the callers commit.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg

from tests.kit import SECOND, completed, new
from tests.races.together import still_owed, waiting
from towline import Towline
from towline.records import Claimed, Ending

LEASES = 3
ORDINARY = ("default",)
SPECIAL = "special"  # the three jobs that callers have their hands on
BEHIND, CANCELLED, KEYED = "behind", "cancelled", "keyed"


@dataclass
class Phase:
    """What went on while nobody, or three callers, held a transaction open."""

    turns: list[float] = field(default_factory=list)  # seconds each
    finished: int = 0
    renewed: int = 0
    renewals_put_off: int = 0
    lost: int = 0  # what somebody was told is no longer his, or a sweep took
    swept: int = 0
    postponed: Counter[str] = field(default_factory=Counter)  # endings by task
    accepted: set[str] = field(default_factory=set)  # special ones
    refused: set[str] = field(default_factory=set)


class Shop:
    """Workers and a feeder on one database; which phase it is, is said from outside."""

    def __init__(self, url: str, lease: float) -> None:
        self.url = url
        self.lease = round(lease * SECOND)
        self.phase = Phase()
        self.release = threading.Event()  # let the special jobs end
        self.stop = threading.Event()
        self.mutex = threading.Lock()
        self.special: list[Claimed] = []

    def open_app(self) -> Towline:
        # Whoever waits for a caller does not come back in time to renew.
        return Towline(self.url, lock_timeout=self.lease / SECOND, connections=1)

    def feed(self) -> None:
        """Keep work there: single jobs, jobs behind others, jobs with keys."""
        with closing(self.open_app()) as app:
            number = 0
            while not self.stop.is_set():
                if waiting(app, 0) < 40:
                    number += 1
                    ids = [
                        r.id
                        for r, _ in app.runner.run(
                            app.runner.store.enqueue([new() for _ in range(10)])
                        )
                    ]
                    app.runner.run(
                        app.runner.store.enqueue([new(after=ids[:3]), new(key=f"k{number}")])
                    )
                else:
                    time.sleep(0.01)

    def work(self, index: int) -> None:
        """Turns without rest, renewing three times a lease; the first holds the special jobs."""
        with closing(self.open_app()) as app:
            store = app.runner.store
            name = f"w{index}"
            worker = app.runner.run(
                store.register(
                    name, host="here", pid=os.getpid(), birth=None, version="0",
                    queues=ORDINARY, concurrency=8, lease=self.lease,
                )
            )  # fmt: skip
            held: list[Claimed] = []
            special: list[Claimed] = []
            owed: list[Ending] = []
            if index == 0:
                special = app.runner.run(store.claim(worker, [SPECIAL], 3, name))
                with self.mutex:
                    self.special = list(special)
            renew_at = time.monotonic()
            while not self.stop.is_set() or owed:
                endings = [*owed, *map(completed, held)]
                if self.release.is_set():
                    endings += map(completed, special)
                    special = []
                began = time.monotonic()
                turn = app.runner.run(store.turn(worker, name, ORDINARY, 8, endings))
                self.note(endings, turn.finished, time.monotonic() - began)
                owed = still_owed(endings, turn.finished)
                held = [] if self.stop.is_set() else turn.claimed
                if time.monotonic() >= renew_at:
                    renew_at = time.monotonic() + self.lease / SECOND / 3
                    mine = [*turn.claimed, *special, *(ending.held for ending in owed)]
                    self.renew(app, worker, name, mine)

    def renew(self, app: Towline, worker: int, name: str, mine: Sequence[Claimed]) -> None:
        held = {(job.job_id, job.attempt) for job in mine}
        renewed = app.runner.run(app.runner.store.renew(worker, name, self.lease, held))
        swept = app.runner.run(app.runner.store.sweep())
        with self.mutex:
            self.phase.renewed += renewed.registered and not renewed.postponed
            self.phase.renewals_put_off += renewed.postponed
            self.phase.lost += len(renewed.lost)
            self.phase.swept += swept

    def note(self, endings: Sequence[Ending], finished: Any, seconds: float) -> None:
        tasks = {ending.held.job_id: ending.held.task for ending in endings}
        with self.mutex:
            self.phase.turns.append(seconds)
            self.phase.finished += len(finished.accepted)
            self.phase.postponed.update(tasks[id] for id in finished.postponed)
            known = (BEHIND, CANCELLED, KEYED)
            self.phase.accepted |= {tasks[id] for id in finished.accepted if tasks[id] in known}
            self.phase.refused |= {tasks[id] for id in finished.refused}

    def next_phase(self) -> Phase:
        with self.mutex:
            before, self.phase = self.phase, Phase()
        return before


@contextmanager
def open_callers(url: str, app: Towline, special: Sequence[Claimed]) -> Iterator[None]:
    """Three transactions of the application's own, left open inside the `with`, then committed."""
    chains = {job.task: job.chain_id for job in special}
    with ExitStack() as stack:
        raws = [stack.enter_context(psycopg.connect(url)) for _ in range(3)]
        app.runner.run(app.runner.store.enqueue([new(after=[chains[BEHIND]])]), raws[0])
        app.runner.run(app.runner.store.cancel(chains[CANCELLED]), raws[1])
        ((record, created),) = app.runner.run(
            app.runner.store.enqueue([new(KEYED, key="taken")]), raws[2]
        )
        assert (record.chain_id, created) == (chains[KEYED], False)
        yield
        # Leaving the stack commits.


def measure(
    url: str, lease: float, workers: int = 3, quiet: int = LEASES
) -> tuple[Phase, Phase, Phase]:
    """What went on in some leases before callers opened, in three while, and after."""
    shop = Shop(url, lease)
    with closing(shop.open_app()) as app, ThreadPoolExecutor(workers + 1) as pool:
        app.runner.run(
            app.runner.store.enqueue([
                new(BEHIND, queue=SPECIAL), new(CANCELLED, queue=SPECIAL),
                new(KEYED, queue=SPECIAL, key="taken"),
            ])
        )  # fmt: skip
        threads = [pool.submit(shop.feed), *(pool.submit(shop.work, n) for n in range(workers))]
        try:
            while len(shop.special) < 3:
                assert not any(thread.done() for thread in threads), "a worker has given up"
                time.sleep(0.01)
            shop.next_phase()
            time.sleep(quiet * lease)
            before = shop.next_phase()
            with open_callers(url, app, shop.special):
                shop.release.set()
                time.sleep(LEASES * lease)
                during = shop.next_phase()
        finally:
            shop.stop.set()
        for thread in threads:
            thread.result()
    return before, during, shop.phase


def main(arguments: Sequence[str] | None = None) -> int:
    from tests import servers
    from tests.database import opened

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--server", default=servers.servers()[-1])
    parser.add_argument("--lease", type=float, default=1.0, help="in seconds")
    parser.add_argument("--workers", type=int, default=3)
    chosen = parser.parse_args(arguments)
    with TemporaryDirectory() as folder, opened(chosen.server, Path(folder)) as database:
        phases = measure(database.url, chosen.lease, chosen.workers)
    print(f"open callers on {chosen.server}: {LEASES} leases of {chosen.lease:g} s")
    print(f"  {'':26}{'before':>10}{'while open':>12}{'after':>8}")
    for name in ("finished", "renewed", "renewals_put_off", "lost", "swept"):
        row = [getattr(phase, name) for phase in phases]
        print(f"  {name.replace('_', ' '):26}{row[0]:>10}{row[1]:>12}{row[2]:>8}")
    worst = [max(phase.turns, default=0) * 1000 for phase in phases]
    median = [sorted(phase.turns)[len(phase.turns) // 2] * 1000 for phase in phases]
    print(f"  {'median turn, ms':26}{median[0]:>10.1f}{median[1]:>12.1f}{median[2]:>8.1f}")
    print(f"  {'worst turn, ms':26}{worst[0]:>10.1f}{worst[1]:>12.1f}{worst[2]:>8.1f}")
    for task in (BEHIND, CANCELLED, KEYED, "a"):
        row = [phase.postponed[task] for phase in phases]
        what = "other jobs" if task == "a" else f"the {task} job"
        print(f"  {'postponed, ' + what:26}{row[0]:>10}{row[1]:>12}{row[2]:>8}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
