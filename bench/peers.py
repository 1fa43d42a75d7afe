"""The environments of the peers: made once below bench/.peers, with pinned versions.

A peer that cannot be installed here (no node, no Python 3.12, no network) is no error: the suite
writes the reason into the record in place of figures.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parent / ".peers"
ROOT = Path(__file__).resolve().parents[1]
SYSTEMS = ROOT / "bench" / "systems"
PATIENCE = 900  # seconds that an installation may take: one of them compiles SQLite


class Missing(Exception):
    """A peer cannot be had here; says why."""


@dataclass(frozen=True)
class Peer:
    """A package, or several, that a system runs on. The first one's version is the system's."""

    name: str
    packages: tuple[str, ...]
    python: tuple[int, int] | None = (3, 11)  # the oldest that will do; None: it runs on node

    @property
    def version(self) -> str:
        return re.split("==|@", self.packages[0])[1]

    @property
    def home(self) -> Path:
        return FOLDER / self.name


HUEY = Peer("huey", ("huey==3.5.4",))
GIGQ = Peer("gigq", ("gigq==0.5.1",))
LITEQUEUE = Peer("litequeue", ("litequeue==0.9",))
PERSISTQUEUE = Peer("persistqueue", ("persist-queue==1.1.0",))
PLAINJOB = Peer("plainjob", ("plainjob@0.0.14", "better-sqlite3@12.11.1"), python=None)
PROCRASTINATE = Peer("procrastinate", ("procrastinate==3.10.0", "psycopg[binary]==3.3.8"))
PGQUEUER = Peer("pgqueuer", ("pgqueuer==1.6.0", "asyncpg==0.32.0", "uvloop==0.23.0"))
OBAN = Peer("oban", ("oban==0.7.0",), python=(3, 12))
CHANCY = Peer("chancy", ("chancy==0.26.0", "psycopg[binary]==3.3.8"))
DBOS = Peer("dbos", ("dbos==3.3.0",))
ABSURD = Peer("absurd", ("absurd-sdk==0.5.1", "absurdctl==0.5.1", "psycopg[binary]==3.3.8"))
GRAPHILE = Peer("graphile", ("graphile-worker@0.17.3",), python=None)
PGBOSS = Peer("pgboss", ("pg-boss@10.4.2",), python=None)


def command(peer: Peer, adapter: str) -> list[str]:
    """What runs an adapter in its peer's environment, which is made first; raises Missing."""
    reason = _setup(peer)
    if reason:
        raise Missing(reason)
    if peer.python is None:
        # Node looks for packages beside the program: it is seen through a link in the peer's home.
        links = ["--preserve-symlinks", "--preserve-symlinks-main"]
        return [_node(), *links, str(peer.home / "systems" / adapter)]
    return [str(peer.home / "bin" / "python"), "-P", str(SYSTEMS / adapter)]


@cache
def _setup(peer: Peer) -> str | None:
    """Install a peer if it is not there yet; why it cannot be, if it cannot. Tried once a run."""
    try:
        _install(peer)
    except Missing as error:
        return str(error)
    return None


def _install(peer: Peer) -> None:
    wanted = " ".join(peer.packages)
    stamp = peer.home / "installed"
    if not stamp.exists() or stamp.read_text() != wanted:
        shutil.rmtree(peer.home, ignore_errors=True)
        peer.home.mkdir(parents=True)
        print(f"installing {peer.name} {peer.version}", file=sys.stderr, flush=True)
        if peer.python is None:
            _install_node(peer)
        else:
            _install_python(peer, peer.python)
        stamp.write_text(wanted)


def environment() -> dict[str, str]:
    """The variables for an adapter: where its harness is."""
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    variables.pop("PYTHONDONTWRITEBYTECODE", None)
    return variables


def _node() -> str:
    node = shutil.which("node")
    if node is None:
        raise Missing("node is not installed here")
    return node


def _install_node(peer: Peer) -> None:
    _node()
    npm = shutil.which("npm")
    if npm is None:
        raise Missing("npm is not installed here")
    (peer.home / "package.json").write_text('{"private": true}\n')
    _run([npm, "install", "--no-audit", "--no-fund", *peer.packages], peer.home)
    (peer.home / "systems").symlink_to(SYSTEMS)


def _install_python(peer: Peer, oldest: tuple[int, int]) -> None:
    _run([_python(oldest), "-m", "venv", str(peer.home)], FOLDER)
    pip = [str(peer.home / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    _run([*pip, "--disable-pip-version-check", *peer.packages], FOLDER)


def _python(oldest: tuple[int, int]) -> str:
    """This interpreter if it is new enough, or one that is found on the machine."""
    if sys.version_info[:2] >= oldest:
        return sys.executable
    for minor in range(oldest[1], oldest[1] + 3):
        name = f"python{oldest[0]}.{minor}"
        pyenv = (Path.home() / ".pyenv" / "versions").glob(f"{oldest[0]}.{minor}.*/bin/{name}")
        for found in [shutil.which(name), *map(str, pyenv)]:
            if found and _works(found):
                return found
    raise Missing(f"Python {oldest[0]}.{oldest[1]} or newer is not installed here")


def _works(python: str) -> bool:
    """A name on the PATH may be a shim that leads nowhere."""
    ran = subprocess.run([python, "-c", "import venv"], capture_output=True, check=False)
    return ran.returncode == 0


def _run(command: list[str], folder: Path) -> None:
    try:
        ran = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"could not be installed: {error}") from None
    if ran.returncode:
        lines = [
            line for line in (ran.stderr or ran.stdout).splitlines() if "error" in line.lower()
        ]
        raise Missing(f"could not be installed: {(lines or ['no reason given'])[0].strip()[:200]}")
