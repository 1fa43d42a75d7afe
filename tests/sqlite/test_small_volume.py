"""Finding A8c: on a small volume the log does not take all the room there is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import rows
from towline import Towline
from towline.errors import DiskFull

SIZE = 24 * 1024 * 1024


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A RAM disk of 24 MB; only root may have one."""
    folder = tmp_path / "volume"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def keep(text: str) -> None: ...


def test_A8c_a_volume_of_24_MB_goes_on_working(volume: Path) -> None:
    """It was full after 774 small jobs, for ever."""
    app = Towline(f"sqlite:///{volume}/app.db")
    task = app.task(keep)
    for _ in range(3000):
        task.enqueue("x")
    log = os.stat(f"{volume}/app.db-wal").st_size
    assert log < SIZE // 3
    app.close()
    assert rows(volume / "app.db", "SELECT count(*) FROM towline_job") == [(3000,)]


def test_A8c_a_log_that_has_filled_the_volume_is_copied_before_the_error_is_given(
    volume: Path,
) -> None:
    """Another file takes the room, and goes away; what fits then is stored."""
    app = Towline(f"sqlite:///{volume}/app.db")
    task = app.task(keep)
    task.enqueue("x")
    room = os.statvfs(volume)
    other = volume / "other"
    other.write_bytes(b"x" * (room.f_bavail * room.f_frsize - 2_000_000))
    stored = 1
    try:
        for _ in range(3000):
            task.enqueue("x" * 1000)
            stored += 1
    except DiskFull:
        pass
    assert 200 < stored < 3000
    other.unlink()
    task.enqueue("x" * 1000)
    app.close()
    assert rows(volume / "app.db", "SELECT count(*) FROM towline_job") == [(stored + 1,)]
    assert rows(volume / "app.db", "PRAGMA integrity_check") == [("ok",)]
