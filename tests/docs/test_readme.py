"""The README's first minute works as it is written: each file saved, each command run."""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import ROOT, blocks_of, program_of, run

PAGE = ROOT / "README.md"


def test_W3_the_first_minute_works_as_it_is_written(tmp_path: Path) -> None:
    """Finding W3: the module of the app is not the one that orders."""
    assert [block.file for block in blocks_of(PAGE) if block.file] == ["shop.py", "order.py"]
    run(program_of(PAGE), tmp_path)
