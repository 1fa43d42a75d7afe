"""What tests need beside the packages: `make test` has it installed before the first of them, since
a test's time is bounded and an installation's is not.

A browser, and Django 6 with a Python of its own. What cannot be had
is said by the tests that need it.
"""

from __future__ import annotations

from tests import browser
from tests.django import releases


def main() -> None:
    if not browser.skipped():
        browser.find()
    if releases.python() is not None:
        releases.install()


if __name__ == "__main__":
    main()
