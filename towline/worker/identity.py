"""The identity of a process: its number alone may be given to another after it has ended."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def namespace() -> str | None:
    """Where a process number means something: this boot, this container; None if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return None


def identity_of(pid: int) -> str | None:
    """The process that has this number, and no other ever had; None when it is gone or unknown."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything. Behind it: the state, and 19 later the start.
    fields = text.rpartition(")")[2].split()
    if fields[0] in "ZX" or (space := namespace()) is None:
        return None
    return f"{space}-{fields[19]}"


def is_gone(pid: int, birth: str | None) -> bool:
    """Whether that process does not exist any more, for certain."""
    if birth is None or birth.rpartition("-")[0] != namespace():
        return False
    return identity_of(pid) != birth
