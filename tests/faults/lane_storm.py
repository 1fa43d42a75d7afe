"""A storm in lanes: workers in processes are killed and stopped while limits change; nothing runs
above a limit, no lane sleeps, no slot is lost.

    python -m tests.faults.lane_storm --engine postgres --seconds 60 --workers 8     # G1 to G4

Two sources that share no fate: snapshots of the table by plain SQL, and what the handlers wrote
down.
The backstop is off: a lane that is not told of stays closed for ever, which is then a finding.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from tests.faults import lane_worker
from tests.faults.audit import Audit
from tests.faults.fresh import Place, places
from tests.races.auditor import ask, open_reader
from tests.races.logs import Finding
from tests.until import until
from towline import Towline
from towline.errors import InvalidState, NotFound

QUEUE, EACH, VIP = 7, 2, 3  # how much may run
RATE, PER = 40, 1.0
LANES = [f"l{n}" for n in range(10)] + ["vip"]
STUCK = 30.0  # seconds without any progress
RUNNING = """SELECT coalesce(lane, '-'), count(*), sum(coalesce(weight, 1)) FROM towline_live
    WHERE state = 3 AND queue = 'mail' GROUP BY lane"""


def most_of(lane: str) -> int | None:
    return None if lane == "-" else VIP if lane == "vip" else EACH


class Event(NamedTuple):
    what: str
    pid: int
    job: int
    attempt: int
    lane: str
    weight: int
    claimed_at: int
    at: int


class Storm:
    """Workers, producers and a watcher on one database."""

    def __init__(self, place: Place, workers: int, seconds: float, seed: int) -> None:
        self.place = place
        self.log = place.folder / "events"
        self.draw = random.Random(seed)
        self.app = Towline(place.url, lock_timeout=30)
        self.work, self.ping = _tasks(self.app)
        self.audit = Audit()
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self.killed: dict[int, int] = {}  # pid: when
        self.number = workers
        self.seconds = seconds
        self.over = threading.Event()
        self.meddled: set[int] = set()  # a handler may go on after its job was taken from it
        self.stored = Counter[str]()
        self.snapshots = 0
        self._names = iter(range(10**6))

    # ---- parts

    def start_worker(self) -> None:
        name = f"storm-{next(self._names)}"
        environment = {
            **os.environ, "TOWLINE_LANES_URL": self.place.url, "TOWLINE_LANES_LOG": str(self.log),
        }  # fmt: skip
        with open(self.place.folder / f"{name}.txt", "ab") as out:
            self.workers[name] = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.lane_worker", name],
                env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def kill_one(self) -> None:
        name = self.draw.choice(sorted(self.workers))
        process = self.workers.pop(name)
        self.killed[process.pid] = time.time_ns() // 1000
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.start_worker()

    def stop_one_for_a_moment(self) -> None:
        process = self.workers[self.draw.choice(sorted(self.workers))]
        process.send_signal(signal.SIGSTOP)
        time.sleep(self.draw.uniform(0.05, lane_worker.LEASE / 8))
        process.send_signal(signal.SIGCONT)

    def produce(self, seed: int) -> None:
        draw = random.Random(seed)
        while not self.over.is_set():
            calls = []
            for _ in range(draw.choice([1, 1, 1, 5, 30])):
                lane = draw.choice([None, draw.choice(LANES), draw.choice(LANES[:2])])
                weight = draw.choice([1, 1, 1, 1, 2, 3])
                using = self.work.using(
                    weight=weight, delay=draw.choice([None, None, 0.1]),
                    priority=draw.choice([0, 0, 0, 5]),
                )  # fmt: skip
                calls.append(using.call(lane, weight, draw.choice([0, 0.005, 0.03]), draw.random()))
            jobs = self.app.enqueue_many(calls)
            self.stored["mail"] += len(jobs)
            if draw.random() < 0.2:
                self._meddle(draw, [job.id for job in jobs])
            if draw.random() < 0.3:
                self.app.enqueue_many([self.ping.call() for _ in range(10)])
                self.stored["rated"] += 10
            time.sleep(draw.uniform(0.0, 0.15))

    def _meddle(self, draw: random.Random, ids: list[int]) -> None:
        """Cancel, delete, complete from outside, in whatever state they are."""
        acts: list[Callable[[int], object]] = [
            self.app.cancel, lambda id: self.app.delete(id, force=True), self.app.complete,
        ]  # fmt: skip
        act = draw.choice(acts)
        for id in ids[:3]:
            self.meddled.add(id)
            try:
                act(id)
            except (InvalidState, NotFound):
                pass

    def change_limits(self) -> None:
        """Away from what the watcher knows, and back: it looks at the larger of the two."""
        lane = self.draw.choice(LANES[:3])
        self.app.set_limit("mail", lane=lane, concurrency=self.draw.choice([0, 1]))
        time.sleep(0.05)
        self.app.set_limit("mail", lane=lane)

    def watch(self) -> None:
        with closing(open_reader(self.place.url)) as reader:
            while not self.over.is_set():
                self.look(ask(reader, RUNNING))
                time.sleep(0.002)

    def look(self, rows: list[tuple[str, int, int]]) -> None:
        self.snapshots += 1
        total, number = sum(row[2] for row in rows), sum(row[1] for row in rows)
        if total > QUEUE and number > 1:
            self._found("above the limit", f"{number} jobs of weight {total} run in the queue")
        for lane, count, weight in rows:
            most = most_of(lane)
            if most is not None and weight > most and count > 1:
                self._found("above the limit", f"{count} jobs of weight {weight} run in {lane}")

    def _found(self, kind: str, text: str) -> None:
        self.audit.findings.append(Finding(kind, text))

    # ---- the whole

    def run(self) -> Audit:
        self.app.runner.store.backstop = None
        self.app.set_limit("mail", concurrency=QUEUE)
        self.app.set_limit("mail", lane="*", concurrency=EACH)
        self.app.set_limit("mail", lane="vip", concurrency=VIP)
        self.app.set_limit("rated", rate=RATE, per=PER)
        for _ in range(self.number):
            self.start_worker()
        threads = [threading.Thread(target=self.produce, args=(n,)) for n in range(2)]
        threads.append(threading.Thread(target=self.watch))
        for thread in threads:
            thread.start()
        try:
            end = time.monotonic() + self.seconds
            while time.monotonic() < end:
                time.sleep(self.draw.uniform(0.05, 0.5))
                act = [self.kill_one, self.stop_one_for_a_moment, self.change_limits]
                self.draw.choice(act)()
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        try:
            self.drain()
            self.fill_every_slot()
        finally:
            for process in self.workers.values():
                process.terminate()
            for process in self.workers.values():
                process.wait(60)
        self.compare_with_history()
        self.audit.figures |= {
            "jobs": self.stored.total(), "kills": len(self.killed), "snapshots": self.snapshots,
        }  # fmt: skip
        self.app.close()
        return self.audit

    def drain(self) -> None:
        """No lane sleeps: all that is open ends, and nothing stands still for long."""
        with closing(open_reader(self.place.url)) as reader:
            left, since = -1, time.monotonic()
            while True:
                self.look(ask(reader, RUNNING))
                ((now,),) = ask(reader, "SELECT count(*) FROM towline_live")
                if not now:
                    return
                if now != left:
                    left, since = now, time.monotonic()
                if time.monotonic() - since > STUCK:
                    text = "SELECT queue, lane, closed, opens_at FROM towline_lane"
                    live = "SELECT job_id, state, queue, lane, run_at FROM towline_live LIMIT 20"
                    self._found(
                        "asleep", f"{now} jobs are left: {ask(reader, live)} {ask(reader, text)}"
                    )
                    return
                time.sleep(0.005)

    def fill_every_slot(self) -> None:
        """As many run in each lane as its limit allows: no slot was lost. By one lane at a time:
        the queue has a limit, too."""
        with closing(open_reader(self.place.url)) as reader:
            for lane in ("vip", *LANES[:3]):
                most = most_of(lane) or 0
                calls = [self.work.call(lane, 1, 0.2, 0.5) for _ in range(3 * most)]
                self.app.enqueue_many(calls)
                self.stored["mail"] += len(calls)

                def all_run(lane: str = lane, most: int = most) -> bool:
                    rows = ask(reader, RUNNING)
                    self.look(rows)
                    return any(row[0] == lane and row[1] == most for row in rows)

                try:
                    until(all_run, f"{most} jobs of {lane} at once", STUCK)
                except TimeoutError as error:
                    self._found("lost slot", str(error))
        self.drain()

    # ---- what the handlers wrote down

    def events(self) -> Iterator[Event]:
        if self.log.exists():
            for line in self.log.read_text().splitlines():
                what, pid, job, attempt, lane, weight, claimed_at, at = line.split()
                yield Event(
                    what, int(pid), int(job), int(attempt), lane, int(weight), int(claimed_at),
                    int(at),
                )  # fmt: skip

    def compare_with_history(self) -> None:
        began: dict[tuple[int, int, int], Event] = {}
        changes: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        claims: list[int] = []
        for event in self.events():
            key = event.pid, event.job, event.attempt
            if event.what == "began":
                began[key] = event
                if event.lane == "rated":
                    claims.append(event.claimed_at)
            else:
                start = began.pop(key)
                self._ran(changes, start, event.at)
        for start in began.values():  # of those that were killed in the middle
            self._ran(changes, start, self.killed.get(start.pid, start.at))
        for lane, moments in changes.items():
            most = QUEUE if lane == "" else most_of(lane)
            weight = number = 0
            for _, more, jobs in sorted(moments):
                weight, number = weight + more, number + jobs
                if most is not None and weight > most and number > 1:
                    text = f"{number} handlers of weight {weight} ran at once in {lane or 'mail'}"
                    self._found("above the limit", text)
                    break
        claims.sort()
        for place, at in enumerate(claims):
            inside = sum(1 for other in claims[place : place + RATE + 5] if other < at + PER * 1e6)
            if inside > RATE:
                self._found("above the rate", f"{inside} jobs began within {PER} s")
                break
        self.audit.figures["attempts"] = sum(len(moments) for moments in changes.values()) // 4
        self.audit.figures["rated"] = len(claims)

    def _ran(self, changes: dict[str, list[tuple[int, int, int]]], start: Event, end: int) -> None:
        if start.lane == "rated" or start.job in self.meddled:
            return
        for lane in ("", start.lane):
            changes[lane] += [(start.at, start.weight, 1), (end, -start.weight, -1)]


def _tasks(app: Towline):  # type: ignore[no-untyped-def]  # as those of the workers
    @app.task(queue="mail", lane="lane", max_attempts=50)
    def work(lane: str | None, weight: int, pause: float, seed: float) -> None: ...

    @app.task(queue="rated")
    def ping() -> None: ...

    return work, ping


def storm(place: Place, *, workers: int, seconds: float, seed: int) -> Audit:
    return Storm(place, workers, seconds, seed).run()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=["sqlite", "postgres"], default="sqlite")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, places(given.engine, Path(folder)) as place:
        found = storm(place, workers=given.workers, seconds=given.seconds, seed=given.seed)
    print(found.figures)
    for finding in found.findings[:20]:
        print(finding)
    return bool(found.findings)


if __name__ == "__main__":
    sys.exit(main())
