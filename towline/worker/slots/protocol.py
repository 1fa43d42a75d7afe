"""The protocol between a worker and its processes: frames over a socket. Data only, no pickle.

worker → process    Load, then any number of Run, each perhaps with a Stop behind it; Exit
process → worker    Ready or Broken; for each Run Broken, or Begun, any number of Report and Ended;
                    a LogLine for what is logged, at any time after Ready
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Generic, TypeVar

from msgspec import Struct, msgpack

from ...model import BlockerRecord, Claimed, Ending, Outcome

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")


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
    memory_limit: int | None = None
    levels: dict[str, int] = {}


class Run(Struct, tag=True):
    """Run this attempt, which began at that time by the database's clock."""

    held: Claimed
    blockers: list[BlockerRecord]
    worker: str
    started_at: int | None


class Stop(Struct, tag=True):
    """Ask the handler to stop, if it is still this attempt that runs."""

    job_id: int
    attempt: int
    why: Outcome


class Exit(Struct, tag=True):
    """No more attempts will come."""


class Ready(Struct, tag=True):
    """The app is loaded."""


class Broken(Struct, tag=True):
    """The app cannot be loaded here, or does not have the task that a Run names. `passing`: it is
    for want of room, and no fault of theirs."""

    error: str
    passing: bool = False


class Begun(Struct, tag=True):
    """The handler is about to be called: from now on the attempt counts."""


class Report(Struct, tag=True):
    """How far the handler is."""

    fraction: float | None
    text: str | None


class Ended(Struct, tag=True):
    """How the attempt ended; no ending when there is nothing to record. `worn`: the next should
    have another process."""

    ending: Ending | None
    worn: bool


Order = Load | Run | Stop | Exit
Answer = Ready | Broken | Begun | Report | Ended


class Garbled(Exception):
    """A frame came that makes no sense here: the other end may run another release."""


class Channel(Generic[T]):
    """One end: sends frames whole, from any thread; one thread receives."""

    def __init__(self, end: Connection, incoming: object) -> None:
        self._end = end
        self._decoder: msgpack.Decoder[T] = msgpack.Decoder(incoming)
        self._sending = threading.Lock()

    def send(self, frame: Struct) -> None:
        """Raise OSError when the other end is closed, something else when it cannot be encoded."""
        body = msgpack.encode(frame)
        with self._sending:
            self._end.send_bytes(body)

    def receive(self, timeout: float | None = None) -> T | None:
        """The next frame; None when the other end is closed, or silent until the timeout. Raise
        Garbled when it is none of those that are known here."""
        try:
            if timeout is not None and not self._end.poll(timeout):
                return None
            return self._decoder.decode(self._end.recv_bytes())
        except (OSError, EOFError):
            return None
        except ValueError as error:  # of msgspec, or of its UTF-8
            raise Garbled(f"what the other process says cannot be read: {error}") from None

    def close(self) -> None:
        with self._sending:  # or a frame might go to the next file that gets this number
            self._end.close()

    def forget(self) -> None:
        """This is a fork of the process whose end it is, perhaps made while that was sending."""
        self._sending = threading.Lock()
        self.close()
