"""What a release runs: `make proof`, below an hour on two cores.

The whole suite with every script on every kind of connection, every server and every mutant; random
search from new seeds, long; kills at every statement; the other Pythons of this machine. The seed
is drawn anew each time and printed; `make proof SEED=…` runs it again. In the end: what ran, how
long it took, and what was not found here. ARGS="storm" runs only the parts with that in their name.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import brokers, pythons, servers, speed

ROOT = Path(__file__).resolve().parents[1]
PROMISED_SERVERS = range(13, 19)  # docs/guides/run/postgres.md
LIMIT = 2400.0  # seconds after which a part has failed


@dataclass
class Part:
    """A command, and what came of it."""

    name: str
    arguments: Sequence[str]
    seconds: float = 0.0
    code: int | None = None

    def run(self, environment: dict[str, str]) -> None:
        print(f"---- {self.name}: python {' '.join(self.arguments)}", flush=True)
        began = time.monotonic()
        try:
            done = subprocess.run(
                [sys.executable, *self.arguments], cwd=ROOT, env=environment, timeout=LIMIT
            )
            self.code = done.returncode
        except subprocess.TimeoutExpired:
            print(f"it did not end within {LIMIT:.0f} s")
        self.seconds = time.monotonic() - began

    def __str__(self) -> str:
        end = {0: "passed", None: "DID NOT END"}.get(self.code, "FAILED")
        return f"{self.name:44}{self.seconds:>7.0f} s  {end}"


def parts(seed: int) -> Iterator[Part]:
    """Everything, the broadest first."""
    workers = str(min(8, 2 * (os.cpu_count() or 1)))
    yield Part(
        "every test on every connection and server",
        ["-m", "pytest", "-n", workers, "--maxschedchunk=2", "-q", "-ra"],
    )
    yield Part("other Pythons", ["-m", "tests.pythons"])
    yield Part("wheel with each extra", ["-m", "tests.extras"])
    yield Part("model programs", ["-m", "tests.model", "--programs=300", f"--seed={seed}"])
    newest = servers.startable()[-1:]
    for server in ("sqlite", *newest):
        told = ["--seconds=60", "--processes=6", f"--seed={seed}", "--server", server]
        yield Part(f"storm on {server}", ["-m", "tests.races.storm", *told])
        told = ["--runs=5", "--jobs=100", "--server", server]
        yield Part(f"fan-in on {server}", ["-m", "tests.races.fan_in", *told])
    for engine in ("sqlite", *["postgres"] * len(newest)):
        for name, told in (
            ("crash_loop", []),
            ("kills", ["--jobs=2000", "--kills=25", f"--seed={seed}"]),
            ("poison", ["--jobs=1000", "--poison", "4"]),
            ("lane_storm", ["--seconds=60", "--workers=8", f"--seed={seed}"]),
            ("ticks", ["--ticks=300", "--kills=20", f"--seed={seed}"]),  # and a server's restart
            ("groups", ["--members=2000", "--kills=10", f"--seed={seed}"]),
        ):
            words = name.replace("_", " ")
            arguments = ["-m", f"tests.faults.{name}", f"--engine={engine}", *told]
            yield Part(f"{words} on {engine}", arguments)
    for name in ("forks", "closes", "ends"):
        yield Part(f"storm of {name}", ["-m", "tests.faults.storms", name, "--seconds=15"])
    yield Part("interrupts", ["-m", "tests.faults.interrupts", "--step=5"])
    if newest:
        for name, told in (
            ("server_restarts", ["--restarts=6", f"--seed={seed}"]),
            ("server_crash", ["--crashes=6", f"--seed={seed}"]),
            ("frozen", []),
        ):
            yield Part(name.replace("_", " "), ["-m", f"tests.faults.{name}", *told])


def not_found() -> Iterator[str]:
    """What the project promises and this machine does not have."""
    found = {int(name.split()[1]) for name in servers.startable()}
    missing = [str(number) for number in PROMISED_SERVERS if number not in found]
    if missing:
        yield f"PostgreSQL {', '.join(missing)}"
    for version in pythons.promised():
        own = version == "{}.{}".format(*sys.version_info)
        if not own and pythons.find(version) is None:
            yield f"Python {version}"
    for name in (*servers.skipped(), *brokers.skipped()):
        yield f"{name} (TOWLINE_SKIP)"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("only", nargs="?", default="", help="parts with this in their name")
    parser.add_argument("--seed", type=int, help="that of an earlier proof")
    chosen = parser.parse_args(arguments)
    seed = chosen.seed or random.randrange(1, 10**6)
    environment = {**os.environ, speed.VARIABLE: str(seed)}
    print(f"a proof with seed {seed}", flush=True)
    began = time.monotonic()
    ran = [part for part in parts(seed) if chosen.only in part.name]
    for part in ran:
        part.run(environment)
    print(f"---- the proof with seed {seed}, {(time.monotonic() - began) / 60:.0f} minutes")
    for part in ran:
        print(part)
    servers_found = ", ".join(servers.startable()) if servers.given() is None else servers.given()
    print(f"on Python {sys.version.split()[0]}, SQLite, {servers_found}")
    for missing in not_found():
        print(f"not found, so nothing was run on it: {missing}")
    return int(any(part.code != 0 for part in ran))


if __name__ == "__main__":
    sys.exit(main())
