"""Telling processes apart: a number alone may be given to another after the first has ended."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path


@cache
def place() -> str | None:
    """Where a process number means something: this boot, this container; None if not told."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
        return f"{boot}-{os.readlink('/proc/self/ns/pid').strip('pid:[]')}"
    except OSError:
        return None


def birth_of(pid: int) -> str | None:
    """Which process has this number, and no other ever had; None when it is gone or not told."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name in parentheses may hold anything. Behind it: the state, and 19 later the start.
    fields = text.rpartition(")")[2].split()
    if fields[0] in "ZX" or (where := place()) is None:
        return None
    return f"{where}-{fields[19]}"


def is_gone(pid: int, birth: str | None) -> bool:
    """Whether that process does not exist any more, for certain."""
    if birth is None or birth.rpartition("-")[0] != place():
        return False
    return birth_of(pid) != birth
