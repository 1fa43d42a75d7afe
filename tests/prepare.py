"""What `make test` needs before its first test: a test's time is bounded, an installation's is not.

A browser, and Django 6 with a Python of its own. What cannot be had is said by the tests that need
it. And the tests themselves as pytest rewrites them, which else each of its processes would do.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import browser
from tests.django import releases

HERE = Path(__file__).resolve().parent


def main() -> None:
    if not browser.skipped():
        browser.find()
    if releases.python() is not None:
        releases.install()
    if not list(HERE.glob("__pycache__/*-pytest-*.pyc")):
        words = ["-m", "pytest", "--collect-only", "-qq", "-p", "no:cacheprovider"]
        subprocess.run([sys.executable, *words], stdout=subprocess.DEVNULL, check=False)


if __name__ == "__main__":
    main()
