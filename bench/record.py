"""One run, one record, one line of JSON."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field


class Noise(Struct, frozen=True):
    """What else the machine was busy with: the higher, the quieter."""

    loops: float  # turns of an empty Python loop per second, in millions
    syncs: float  # appends with fsync per second, on the disk that is measured
    load: float  # processes that wanted to run, as the kernel counts them over a minute


class Record(Struct, kw_only=True, omit_defaults=True):
    """What one system did once."""

    scenario: str
    engine: str
    system: str
    version: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)  # the system's own, as it was run
    durable: bool | None = None  # whether a commit that returned survives a power cut
    run: str = ""  # when the suite was started: rounds of two runs are not the same round
    round: int = 0
    when: str = ""
    noise: Noise | None = None
    error: str | None = None  # why there are no figures: the peer is missing, or it failed
    count: int = 0
    seconds: float = 0.0
    cpu: float | None = None  # of the processes that did the work
    server_cpu: float | None = None  # of the PostgreSQL server, meanwhile
    ran: int | None = None  # jobs whose handler ran
    twice: int | None = None  # runs beyond the first
    lost: int | None = None  # jobs whose handler did not run
    left: int | None = None  # jobs that are still open in the database when all has stopped
    written: int | None = None  # bytes: given to write calls (SQLite), of the log (PostgreSQL)
    size: int | None = None  # bytes that the database grew by
    memory: float | None = None  # the highest of a worker, in MB
    figures: dict[str, float] = field(default_factory=dict)  # what only this scenario has

    @property
    def rate(self) -> float:
        """Jobs per second; 0 when there is none."""
        return self.count / self.seconds if self.count and self.seconds else 0.0

    @property
    def case(self) -> str:
        """What may be compared: scenario, engine and parameters, not the system."""
        return f"{self.scenario}|{self.engine}|{label(self.parameters)}"

    @property
    def whole(self) -> bool:
        """Whether every job ran exactly once, as far as this run can tell."""
        return not (self.error or self.twice or self.lost or self.left)


def label(parameters: dict[str, Any]) -> str:
    """Parameters as people read them; what is as usual is not said."""
    usual = {"disk": "disk", "durable": True, "threads": 1, "workers": 1, "handler": "sync"}
    said = []
    for name, value in parameters.items():
        if usual.get(name) == value or name in ("silence", "times"):
            continue
        if name == "concurrency":
            said.append(f"{value} slots")
        elif name == "durable":
            said.append("not durable")
        elif name == "disk":
            said.append("RAM disk")
        elif isinstance(value, bool):
            said.append(name if value else f"not {name}")
        elif isinstance(value, str):
            said.append(value)
        else:
            said.append(f"{value:,} {name}" if isinstance(value, int) else f"{name} {value}")
    return ", ".join(said)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def append(path: Path, record: Record) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(msgspec.json.encode(record) + b"\n")


def read(paths: Iterable[Path]) -> Iterator[Record]:
    for path in paths:
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    yield msgspec.json.decode(line, type=Record)


def noise(folder: Path, seconds: float = 0.1) -> Noise:
    """Look at the machine for a moment, on the disk of this folder."""
    end, turns = time.perf_counter() + seconds, 0
    begun = time.perf_counter()
    while time.perf_counter() < end:
        for _ in range(10_000):
            pass
        turns += 10_000
    loops = turns / (time.perf_counter() - begun) / 1e6
    path = folder / "fsync"
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        begun, syncs = time.perf_counter(), 0
        while time.perf_counter() < begun + seconds:
            os.write(file, bytes(4096))
            os.fdatasync(file)
            syncs += 1
        rate = syncs / (time.perf_counter() - begun)
    finally:
        os.close(file)
        path.unlink()
    return Noise(loops=round(loops, 1), syncs=round(rate, 1), load=round(os.getloadavg()[0], 2))
