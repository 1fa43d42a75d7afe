"""The protocol between a worker and its processes: frames over a socket. Data only, no pickle.

worker → process    Load, then any number of Run; a Stop for the one that runs
process → worker    Ready or Broken; for each Run that a token lets begin (`tokens.py`) Begun, any
                    number of Report, and Ended or Broken; a LogLine for what is logged, at any
                    time after Ready

How an attempt ended is sent before the next one begins: a process that is killed has told of all
but the one it ran.
"""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct, msgpack

from ...model import Outcome
from ...records import BlockerRecord, Claimed, Ending, NewJob

if TYPE_CHECKING:
    from ..attempt import Attempt

T = TypeVar("T")

LENGTH = 4  # bytes that say how long a frame is
READ_AT_ONCE = 64 * 1024  # bytes


class Load(Struct, tag=True):
    """Become a process of this app: which modules to import, and where in them the app is; the
    script that is run, if it is one of them, by its name (`python -m name`) or by its path."""

    module: str
    attribute: str
    modules: list[str]
    main_name: str | None
    main_path: str | None
    argv: list[str]
    url: str
    moved_to: str | None = None  # the schema; None unless the app was pointed there by `use`
    memory_limit: int | None = None
    levels: dict[str, int] = {}


class Run(Struct, tag=True):
    """An attempt that may be run when its number comes as a token. It was claimed at that time by
    the monotonic clock, which is one for all processes of a machine."""

    number: int
    held: Claimed
    blockers: list[BlockerRecord]
    worker: str
    claimed: float
    trace: str | None = None  # the context of its span, which its worker has


class Stop(Struct, tag=True):
    """Ask the handler to stop, if it is still this attempt that runs."""

    job_id: int
    attempt: int
    why: Outcome


class Ready(Struct, tag=True):
    """The app is loaded, and nothing runs."""


class Broken(Struct, tag=True):
    """The app cannot be loaded here, or does not have the task that a Run names. `passing`: it is
    for want of room, and no fault of theirs."""

    error: str
    passing: bool = False


class Begun(Struct, tag=True):
    """The handler is about to be called: from now on the attempt counts."""

    number: int
    at: float  # by the monotonic clock


class Report(Struct, tag=True):
    """How far the handler is."""

    fraction: float | None
    text: str | None


class Ended(Struct, tag=True, omit_defaults=True):
    """How the attempt that ran has ended, as in an Ending; no outcome when there is nothing to
    record: then it has completed its job itself, as `inside` says, and has `written` that, or its
    caller does. `worn`: the process ends, and what is left for it should have another."""

    at: float  # by the monotonic clock
    worn: bool = False
    outcome: Outcome | None = None
    output: str | None = None
    error: str | None = None
    delay: int | None = None
    next: NewJob | None = None
    error_type: str | None = None
    rests: bool = False
    inside: Outcome = Outcome.COMPLETED
    written: bool = False

    @classmethod
    def by(cls, attempt: Attempt, ending: Ending | None, at: float, worn: bool) -> Ended:
        if ending is None:
            return cls(at, worn, inside=attempt.inside, written=attempt.completed_inside)
        return cls(
            at, worn, ending.outcome, ending.output, ending.error, ending.delay, ending.next,
            ending.error_type, ending.rests,
        )  # fmt: skip

    def ending(self, held: Claimed, started_at: int | None, late: bool = False) -> Ending | None:
        if self.outcome is None:
            return None
        return Ending(
            held, self.outcome, self.output, self.error, self.delay, started_at, not late,
            next=self.next, error_type=self.error_type, rests=self.rests,
        )  # fmt: skip


Order = Load | Run | Stop
Answer = Ready | Broken | Begun | Report | Ended


class Garbled(Exception):
    """A frame came that makes no sense here: the other end may run another release."""


def packed(*frames: Struct) -> bytes:
    """Frames as they are sent; raise what says why one cannot be encoded."""
    bodies = [msgpack.encode(frame) for frame in frames]
    return b"".join(len(body).to_bytes(LENGTH) + body for body in bodies)


class Channel(Generic[T]):
    """One end: sends frames whole, from any thread; one thread receives."""

    def __init__(self, end: socket.socket, incoming: object) -> None:
        self._end = end
        self._decoder: msgpack.Decoder[T] = msgpack.Decoder(incoming)
        self._sending = threading.Lock()
        self._buffer = bytearray()  # the beginning of a frame that is not here whole
        self._garbled: Garbled | None = None

    def send(self, *frames: Struct) -> None:
        """Raise OSError when the other end is closed, something else when it cannot be encoded."""
        self.send_packed(packed(*frames))

    def send_packed(self, data: bytes) -> None:
        with self._sending:
            self._end.sendall(data)

    def receive(self, timeout: float | None = None) -> list[T]:
        """The frames that come next, all that are there; none when the other end is closed, or
        silent until the timeout. Raise Garbled when the next is none of those known here."""
        frames: list[T] = []
        while not frames:
            if self._garbled is not None:
                raise self._garbled
            if timeout is not None and not self._is_heard(timeout):
                break
            try:
                data = self._end.recv(READ_AT_ONCE)
            except OSError:
                break
            if not data:
                break
            frames = self._take_in(data)
        return frames

    def _take_in(self, data: bytes) -> list[T]:
        frames: list[T] = []
        buffer, at = self._buffer, 0
        buffer += data
        while (start := at + LENGTH) <= len(buffer):
            end = start + int.from_bytes(buffer[at:start])
            if end > len(buffer):
                break
            try:
                frames.append(self._decoder.decode(buffer[start:end]))
            except ValueError as error:  # of msgspec, or of its UTF-8
                text = f"what the other process says cannot be read: {error}"
                self._garbled = Garbled(text)
                break
            at = end
        del buffer[:at]
        return frames

    def _is_heard(self, timeout: float) -> bool:
        poll = select.poll()
        poll.register(self._end, select.POLLIN)
        return bool(poll.poll(timeout * 1000))

    def close(self) -> None:
        with self._sending:  # or a frame might go to the next file that gets this number
            self._end.close()

    def forget(self) -> None:
        """This is a fork of the process whose end it is, perhaps made while that was sending."""
        self._sending = threading.Lock()
        self.close()
