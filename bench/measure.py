"""Running adapters and watching them from outside, the same way for every system."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from bench import machine, peers
from bench.catalog import System
from bench.places import Place, journal
from bench.record import Record
from bench.systems.harness import ENTRY

PATIENCE = 120.0  # seconds that a role may take
SETTLE = 0.3  # seconds for the endings of the last jobs, and for a second run to show up
STOP = 3.0  # seconds that a worker may take to stop: its jobs have ended, it only sleeps
STALL = 20.0  # seconds without any job: it will not come


class Failed(Exception):
    """A run that gave no figures; says why."""


def role(system: System, name: str, params: Mapping[str, Any], patience: float = PATIENCE) -> Any:
    """Run a role to its end and return what it said. Raises Failed, or peers.Missing."""
    command = [*system.command(), name, json.dumps(dict(params))]
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command,
            env=peers.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as child:
            try:
                said, _ = child.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                child.kill()
                raise Failed(f"{name} took more than {patience:g} s") from None
            except BaseException:
                child.kill()
                raise
        if child.returncode:
            raise Failed(f"{name} ended with {child.returncode}: {_tail(errors)}")
    try:
        return json.loads(said.strip().splitlines()[-1])
    except (IndexError, ValueError):
        raise Failed(f"{name} said nothing that can be read: {said[-200:]!r}") from None


def _tail(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip()]
    return " | ".join(lines[-2:])[-400:]


class Hand:
    """One process of a role that goes on until it is stopped; it starts working at `go`."""

    def __init__(self, system: System, name: str, params: Mapping[str, Any]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.process = subprocess.Popen(
            [*system.command(), name, json.dumps(dict(params))],
            env=peers.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_until_ready(self) -> None:
        out = self.process.stdout
        assert out is not None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if select.select([out], [], [], 1.0)[0]:
                line = out.readline()
                if line == "ready\n":
                    return
                if not line:
                    break
        raise Failed(f"a worker did not start: {self.errors()}")

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("go\n")
        self.process.stdin.flush()

    def said(self, patience: float) -> Any:
        """What it says at its end."""
        out = self.process.stdout
        assert out is not None
        if not select.select([out], [], [], patience)[0]:
            raise Failed(f"it took more than {patience:g} s")
        line = out.readline()
        try:
            return json.loads(line)
        except ValueError:
            raise Failed(f"it ended without figures: {self.errors()}") from None

    def check(self) -> None:
        if self.process.poll() is not None:
            raise Failed(f"a worker ended with {self.process.returncode}: {self.errors()}")

    def errors(self) -> str:
        return _tail(self._errors)

    def stop(self) -> None:
        """Ask it to end, then end it, with everything that it started."""
        below = machine.births(machine.tree(self.pid)[1:])
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(STOP)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        machine.end(below)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        self._errors.close()


@contextmanager
def hands(
    system: System, number: int, params: Mapping[str, Any], name: str = "worker"
) -> Iterator[list[Hand]]:
    """So many workers, all ready; stopped at the end, whatever happens."""
    started: list[Hand] = []
    try:
        for index in range(number):  # one by one: what has started is stopped if the next fails
            started.append(Hand(system, name, {**params, "worker": index}))  # noqa: PERF401
        for hand in started:
            hand.wait_until_ready()
        yield started
    finally:
        for hand in started:
            hand.stop()


class Entry(NamedTuple):
    """One run of a handler."""

    number: int
    at: int  # nanoseconds
    worker: int


class Watched:
    """The journal of a run while it is written."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def number(self) -> int:
        return self.path.stat().st_size // ENTRY.size

    def entries(self) -> list[Entry]:
        return [Entry(*entry) for entry in ENTRY.iter_unpack(self.path.read_bytes())]

    def wait(self, number: int, workers: Sequence[Hand], patience: float) -> bool:
        """Until so many have run; False when nothing came for long."""
        seen, since, begun = self.number(), time.monotonic(), time.monotonic()
        while True:
            found = self.number()
            if found >= number:
                return True
            now = time.monotonic()
            if found != seen:
                seen, since = found, now
            elif now - since > STALL:
                return False
            if now - begun > patience:
                return False
            for worker in workers:
                worker.check()
            time.sleep(0.01)


def drain(
    system: System, place: Place, record: Record, params: Mapping[str, Any], *, left: bool = True
) -> None:
    """Start workers on a backlog that is there, watch until it has run, count what ran.

    The time is that from the first handler to the last, by the journal; CPU and bytes from the
    moment the workers may start. `left`: ask the database, too, whether everything has ended.
    """
    count, workers = params["count"], params.get("workers", 1)
    with journal() as path:
        told = {**params, "place": place.address, "journal": str(path)}
        with hands(system, workers, told) as hired:
            pids = [hand.pid for hand in hired]
            log, server = place.log(), place.server_cpu()
            cpu, wrote = sum(map(machine.cpu, pids)), sum(map(machine.written, pids))
            for hand in hired:
                hand.go()
            watched = Watched(path)
            complete = watched.wait(count, hired, PATIENCE)
            record.cpu = sum(map(machine.cpu, pids)) - cpu
            if server is not None:
                record.server_cpu = (place.server_cpu() or 0.0) - server
            time.sleep(SETTLE)
            if log is None:
                record.written = sum(map(machine.written, pids)) - wrote
            else:
                record.written = (place.log() or 0) - log
            record.memory = max(map(machine.peak, pids))
            errors = [hand.errors() for hand in hired]
        entries = watched.entries()
    if not entries:
        raise Failed(f"no job ran: {' '.join(errors)}")
    measured = entries[:count]
    record.count = len(measured)
    record.seconds = (max(e.at for e in measured) - min(e.at for e in measured)) / 1e9
    runs = Counter(entry.number for entry in entries)
    record.ran = len(runs)
    record.twice = len(entries) - len(runs)
    record.lost = count - len(set(runs) & set(range(count)))
    if left and not record.lost:
        record.left = role(system, "left", {**params, "place": place.address})["left"]
    if not complete:
        record.figures["unfinished"] = 1
    if workers > 1:
        record.figures.update(fairness(measured, workers))


def fairness(entries: Sequence[Entry], workers: int) -> dict[str, float]:
    """What the workers that ran least and most had, and how long one stood still at most."""
    begun, ended = min(e.at for e in entries), max(e.at for e in entries)
    number, last, longest = [0] * workers, [begun] * workers, 0
    for entry in entries:
        number[entry.worker] += 1
        longest = max(longest, entry.at - last[entry.worker])
        last[entry.worker] = entry.at
    longest = max(longest, *(ended - at for at in last))
    return {"fairness": min(number) / max(number), "longest_wait_ms": longest / 1e6}
