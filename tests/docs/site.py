"""The site: `make docs` writes the reference anew and builds it all into site/, offline, with every
warning an error; then the addresses that pages had before, and llms.txt for programs that read."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.docs.blocks import ROOT
from tests.docs.reference import written

CONFIGURATION = ROOT / "mkdocs.yml"
DOCS = ROOT / "docs"

# Where a page was, and where it is now.
MOVED = {
    "calls.md": "guides/write/calls.md",
    "command-line.md": "reference/command-line.md",
    "commands.md": "reference/commands.md",
    "dashboard.md": "guides/see/dashboard.md",
    "groups.md": "guides/write/groups.md",
    "limits.md": "guides/write/limits.md",
    "performance.md": "explanation/performance.md",
    "postgres.md": "guides/run/postgres.md",
    "schedules.md": "guides/write/schedules.md",
    "testing.md": "guides/write/testing.md",
    "transactions.md": "guides/with/transactions.md",
    "worker.md": "guides/run/worker.md",
}
REDIRECT = """<!doctype html><meta charset="utf-8"><title>Moved</title>
<meta http-equiv="refresh" content="0; url={to}"><link rel="canonical" href="{to}">
<p>This page is now at <a href="{to}">{to}</a>.</p>
"""


def navigation() -> Iterator[tuple[str, str, str]]:
    """Every page of the navigation: its section, its title, its path."""
    for section, title, path in _entries(yaml.safe_load(CONFIGURATION.read_text("utf-8"))["nav"]):
        yield section, title or title_of(DOCS / path), path


def _entries(items: list[Any], section: str = "") -> Iterator[tuple[str, str, str]]:
    for item in items:
        if isinstance(item, str):
            yield section, "", item
            continue
        ((title, inner),) = item.items()
        if isinstance(inner, list):
            yield from _entries(inner, title)
        else:
            yield section, title, inner


def title_of(page: Path) -> str:
    found = re.search(r"^# (.+)$", page.read_text("utf-8"), re.MULTILINE)
    assert found, page
    return found[1]


def address(path: str) -> str:
    """Of a page, below the site's own."""
    return re.sub(r"(?:index)?\.md$", "", path).rstrip("/") + "/" if path != "index.md" else ""


def build(root: Path = ROOT) -> Path:
    """Build it below this folder, which has mkdocs.yml and docs/; nothing old is left of it."""
    folder = root / "site"
    shutil.rmtree(folder, ignore_errors=True)
    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"],
        cwd=root,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr)
    for old, new in MOVED.items():
        depth = address(old).count("/")
        place = folder / address(old) / "index.html"
        assert not place.exists(), f"there is a page at {old} again"
        place.parent.mkdir(parents=True)
        place.write_text(REDIRECT.format(to="../" * depth + address(new)), "utf-8")
    (folder / "llms.txt").write_text(llms(), "utf-8")
    (folder / "llms-full.txt").write_text("\n\n".join(_whole()), "utf-8")
    return folder


def llms() -> str:
    """The pages with what each is about, for programs that read."""
    lines = ["# Towline", "", f"> {first_words(DOCS / 'index.md')}"]
    before = None
    for section, title, path in navigation():
        if section != before:
            lines += ["", f"## {section or 'Start'}", ""]
            before = section
        words = first_words(DOCS / path)
        lines.append(f"- [{title}]({address(path) or './'}){f': {words}' if words else ''}")
    return "\n".join([*lines, "", "All pages in one file: [llms-full.txt](llms-full.txt)", ""])


def first_words(page: Path) -> str:
    """The first sentence of a page, without marks."""
    text = page.read_text("utf-8").partition("\n\n")[2]
    for part in text.split("\n\n"):
        if part[:1].isalnum() or part[:1] in "`*[":
            plain = re.sub(r"\[([^]]+)\]\([^)]+\)", r"\1", " ".join(part.split()))
            return re.split(r"(?<=[.:]) ", plain.replace("**", ""))[0].rstrip(":")
    return ""


def _whole() -> Iterator[str]:
    for _, _, path in navigation():
        yield f"<!-- {path} -->\n\n{(DOCS / path).read_text('utf-8')}"


if __name__ == "__main__":
    written.write()
    print(f"the site is in {build().relative_to(ROOT)}/: open its index.html")
