"""What tests need beyond the rights of any user: to mount, if only in a namespace of their own.

Where that cannot be had it fails its tests, unless `TOWLINE_SKIP=mount` names it; the summary says
so then.
"""

from __future__ import annotations

import subprocess
from functools import cache
from tempfile import TemporaryDirectory

import pytest

from tests.servers import is_skipped

MOUNT = "mount"
WAYS = (["unshare", "--mount"], ["unshare", "--user", "--map-root-user", "--mount"])


class MissingRight(Exception):
    """Something that tests do is forbidden here; says what to do."""


def skipped() -> list[str]:
    """The rights left out because TOWLINE_SKIP names them."""
    return [MOUNT] if is_skipped(MOUNT) else []


def mounting() -> list[str]:
    """What to put before a command that mounts: what it mounts is its own, and goes with it."""
    if is_skipped(MOUNT):
        pytest.skip("TOWLINE_SKIP names it")
    return _way()


@cache
def _way() -> list[str]:
    said = ""
    with TemporaryDirectory() as folder:
        for way in WAYS:
            command = [*way, "mount", "-t", "tmpfs", "tmpfs", folder]
            try:
                subprocess.run(command, check=True, capture_output=True, text=True)
            except OSError as error:
                said = str(error)
            except subprocess.CalledProcessError as error:
                said = error.stderr.strip()
            else:
                return way
    raise MissingRight(
        f"nothing can be mounted here, not even in a namespace of one's own ({said}). "
        f"TOWLINE_SKIP={MOUNT} runs the tests without it."
    )
