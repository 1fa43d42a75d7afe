"""Until there is a release, nobody is sent to a package index (finding W1), and what a database
administrator gets has no notes of ours in it (finding W7)."""

from __future__ import annotations

import re

import pytest

from tests.docs import commands
from tests.docs.blocks import ROOT
from towline import Towline

INDEX = re.compile(r"pip install (?:--upgrade |-U )?'?towline")
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "towline").rglob("*.py")]


def test_W1_nothing_tells_to_install_by_name() -> None:
    assert [path.name for path in PAGES if INDEX.search(path.read_text("utf-8"))] == []


def test_U1_extras_that_are_named_are_there() -> None:
    """In the text, too: what installs something is not run."""
    named = {extra for page in PAGES for extra in commands.extras_in(page.read_text("utf-8"))}
    assert {"dashboard", "django", "mcp", "postgres", "prometheus"} <= named
    assert named <= commands.known_extras()


@pytest.mark.parametrize("url", ["sqlite:///x.db", "postgresql://x@127.0.0.1/x"])
def test_W7_the_printed_sql_has_no_notes_of_ours(url: str) -> None:
    text = Towline(url).ddl()
    assert "a test" not in text
    assert "migrations/" not in text
