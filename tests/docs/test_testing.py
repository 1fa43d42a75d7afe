"""docs/testing.md runs, in order, as one program in an empty folder."""

from __future__ import annotations

from pathlib import Path

import towline.testing
from tests.docs.blocks import ROOT, program_of, run

PAGE = ROOT / "docs" / "testing.md"


def test_the_page_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    printed = run(program_of(PAGE), tmp_path)
    assert printed
    assert f"```text\n{printed}```" in PAGE.read_text("utf-8")


def test_the_page_names_everything_there_is() -> None:
    text = PAGE.read_text("utf-8")
    missing = [name for name in towline.testing.__all__ if f"{name}(" not in text]
    assert missing == ["Crash"]  # which nobody needs to catch
