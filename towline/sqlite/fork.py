"""What fork() does to SQLite, and how we stay out of its way.

SQLite remembers its locks per process and file; a forked child inherits the memory without the
locks. If the child opens the same file, the parent's last close may take the log away beneath it,
and what the child commits then is gone without an error. So before a fork our idle connections are
closed, and opened again when used; a child of a fork that came while one was busy may not open the
file.
"""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Protocol

from ..errors import ForkedConnection


class Engine(Protocol):
    """Whatever has connections to a file."""

    path: str

    def let_go(self) -> bool:
        """Close what is idle; True if nothing is open any more."""
        ...

    def close(self) -> None: ...


_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_busy: set[str] = set()
_inherited: set[str] = set()


def watch(engine: Engine) -> None:
    """Let an engine's connections go before each fork, and at the end of the process."""
    _engines.add(engine)


def check_owner(pid: int) -> None:
    """Raise in a process that did not open the app itself."""
    if os.getpid() != pid:
        raise ForkedConnection("this app was opened before fork(); open one in the child")


def check_inherited(path: str) -> None:
    """Raise where the file was in use when this process was forked."""
    if path in _inherited:
        raise ForkedConnection(
            f"this process was forked while {path} was in use, and SQLite's locks do not hold in "
            'it: start it with multiprocessing.get_context("spawn") or a subprocess'
        )


def _before() -> None:
    _busy.clear()
    _busy.update(engine.path for engine in list(_engines) if not engine.let_go())


def _after_in_child() -> None:
    _inherited.update(_busy)


@atexit.register
def _at_exit() -> None:
    for engine in list(_engines):
        engine.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_child=_after_in_child)
