"""A real browser for tests: Chromium, wherever it can be had from.

`TOWLINE_TEST_CHROMIUM` names one; else one that is installed; else Debian's package, where it may
be installed; else npm's. One that cannot be had fails its tests, unless `TOWLINE_SKIP=chromium`
names it; the summary says so then.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from tests.servers import is_skipped

CHROMIUM = "chromium"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NPM = "@sparticuz/chromium"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser() / "towline-tests"
# Without a sandbox, since tests may run as root; and without asking anybody for anything.
SWITCHES = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class MissingBrowser(Exception):
    """There is no browser; says what to do."""


def skipped() -> list[str]:
    return [CHROMIUM] if is_skipped(CHROMIUM) else []


def chromium() -> str:
    """The path of the program."""
    if is_skipped(CHROMIUM):
        pytest.skip("TOWLINE_SKIP names it")
    found = find()
    if found is None:
        raise MissingBrowser(
            "no Chromium here: install Debian's `chromium`, or name one in TOWLINE_TEST_CHROMIUM. "
            f"TOWLINE_SKIP={CHROMIUM} runs the tests without it."
        )
    return found


@cache
def find() -> str | None:
    """One that is there, or else is installed now."""
    if given := os.environ.get("TOWLINE_TEST_CHROMIUM"):
        return given
    with _alone():  # of several processes that run tests one installs it
        return _installed() or _from_debian() or _from_npm()


@contextmanager
def _alone() -> Iterator[None]:
    with open(Path(tempfile.gettempdir()) / f"towline-chromium-{os.geteuid()}", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _installed() -> str | None:
    return next((path for name in NAMES if (path := shutil.which(name))), None)


def _from_debian() -> str | None:
    if os.geteuid() or not shutil.which("apt-get"):
        return None
    for words in (["update"], ["install", "-y", "--no-install-recommends", CHROMIUM]):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run(
            ["apt-get", "-qq", *words], env=environment, capture_output=True
        ).returncode:
            return None
    return _installed()


def _from_npm() -> str | None:
    if not shutil.which("npm") or not shutil.which("node"):
        return None
    CACHE.mkdir(parents=True, exist_ok=True)
    install = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(CACHE), NPM]
    if subprocess.run(install, capture_output=True).returncode:
        return None
    script = f"import c from '{NPM}'; console.log(await c.executablePath())"
    unpack = ["node", "--input-type=module", "--eval", script]
    done = subprocess.run(unpack, capture_output=True, text=True, cwd=CACHE)
    return done.stdout.strip() or None
