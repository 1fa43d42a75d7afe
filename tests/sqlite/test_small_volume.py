"""Finding A8c: on a small volume the log does not take all the room there is.

The volume is a RAM disk of 24 MB, which only the process that is started on it can see.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.kit import ROOT, rows
from tests.rights import mounting
from towline import Towline
from towline.errors import DiskFull

SIZE = 24 * 1024 * 1024
MOUNT = f'mount -t tmpfs -o size={SIZE} tmpfs "$1" && exec "$2" -W error -c "$3" "$1"'
CALL = """
import sys
from pathlib import Path
from tests.sqlite.test_small_volume import {name}
{name}(Path(sys.argv[1]))
"""


def on_small_volume(body: Callable[[Path], None], folder: Path) -> None:
    script = CALL.format(name=body.__name__)
    command = [*mounting(), "sh", "-c", MOUNT, "sh", str(folder), sys.executable, script]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(folder.iterdir()) == []  # it was on the volume


def keep(text: str) -> None: ...


def test_A8c_a_volume_of_24_MB_goes_on_working(tmp_path: Path) -> None:
    """It was full after 774 small jobs, for ever."""
    on_small_volume(goes_on_working, tmp_path)


def goes_on_working(volume: Path) -> None:
    app = Towline(f"sqlite:///{volume}/app.db")
    task = app.task(keep)
    for _ in range(3000):
        task.enqueue("x")
    log = os.stat(f"{volume}/app.db-wal").st_size
    assert log < SIZE // 3, log
    app.close()
    assert rows(volume / "app.db", "SELECT count(*) FROM towline_job") == [(3000,)]


def test_A8c_a_log_that_has_filled_the_volume_is_copied_before_the_error_is_given(
    tmp_path: Path,
) -> None:
    """Another file takes the room, and goes away; what fits then is stored."""
    on_small_volume(fills_the_volume, tmp_path)


def fills_the_volume(volume: Path) -> None:
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
    assert 200 < stored < 3000, stored
    other.unlink()
    task.enqueue("x" * 1000)
    app.close()
    assert rows(volume / "app.db", "SELECT count(*) FROM towline_job") == [(stored + 1,)]
    assert rows(volume / "app.db", "PRAGMA integrity_check") == [("ok",)]
