"""The tutorial works in order, in an empty folder, with the package as its wheel has it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.docs import site
from tests.docs.blocks import ROOT, program_of, run
from tests.docs.pages import DOCS


def test_U6_the_tutorial_works_in_order_with_the_built_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path / "dist"))
    with zipfile.ZipFile(built) as archive:
        archive.extractall(tmp_path / "installed")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "installed"))
    folder = tmp_path / "shop"
    folder.mkdir()
    assert run("import towline; print(towline.__file__)", folder).startswith(str(tmp_path))
    chapters = [path for _, _, path in site.navigation() if path.startswith("tutorial/")]
    assert len(chapters) == 6
    for path in chapters:
        run(program_of(DOCS / path), folder)
