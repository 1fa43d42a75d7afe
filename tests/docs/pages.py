"""The pages of the documentation, and which of the tests runs each.

`python -m tests.docs.pages FOLDER…` runs the programs that lie there one after another, each in
its own folder, in one process: a page costs what its blocks do, and no start of Python.
"""

from __future__ import annotations

import logging
import os
import runpy
import sys
from pathlib import Path

from tests.docs.blocks import ROOT, RUN, blocks_of

DOCS = ROOT / "docs"

# Pages that need a server, a framework or an order; all others are run by test_pages.py.
ELSEWHERE = {
    "guides/run/postgres.md": "test_postgres.py",
    "guides/see/opentelemetry.md": "test_opentelemetry.py",
    "guides/see/sentry.md": "test_opentelemetry.py",
    "guides/with/django.md": "test_django.py",
    "guides/run/worker.md": "test_worker.py",
    "guides/with/transactions.md": "test_transactions.py",
}
# What only exists on paper, by page, and what stands for it when the page is run.
ON_PAPER = {"guides/run/checklist.md": {"sqlite:////srv/shop/": "sqlite:///"}}
# Folders with an order of their own: test_tutorial.py, and test_moving.py, which runs both sides.
OWN_ORDER = ("tutorial/", "guides/move/")


def pages() -> list[Path]:
    return sorted(DOCS.rglob("*.md"))


def name_of(page: Path) -> str:
    return str(page.relative_to(DOCS))


def runnable(page: Path) -> bool:
    return any(block.language in RUN and not block.excuse for block in blocks_of(page))


def sections() -> dict[str, list[Path]]:
    """The pages that test_pages.py runs, by their folder; one process for each."""
    found: dict[str, list[Path]] = {}
    for page in pages():
        name = name_of(page)
        if name not in ELSEWHERE and not name.startswith(OWN_ORDER) and runnable(page):
            found.setdefault(os.path.dirname(name) or "top", []).append(page)
    return found


def main(folders: list[str]) -> None:
    for folder in folders:
        os.chdir(folder)
        sys.path[0] = folder
        before = set(sys.modules)
        try:
            runpy.run_path("page.py", run_name="__main__")
        except BaseException:
            print(f"---- the page in {folder}", file=sys.stderr)
            raise
        logging.root.handlers.clear()  # a page, or a framework in it, may have set up logging
        logging.root.setLevel(logging.WARNING)
        for name in set(sys.modules) - before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
                del sys.modules[name]


if __name__ == "__main__":
    main(sys.argv[1:])
