"""Linux's inotify on one file: a descriptor that has something to read when the file was written.

The file is watched by its path and never opened.
"""

from __future__ import annotations

import ctypes
import os
import sys

IN_MODIFY = 0x2
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC  # as IN_NONBLOCK, IN_CLOEXEC on every Linux


class Inotify:
    """An inotify instance. Raises OSError where there is none, or no more of them."""

    def __init__(self) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError("only Linux has inotify")
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "inotify_init1"):
            raise OSError("this C library has no inotify")
        self.descriptor = _checked(self._libc.inotify_init1(_FLAGS))

    def add(self, path: str) -> None:
        """Watch the file that lies there now, also if it is watched already."""
        _checked(self._libc.inotify_add_watch(self.descriptor, os.fsencode(path), IN_MODIFY))

    def clear(self) -> None:
        """Read what there is, so that the descriptor is quiet until the next write."""
        try:
            while os.read(self.descriptor, 4096):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        os.close(self.descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
