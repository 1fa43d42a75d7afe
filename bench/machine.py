"""Processes seen from outside, the same for every language: CPU, memory, bytes written."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")
PROC = Path("/proc")


def tree(pid: int) -> list[int]:
    """A process and all that it started and still runs."""
    found, waiting = [], [pid]
    while waiting:
        one = waiting.pop()
        found.append(one)
        for file in (PROC / str(one) / "task").glob("*/children"):
            try:
                waiting += map(int, file.read_text().split())
            except OSError:
                continue
    return found


def cpu(pid: int) -> float:
    """Seconds of CPU of a process tree, those of children that ended and were waited for, too.

    In ticks of 10 ms; see `exact_cpu` for silence.
    """
    ticks = 0
    for one in tree(pid):
        try:
            text = (PROC / str(one) / "stat").read_text()
        except OSError:
            continue
        ticks += sum(map(int, text.rpartition(")")[2].split()[11:15]))
    return ticks / TICK


def exact_cpu(pids: Iterable[int]) -> dict[str, int]:
    """Nanoseconds of CPU of every thread alive in these trees."""
    found = {}
    for pid in pids:
        for one in tree(pid):
            for file in (PROC / str(one) / "task").glob("*/schedstat"):
                try:
                    found[file.parent.name] = int(file.read_text().split()[0])
                except (OSError, IndexError):
                    continue
    return found


def grown(before: dict[str, int], after: dict[str, int]) -> float:
    """Seconds of CPU between two looks; a thread that ended between them is not counted."""
    return sum(spent - before.get(thread, 0) for thread, spent in after.items()) / 1e9


def written(pid: int) -> int:
    """Bytes that a process tree has handed to write calls."""
    total = 0
    for one in tree(pid):
        try:
            text = (PROC / str(one) / "io").read_text()
        except OSError:
            continue
        total += int(dict(line.split(": ") for line in text.splitlines())["wchar"])
    return total


def peak(pid: int) -> float:
    """The highest resident memory of a process tree so far, in MB, children added up."""
    total = 0
    for one in tree(pid):
        try:
            text = (PROC / str(one) / "status").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith("VmHWM:"):
                total += int(line.split()[1])
    return total / 1024


def births(pids: Iterable[int]) -> dict[int, str]:
    """When each of these began, which tells it from a later process of the same number."""
    found = {}
    for pid in pids:
        try:
            text = (PROC / str(pid) / "stat").read_text()
        except OSError:
            continue
        found[pid] = text.rpartition(")")[2].split()[19]
    return found


def end(known: dict[int, str]) -> None:
    """Kill those of these processes that are still there."""
    now = births(known)
    for pid, birth in known.items():
        if now.get(pid) == birth:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
