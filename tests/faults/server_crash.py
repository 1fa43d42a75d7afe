"""The server crashes, again and again, while processes enqueue, claim and finish; then an audit.

    python -m tests.faults.server_crash --crashes 20 --server "postgres 18"

A crash is `pg_ctl stop -m immediate`: nothing is written any more, and the server recovers from its
log. The processes go on, as applications and workers do. What they were told, they wrote down
outside of the database: whatever was acknowledged must be there, and no attempt number may be given
out again, or an ending of an older attempt accepted. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from tests.races.auditor import audit_logs, audit_tables, open_reader
from tests.races.logs import Finding, Logs, read_logs
from tests.races.storm import (
    Clock,
    Place,
    heal,
    play,
    start_child,
    wait_for,
    wait_until,
    words_of,
)
from tests.races.storm_client import StormClient
from tests.races.storm_worker import Log
from tests.races.together import own_connection
from towline import Towline
from towline.errors import CommitUnknown, StoreUnavailable

# What a process may be told because of a crash. Any other error is a finding.
CRASHED = (StoreUnavailable, CommitUnknown, psycopg.OperationalError)
# Retention may lose its last commits by design: what it deleted would be there again.
LEFT_OUT = ("prune",)
BETWEEN = (0.2, 1.2)  # seconds of work between a recovery and the next crash, at least
EVENTS = 60  # written down between two crashes, at least


class Survivor(StormClient):
    """An actor that takes a crash for what it is, and connects again."""

    def note_lease(self, before: int) -> None:
        """Nothing: a renewal may be lost in a crash, and the lease is shorter than we know."""

    def do(self, name: str) -> None:
        if name in LEFT_OUT:
            return
        for which in ("default", "autocommit"):
            if getattr(self, which).closed:
                self.connect(which)
        super().do(name)

    def weight(self, name: str) -> float:
        """Mostly what must not be lost: jobs that are stored, attempts that are given out."""
        return super().weight(name) * (6 if name in ("turn", "enqueue many", "renew") else 1)

    def may_raise(self, name: str) -> tuple[type[BaseException], ...]:
        return (*super().may_raise(name), *CRASHED)

    def connect(self, which: str) -> None:
        """As an application would: until the server is there."""
        while True:
            try:
                setattr(self, which, own_connection(self.app.url, autocommit=which != "default"))
                return
            except psycopg.OperationalError:
                time.sleep(0.02)


@dataclass
class Crashes:
    """What happened and what was found."""

    findings: list[Finding] = field(default_factory=list)
    figures: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)


def crash_again_and_again(
    folder: Path, server: str, *, crashes: int, processes: int = 4, threads: int = 2, seed: int = 0
) -> Crashes:
    """Crash, recover, look; in the end heal and audit. The folder keeps the logs."""
    from tests import servers  # only here: the processes start quicker without

    result = Crashes()
    clock = Clock.today()
    (folder / "logs").mkdir()
    log = Log(folder / "logs" / "parent.jsonl")
    dice = random.Random(seed)
    with servers.durable_server(server) as cluster:
        url = cluster.create()
        with closing(Towline(url, clock=clock)) as app:
            app.migrate()
            app.close()
            with closing(open_reader(url)) as reader:
                reader.execute(
                    "CREATE TABLE booking (token TEXT PRIMARY KEY, chain_id BIGINT NOT NULL)"
                )
            place = Place(folder, url, threads, clock, "tests.faults.server_crash")
            children = [start_child(place, f"p{n}", f"{seed}.{n}") for n in range(processes)]
            try:
                wait_until(lambda: all(child.ready.exists() for child in children))
                place.say_until(time.monotonic() + 10**6)
                for number in range(crashes):
                    before = written(folder)
                    time.sleep(dice.uniform(*BETWEEN))
                    wait_until(lambda: written(folder) > before + EVENTS)  # noqa: B023
                    cluster.stop("immediate")
                    cluster.start()
                    with closing(open_reader(url)) as reader:
                        result.findings += audit_tables(reader)
                    result.figures["crashes"] = number + 1
                (folder / "stop").touch()
                result.findings += wait_for(children)
            finally:
                for child in children:
                    if child.process.poll() is None:
                        child.process.kill()
                        child.process.wait()
            result.figures["jobs run by healing"] = heal(app, clock, log)
            book = Logs.of(read_logs(folder / "logs"))
            with closing(open_reader(url)) as reader:
                result.findings += audit_tables(reader, healed=True)
                result.findings += audit_logs(reader, book)
    result.findings += words_of(children)
    result.findings = list(dict.fromkeys(result.findings))
    count(result, book)
    return result


def written(folder: Path) -> int:
    """How many events the processes have written down."""
    return sum(path.read_bytes().count(b"\n") for path in (folder / "logs").glob("*.jsonl"))


def count(result: Crashes, book: Logs) -> None:
    figures = result.figures
    figures["operations"] = sum(book.ops.values())
    names = {error.__name__ for error in (CommitUnknown, StoreUnavailable)}
    for (_, answer), number in book.ops.items():
        if answer in names or answer.endswith(("OperationalError", "Shutdown")):
            result.answers[answer] += number
    figures["acknowledged jobs"] = len(book.new)
    figures["acknowledged endings"] = len(book.ended)
    figures["attempts given out"] = len(book.claims)
    figures["told of a crash"] = result.answers.total()
    for kind in ("lost", "twice", "fence"):
        figures[kind] = 0
    for finding in result.findings:
        figures[finding.kind] += 1


def play_child(folder: Path, url: str, name: str, seed: str, threads: int, offset: int) -> None:
    # The driver and its pool would say on stderr that the server is away; this we know.
    logging.getLogger("psycopg").addHandler(logging.NullHandler())
    app = Towline(url, clock=Clock(offset), connections=threads)
    log = Log(folder / "logs" / f"{name}.jsonl")
    stop = folder / "stop"

    def act(thread: int, until: float) -> None:
        survivor = Survivor(app, log, f"{name}-{thread}", f"{seed}.{thread}")
        survivor.run(until, stop.exists)

    play(app, folder, name, act, threads)


WORDS = {
    "lost": "acknowledged, and lost",
    "twice": "given out or stored twice",
    "fence": "stale ending accepted",
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--crashes", type=int, default=20)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2, help="in each process")
    parser.add_argument("--server", default="postgres 18")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--folder", type=Path, help="keep the logs here")
    for hidden in ("--child", "--offset", "--url"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.child:
        play_child(
            chosen.folder, chosen.url, chosen.child, chosen.seed, chosen.threads,
            int(chosen.offset),
        )  # fmt: skip
        return 0
    folder = chosen.folder or Path(tempfile.mkdtemp(prefix="crash-"))
    folder.mkdir(exist_ok=True)
    began = time.monotonic()
    result = crash_again_and_again(
        folder, chosen.server, crashes=chosen.crashes, processes=chosen.processes,
        threads=chosen.threads, seed=int(chosen.seed),
    )  # fmt: skip
    print(f"crashes of {chosen.server}, {chosen.processes} processes of {chosen.threads} threads")
    print(f"  {'seconds':28}{time.monotonic() - began:>8.0f}")
    for name, number in result.figures.items():
        print(f"  {WORDS.get(name, name):28}{number:>8}")
    print(f"  {'other findings':28}{sum(f.kind not in WORDS for f in result.findings):>8}")
    print("  of a crash they were told:", dict(result.answers))
    for finding in result.findings[:50]:
        print(f"{finding.kind}: {finding.text}")
    if not result.findings and chosen.folder is None:
        shutil.rmtree(folder)
    return 1 if result.findings else 0


if __name__ == "__main__":
    sys.exit(main())
