"""The race storm: many processes do everything at once on one database, some are killed; an audit.

    python -m tests.races.storm --seconds 60 --processes 8 --seed 1
    python -m tests.races.storm --seconds 60 --processes 4 --connections 8 --server "postgres 18"

Again and again one process is killed with -9 and replaced. While it blows, the tables are compared
in one snapshot after the other. Then clean workers run until nothing is left to do, and the tables
are compared with what the processes wrote down. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tests.races.auditor import (
    Reader,
    ask,
    audit_logs,
    audit_tables,
    is_sqlite,
    open_reader,
)
from tests.races.logs import Finding, Logs, read_logs
from tests.races.storm_client import StormClient, add_tasks
from tests.races.storm_worker import LEASE, QUEUES, TASKS, Log
from tests.races.together import still_owed
from towline import Towline
from towline.model import Outcome
from towline.operation import Op
from towline.records import Claimed, Ending
from towline.store.turn import unpark

SQLITE = "sqlite"
ROOT = Path(__file__).resolve().parents[2]
KILL_EVERY = 1.5
PATIENCE = 30.0  # for a process to end by itself, and for a lock
COUNTED = ("lost", "twice", "stuck", "early", "fence", "key", "deadlock", "integrity")


class Clock:
    """One time for all processes: the monotonic clock, set to today; healing moves it on."""

    def __init__(self, offset: int) -> None:
        self.offset = offset

    def __call__(self) -> int:
        return time.monotonic_ns() // 1000 + self.offset

    @classmethod
    def today(cls) -> Clock:
        return cls((time.time_ns() - time.monotonic_ns()) // 1000)


@dataclass
class Storm:
    """What one storm did and what the auditor found."""

    findings: list[Finding] = field(default_factory=list)
    ops: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: dict[str, int] = field(default_factory=dict)
    kills: int = 0
    snapshots: int = 0
    healed: int = 0
    seconds: float = 0.0


@dataclass
class Child:
    """A process of the storm."""

    name: str
    process: subprocess.Popen[bytes]
    stderr: Path
    ready: Path


@contextmanager
def opened(server: str, folder: Path) -> Iterator[str]:
    """The URL of an empty database: a file in the folder, or one on a server, gone afterwards."""
    if server == SQLITE:
        yield f"sqlite:///{folder / 'storm.db'}"
    else:
        from tests import servers  # only here: the processes of a storm start quicker without

        with servers.server(server).database() as url:
            yield url


def storm(
    folder: Path, *, seconds: float, processes: int, threads: int = 2, seed: int = 0,
    server: str = SQLITE,
) -> Storm:  # fmt: skip
    """Let it blow, heal, audit; the folder keeps the logs, and a database that is a file."""
    began = time.monotonic()
    result = Storm()
    clock = Clock.today()
    logs = folder / "logs"
    logs.mkdir()
    log = Log(logs / "parent.jsonl")
    with opened(server, folder) as url:
        with closing(Towline(url, clock=clock)) as app, closing(open_reader(url)) as reader:
            app.migrate()
            reader.execute(
                "CREATE TABLE booking (token TEXT PRIMARY KEY, chain_id BIGINT NOT NULL)"
            )
            blow(result, reader, log, Place(folder, url, threads, clock), seconds, processes, seed)
            result.findings += audit_tables(reader)
            result.healed = heal(app, clock, log)
            result.findings += audit_tables(reader, healed=True)
            book = Logs.of(read_logs(logs))
            result.findings += audit_logs(reader, book)
            result.findings += _audit_counts(app, reader)
            result.findings = list(dict.fromkeys(result.findings))  # a snapshot may repeat another
            count(result, reader, book)
    result.seconds = time.monotonic() - began
    return result


@dataclass
class Place:
    """Where the processes of a storm meet."""

    folder: Path
    url: str
    threads: int
    clock: Clock
    module: str = "tests.races.storm"  # what a process of it runs

    def say_until(self, deadline: float) -> None:
        """Let it begin: those who wait here read when it ends."""
        draft = self.folder / "until.draft"
        draft.write_text(str(deadline))
        draft.rename(self.folder / "until")


def blow(
    result: Storm, reader: Reader, log: Log, place: Place, seconds: float, processes: int, seed: int
) -> None:
    """Start processes, kill one now and then, and look at the tables all the while."""
    rng = random.Random(seed)
    number = 0

    def start() -> Child:
        nonlocal number
        number += 1
        return start_child(place, f"p{number}", f"{seed}.{number}")

    everyone = [start() for _ in range(processes)]
    children = list(everyone)
    try:
        wait_until(lambda: all(child.ready.exists() for child in children))
        deadline = time.monotonic() + seconds
        place.say_until(deadline)
        kill_at = time.monotonic() + KILL_EVERY
        while (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.3))
            result.findings += audit_tables(reader)
            result.snapshots += 1
            ready = [child for child in children if child.ready.exists()]
            if ready and kill_at < time.monotonic() < deadline - KILL_EVERY:
                kill_at += KILL_EVERY
                victim = rng.choice(ready)
                children.remove(victim)
                log("killed", process=victim.name)
                victim.process.send_signal(signal.SIGKILL)
                victim.process.wait()
                result.kills += 1
                everyone.append(start())
                children.append(everyone[-1])
        result.findings += wait_for(children)
    finally:
        for child in everyone:
            if child.process.poll() is None:
                child.process.kill()
                child.process.wait()
    result.findings += words_of(everyone)


def count(result: Storm, reader: Reader, book: Logs) -> None:
    """Figures of the storm."""
    result.ops = book.ops
    for name in ("job", "chain", "attempt", "blocker", "key", "live"):
        ((result.rows[name],),) = ask(reader, f"SELECT count(*) FROM towline_{name}")
    result.rows["acknowledged"] = len(book.new)
    result.rows["claims"] = len(book.claims)
    result.rows["deleted chains"] = len(book.left)
    if not is_sqlite(reader):
        result.rows["postponed endings"] = book.postponed
        # Those that the engine ran again; what reached a user is a finding.
        ((result.rows["deadlocks on the server"],),) = ask(
            reader, "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )


def heal(app: Towline, clock: Clock, log: Log) -> int:
    """Clean workers run until nothing is left to do; time passes as fast as they can work."""
    store = app.runner.store
    clock.offset += 3 * LEASE
    for queue in QUEUES:
        app.resume(queue)
    workers = [
        app.runner.run(store.register(
            name, host="here", pid=os.getpid(), birth=None, version="0", queues=QUEUES,
            concurrency=100, lease=10**12,
        ))
        for name in ("heal-1", "heal-2")
    ]  # fmt: skip
    done = 0
    held: dict[int, list[Claimed]] = {worker: [] for worker in workers}
    owed: dict[int, list[Ending]] = {worker: [] for worker in workers}
    while True:
        app.runner.run(store.sweep())
        app.runner.run(Op("unpark", lambda: unpark(store, TASKS, QUEUES)))
        busy = False
        for name, worker in zip(("heal-1", "heal-2"), workers, strict=True):
            endings = owed[worker]
            for job in held[worker]:
                done += 1
                token = f"heal.{done}"
                log("ending", token=token, job=job.job_id, attempt=job.attempt, outcome="completed")
                endings.append(Ending(job, Outcome.COMPLETED, output=f'"{token}"'))
            turn = app.runner.run(store.turn(worker, name, QUEUES, 100, endings))
            owed[worker] = still_owed(endings, turn.finished)
            log("ended", tokens=[json.loads(e.output or "") for e in endings
                                 if e not in owed[worker]])  # fmt: skip
            if turn.finished.refused:
                log("finding", kind="fence", text=f"{name} lost {turn.finished.refused}")
            claims = [(job.job_id, job.attempt, job.claimed_at) for job in turn.claimed]
            log("claim", by=name, jobs=claims)
            held[worker] = turn.claimed
            busy = busy or bool(turn.claimed or endings)
        if busy:
            continue
        due = app.runner.run(store.peek(())).next_due
        if due is None:
            break
        clock.offset += max(0, due - clock()) + 1
    for worker in workers:
        app.runner.run(store.unregister(worker))
    return done


def wait_until(true: Callable[[], bool]) -> None:
    patience = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < patience, "the processes of the storm did not come"
        time.sleep(0.01)


def start_child(place: Place, name: str, seed: str) -> Child:
    stderr = place.folder / f"{name}.stderr"
    command = [
        sys.executable, "-W", "error", "-m", place.module, "--child", name, "--seed", seed,
        "--folder", str(place.folder), "--threads", str(place.threads),
        "--offset", str(place.clock.offset), "--url", place.url,
    ]  # fmt: skip
    with stderr.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=file)
    return Child(name, process, stderr, place.folder / f"{name}.ready")


def wait_for(children: Sequence[Child]) -> list[Finding]:
    found = []
    for child in children:
        try:
            code = child.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            found.append(Finding("stuck", f"process {child.name} does not end"))
            child.process.send_signal(signal.SIGUSR1)  # its stderr says where it hangs
            time.sleep(1.0)
        else:
            if code:
                found.append(Finding("error", f"process {child.name} ended with {code}"))
    return found


def words_of(children: Sequence[Child]) -> list[Finding]:
    """What processes wrote to stderr; they have no reason to."""
    return [
        Finding("error", f"{child.name} wrote to stderr: {text[-8000:]}")
        for child in children
        if (text := child.stderr.read_text())
    ]


def _audit_counts(app: Towline, reader: Reader) -> list[Finding]:
    """What the library counts is what the view for people shows."""
    shown: dict[str, dict[str, int]] = {}
    for queue, state, number in ask(
        reader, "SELECT queue, state, count(*) FROM towline_jobs GROUP BY queue, state"
    ):
        shown.setdefault(queue, {})[state] = number
    counted = {
        queue: {str(state): number for state, number in states.items() if number}
        for queue, states in app.counts().items()
    }
    if shown == counted:
        return []
    return [Finding("rollup", f"counts() says {counted}, the rows say {shown}")]


def play_child(folder: Path, url: str, name: str, seed: str, threads: int, offset: int) -> None:
    """Some threads on one app until the time is up; one that hangs shows where."""
    # Its executemany warns of the pipeline that a deadlock ended; that one is tried again.
    logging.getLogger("psycopg").setLevel(logging.ERROR)
    durable = random.Random(seed).random() < 0.5  # others' commits, others' moments to be killed
    app = Towline(
        url, clock=Clock(offset), durable=durable, connections=threads, lock_timeout=PATIENCE
    )
    log = Log(folder / "logs" / f"{name}.jsonl")
    play(app, folder, name, lambda thread, until: StormClient(
        app, log, f"{name}-{thread}", f"{seed}.{thread}"
    ).run(until), threads)  # fmt: skip


def play(
    app: Towline, folder: Path, name: str, act: Callable[[int, float], None], threads: int
) -> None:
    """Let threads act from when all are there until the time is up."""
    add_tasks(app)
    app.counts()  # connected
    (folder / f"{name}.ready").touch()
    wait_until((folder / "until").exists)
    until = float((folder / "until").read_text())
    faulthandler.register(signal.SIGUSR1)  # one that hangs is asked where
    crew = [threading.Thread(target=act, args=(n, until)) for n in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    app.close()


def report(result: Storm, file: TextIO) -> None:
    """The summary table, and every finding."""
    answers: dict[str, Counter[str]] = {}
    for (op, answer), number in sorted(result.ops.items()):
        answers.setdefault(op, Counter())[answer] += number
    for op, counts in answers.items():
        refused = ", ".join(f"{n} {a}" for a, n in sorted(counts.items()) if a != "ok")
        print(f"  {op:26}{counts['ok']:>8}  {refused}", file=file)
    print(f"  {'operations':26}{sum(result.ops.values()):>8}", file=file)
    for name, number in result.rows.items():
        print(f"  {name:26}{number:>8}", file=file)
    print(f"  {'processes killed':26}{result.kills:>8}", file=file)
    print(f"  {'snapshots audited':26}{result.snapshots:>8}", file=file)
    print(f"  {'jobs run by healing':26}{result.healed:>8}", file=file)
    kinds = Counter(finding.kind for finding in result.findings)
    words = {"key": "duplicate open keys", "deadlock": "deadlocks that were told"}
    for kind in COUNTED:
        value = str(kinds[kind]) if kind != "integrity" else "broken" if kinds[kind] else "ok"
        print(f"  {words.get(kind, kind):26}{value:>8}", file=file)
    others = sum(number for kind, number in kinds.items() if kind not in COUNTED)
    print(f"  {'other findings':26}{others:>8}", file=file)
    for finding in result.findings[:50]:
        print(f"{finding.kind}: {finding.text}", file=file)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--processes", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2, help="in each process")
    parser.add_argument("--connections", type=int, help="of ours, in all: one to each thread")
    parser.add_argument("--server", default=SQLITE, help='such as "postgres 18"')
    parser.add_argument("--seed", default="0")
    parser.add_argument("--folder", type=Path, help="keep the logs here, and a file's database")
    for hidden in ("--child", "--offset", "--url"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        play_child(
            chosen.folder, chosen.url, chosen.child, chosen.seed, chosen.threads,
            int(chosen.offset),
        )  # fmt: skip
        return 0
    threads = chosen.threads
    if chosen.connections:
        threads = max(1, chosen.connections // chosen.processes)
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="storm-"))
    folder.mkdir(exist_ok=True)
    result = storm(
        folder, seconds=chosen.seconds, processes=chosen.processes, threads=threads,
        seed=int(chosen.seed), server=chosen.server,
    )  # fmt: skip
    shape = f"{chosen.processes} processes of {threads} threads"
    print(f"race storm on {chosen.server}: {chosen.seconds:g} s, {shape}, seed {chosen.seed}")
    report(result, sys.stdout)
    if not result.findings and chosen.folder is None:
        shutil.rmtree(folder)
    elif result.findings:
        print(f"kept: {folder}")
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
