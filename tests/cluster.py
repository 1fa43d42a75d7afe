"""One PostgreSQL cluster on this machine: made, started, stopped, and cleared away in the end.

PostgreSQL refuses to run as root, so root starts it as somebody else. Which servers the tests run
on, and the databases in them, are the business of tests/servers.py. As a program this file waits
until a run of the tests is over, however it ended, and clears away what is left of its clusters.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

USER = "postgres"

# A run's folder: its process holds a lock on ALIVE; clusters that may forget lie in MEMORY.
ALIVE = "alive"
MEMORY = "memory"

# Below the range from which the kernel gives ports to connections: a stopped server's stays free.
PORTS = range(20_000, 30_000)

SETTINGS = """
listen_addresses = '127.0.0.1'
max_connections = 200
max_prepared_transactions = 10
shared_buffers = '64MB'
max_wal_size = '128MB'
synchronous_commit = on
autovacuum = on
jit = off
log_line_prefix = '%m [%p] %d '
"""
# Nothing here is to outlive the machine; a crash of the server alone loses nothing by this.
FORGETFUL = """
fsync = off
full_page_writes = off
"""

Mode = Literal["smart", "fast", "immediate"]
SIGNALS: dict[Mode, signal.Signals] = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


class ClusterError(Exception):
    """A cluster could not be made or started; says what PostgreSQL said."""


@cache
def version(programs: Path) -> str | None:
    """What `postgres --version` says in this folder, such as "16.14"; None if it cannot run."""
    try:
        said = subprocess.run(
            [programs / "postgres", "--version"], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\S+)", said)
    return match and match[1]


@dataclass(frozen=True)
class Starter:
    """A way to start programs so that PostgreSQL does not find itself to be root."""

    prefix: tuple[str, ...] = ()
    user: pwd.struct_passwd | None = None  # None: whoever we are

    def run(self, command: Sequence[str | Path], folder: Path) -> None:
        """Run to its end in a folder, which also is where its words go if it fails."""
        # Settings of the person at the keyboard, such as PGPORT, are not for this server.
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PG")}
        identity = (
            {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
            if self.user
            else {}
        )
        subprocess.run(
            [*self.prefix, *map(str, command)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            **identity,  # type: ignore[call-overload]
        )

    def can_run(self, programs: Path, folder: Path) -> bool:
        try:
            self.run([programs / "initdb", "--version"], folder)
        except (OSError, subprocess.SubprocessError):
            return False
        return True

    def give(self, folder: Path) -> None:
        """Let the started programs own a folder."""
        if self.user:
            os.chown(folder, self.user.pw_uid, self.user.pw_gid)


def starters() -> list[Starter]:
    """The ways to try, most ordinary first."""
    found: list[Starter] = []
    try:
        if os.geteuid() == 0:
            found.append(Starter(user=pwd.getpwnam("nobody")))
        else:
            pwd.getpwuid(os.geteuid())  # initdb asks for our name as well
            found.append(Starter())
    except KeyError:
        pass
    # For containers in which root is the only user there is, or users have no names: whoever
    # enters a namespace of its own is nobody there, and still owns its files.
    if unshare := shutil.which("unshare"):
        found.append(Starter(prefix=(unshare, "--user", "--")))
    return found


def find_starter(programs: Path, run: Path) -> tuple[Starter, Path]:
    """A way that works here, and the programs to start with it."""
    for starter in starters():
        if starter.can_run(programs, run):
            return starter, programs
    # Somebody else cannot even see them, say below /root: a copy where everybody can.
    copied = copy(programs, run)
    for starter in starters():
        if starter.can_run(copied, run):
            return starter, copied
    raise ClusterError(
        f"{programs / 'initdb'} cannot be started here, neither as root's stand-in nobody nor by "
        f"`unshare --user`. Run the tests as an ordinary user."
    )


def copy(programs: Path, run: Path) -> Path:
    """Copy an installation, and the libraries that a wheel puts beside its package."""
    package = programs.parent.parent
    target = Path(tempfile.mkdtemp(prefix="copied-", dir=run))
    target.chmod(0o711)
    to = target / package.name / programs.parent.name
    shutil.copytree(programs.parent, to, symlinks=True)
    libraries = f"{package.name}.libs"
    if (package.parent / libraries).exists():
        shutil.copytree(package.parent / libraries, target / libraries)
    return to / programs.name


class Cluster:
    """A cluster in a folder of its own, with its socket, listening on 127.0.0.1 as well.

    A forgetful one would not survive a crash of the machine; a durable one syncs like any other.
    """

    def __init__(self, folder: Path, programs: Path, run: Path, *, durable: bool = False) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.port = 0
        self._starter, self._programs = find_starter(programs, run)
        folder.mkdir(mode=0o700)
        self._starter.give(folder)
        self._run(
            "initdb", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C",
            "--no-sync", "-D", self.data,
        )  # fmt: skip
        self._set(SETTINGS + ("" if durable else FORGETFUL))
        self._set(f"unix_socket_directories = '{folder}'")

    @property
    def pid(self) -> int | None:
        """The server's process; None when it is stopped."""
        return server_pid(self.data)

    def start(self) -> None:
        """Start and wait until it takes connections; on the same port as before."""
        tries = 1 if self.port else 5
        while True:
            port = self.port or free_port()
            self._set(f"port = {port}")
            try:
                self._run("pg_ctl", "start", "-w", "-D", self.data, "-l", self.folder / "log")
            except ClusterError as error:
                tries -= 1
                if not tries:
                    log = (self.folder / "log").read_text(errors="replace")
                    raise ClusterError(f"{error}\n{log[-2000:]}") from None
            else:
                self.port = port
                return

    def stop(self, mode: Mode = "fast") -> None:
        """Stop and wait until it is gone; "immediate" is a crash, to be recovered from."""
        stop(self.data, mode)

    def close(self) -> None:
        """Stop it for good and remove its files."""
        self.stop("immediate")
        shutil.rmtree(self.folder, ignore_errors=True)

    def _set(self, lines: str) -> None:
        """Add settings; of two lines the later holds."""
        with open(self.data / "postgresql.conf", "a") as file:
            file.write(f"{lines}\n")

    def _run(self, program: str, *arguments: str | Path) -> None:
        try:
            self._starter.run([self._programs / program, *arguments], self.folder)
        except subprocess.CalledProcessError as error:
            raise ClusterError(f"{program} failed: {error.output.strip()}") from None


def free_port() -> int:
    """A port nobody listens on now; it may be taken before we are there, then try again."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise ClusterError(f"100 ports between {PORTS.start} and {PORTS.stop} are all taken")


def server_pid(data: Path) -> int | None:
    try:
        return int((data / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def stop(data: Path, mode: Mode) -> None:
    """Tell the server to stop, wait until it is gone. Nothing happens if it is not running."""
    pid = server_pid(data)
    if pid is None:
        return
    try:
        os.kill(pid, SIGNALS[mode])
    except ProcessLookupError:
        return
    # The file and not the process tells: a process nobody waits for stays as a zombie.
    deadline = time.monotonic() + 30
    while server_pid(data) == pid:
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            raise ClusterError(f"server {pid} in {data} did not stop within 30 seconds")
        time.sleep(0.01)


def clear(run: Path) -> None:
    """Stop every server of a run and remove its files; harmless when they are gone."""
    for folder in ((run / MEMORY).resolve(), run):
        for data in folder.glob("*/data"):
            try:
                stop(data, "immediate")
            except ClusterError as error:
                print(error, file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)


def start_watcher(run: Path) -> None:
    """Start a process that clears the run's clusters away when it is over, even if killed."""
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in range(3)]
    command = [sys.executable, "-I", __file__, str(run)]
    # In a session of its own: Ctrl-C and a closed terminal end the run, not its watcher.
    os.posix_spawn(sys.executable, command, os.environ, file_actions=null, setsid=True)


def watch(run: Path) -> None:
    """Wait until nobody holds the run's lock, then clear."""
    try:
        with open(run / ALIVE, "r+") as alive:
            fcntl.lockf(alive, fcntl.LOCK_EX)
    except FileNotFoundError:
        pass
    clear(run)


if __name__ == "__main__":
    watch(Path(sys.argv[1]))
