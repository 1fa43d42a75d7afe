"""The releases of Django that tests run on: the one of this environment, with django-tasks where it
needs that, and 6.0 and 6.1 on a Python of their own.

Those two come as source, which carries Django's own tests: `.venv-django` holds a Python 3.12 or
newer with what Towline needs, and both releases unpacked, made once. Without such a Python
`make test` says that it left them out, and a proof fails.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests import pythons
from tests.speed import PROOF

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
PLACE = ROOT / ".venv-django"
OWN = "here"
PINNED = {"6.0": "6.0.10", "6.1": "6.1.3"}
NEEDED = "3.12"
BESIDE = ("asgiref>=3.9.1", "sqlparse>=0.5", "psycopg[binary]>=3.2", "setuptools>=77")


class MissingPython(Exception):
    """Django 6 needs a newer Python than there is; says what to do."""


@cache
def python() -> Path | None:
    """A Python that Django 6 runs on: this one, or another of this machine."""
    if sys.version_info >= (3, 12):
        return Path(sys.executable)
    return pythons.find(NEEDED) or pythons.find("3.13")


def found() -> list[str]:
    """The releases of Django 6 that tests run on."""
    return list(PINNED) if PROOF or python() is not None else []


def left_out() -> list[str]:
    return [] if found() else [f"Django {name}" for name in PINNED]


def source(release: str) -> Path:
    """Where a release lies unpacked: the folder of the package, with its tests beside it."""
    return PLACE / f"django-{PINNED[release]}"


def run(
    arguments: list[str],
    release: str = OWN,
    *,
    path: Path = HERE,
    given: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    check: bool = True,
) -> subprocess.CompletedProcess[str]:
    """Run Python on a release of Django; a warning is an error."""
    program, paths = sys.executable, [str(path), str(ROOT)]
    if release != OWN:
        install()
        program, paths = str(PLACE / "bin/python"), [str(path), str(source(release)), str(ROOT)]
    names = {name: text for name, text in os.environ.items() if not name.startswith("TOWLINE")}
    done = subprocess.run(
        [program, "-W", "error", *arguments],
        cwd=cwd or path,
        env={**names, "PYTHONPATH": os.pathsep.join(paths), **(given or {})},
        capture_output=True,
        text=True,
        timeout=110,
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def install() -> None:
    """Make the environment, unless it is there as it should be."""
    stamp, wanted = PLACE / ".installed", " ".join([*PINNED.values(), *packages()])
    with _alone():
        if stamp.exists() and stamp.read_text() == wanted:
            return
        if (program := python()) is None:
            raise MissingPython(
                f"Django 6 needs Python {NEEDED}: name one in PYTHON312, install it with pyenv, or "
                "put it on the PATH"
            )
        pip = [str(PLACE / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
        subprocess.run([str(program), "-m", "venv", str(PLACE)], check=True)
        subprocess.run([*pip, "install", *packages()], check=True)
        for pinned in PINNED.values():
            fetch = [*pip, "download", "--no-binary=:all:", "--no-deps", "--no-build-isolation"]
            subprocess.run([*fetch, f"--dest={PLACE}", f"django=={pinned}"], check=True)
            with tarfile.open(PLACE / f"django-{pinned}.tar.gz") as archive:
                archive.extractall(PLACE, filter="data")
        stamp.write_text(wanted)


def packages() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return [*project["dependencies"], *BESIDE]


@contextmanager
def _alone() -> Iterator[None]:
    """Of several processes that run tests one makes it."""
    with (ROOT / ".venv-django.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
