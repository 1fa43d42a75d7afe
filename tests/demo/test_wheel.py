"""The wheel carries the package and nothing else; its `towline demo` says where the demo is."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.shape.source import PACKAGE, ROOT, files


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(folder))
    return Path(built)


def test_the_wheel_holds_the_package_and_no_demo(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == {str(path.relative_to(PACKAGE.parent)) for path in files()}
    assert not [name for name in held if "demo" in name and name != "towline/cli/demo.py"]


def test_an_installed_towline_says_where_the_demo_is(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "towline", "demo"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("towline: the demo is not installed with the package")
    assert "examples/demo" in done.stderr
    assert done.stderr.count("\n") == 1
