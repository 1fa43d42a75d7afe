"""The README's code blocks run, in order, as one program in an empty folder."""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import ROOT, program_of, run


def test_the_readme_runs(tmp_path: Path) -> None:
    program = program_of(ROOT / "README.md")
    assert "enqueue_many" in program
    run(program, tmp_path)
