"""The tokens of a process: which of the attempts it was sent may begin.

A pipe whose reading end both the worker and the process have. A token is the number of an attempt;
the process reads one and begins that attempt, or the worker reads it and the attempt was never
begun: the kernel gives each to one of them. So the worker can take back what has not begun although
a handler holds the interpreter over there, and it knows what has.
"""

from __future__ import annotations

import os
import select
import struct
from collections.abc import Collection

TOKEN = struct.Struct("=q")
EXIT = 0  # the token that means: no more will come
ANSWER = -1  # the token that means: say that nothing runs
MOST = select.PIPE_BUF // TOKEN.size  # so many are written, and read, in one piece


class Tokens:
    """One end each of the worker and of the process. Neither is ever blocked by the other: reading
    is tried, since whether a pipe blocks is the same for all who have it."""

    def __init__(self, reading: int, writing: int | None = None) -> None:
        self.reading = reading
        self._writing = writing
        self._closed = False

    @classmethod
    def pipe(cls) -> Tokens:
        """The worker's end. It may write: there is room for more than it ever gives."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        return cls(reading, writing)

    def give(self, numbers: Collection[int]) -> None:
        assert self._writing is not None, "a process only takes"
        os.write(self._writing, b"".join(map(TOKEN.pack, numbers)))

    def take_back(self) -> list[int]:
        """All that have not been taken over there, and never will be."""
        try:
            data = os.read(self.reading, MOST * TOKEN.size)
        except BlockingIOError:
            return []
        return [number for (number,) in TOKEN.iter_unpack(data)]

    def take(self) -> int | None:
        """The next one, if there is one."""
        try:
            data = os.read(self.reading, TOKEN.size)
        except BlockingIOError:
            return None
        return int(TOKEN.unpack(data)[0]) if data else EXIT

    def wait(self) -> int:
        """The next one, when it comes."""
        poll = select.poll()
        poll.register(self.reading, select.POLLIN)
        while (number := self.take()) is None:
            poll.poll()
        return number

    def close(self) -> None:
        """Once: forks of forks are told to, too, and the numbers may be other files' by then."""
        if not self._closed:
            self._closed = True
            for end in (self.reading, self._writing):
                if end is not None:
                    os.close(end)
