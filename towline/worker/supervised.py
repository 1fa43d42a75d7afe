"""A worker's process, as the command line runs it: alone, or as the child of a supervisor."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING

from ..exit_codes import FAILED
from .health.systemd import Notices

if TYPE_CHECKING:
    from . import Worker

log = logging.getLogger("towline.supervisor")

STOP, NOW, DONE = b"s", b"n", b"d"  # the words of the line
STOP_OVERRUN = 10.0  # seconds beyond the grace time, for writing what is left


def run_alone(worker: Worker) -> int:
    """Run a worker in the main thread; return its exit code. systemd is told, if it started it.

    A signal before it listens stops it, and one after it has stopped changes nothing any more.
    """
    worker.notices = Notices.asked_for(os.environ)
    on_signal(_stopping(worker, threading.Event()))
    code = worker.run()
    on_signal(signal.SIG_IGN)
    return code


def run_on_line(worker: Worker, number: int, asks: int | None = None) -> int:
    """Run a worker as a supervisor's child; return its exit code.

    It stops when the line says so, and when the line ends: then the supervisor is gone. A signal
    only ever means to stop in order here. On `asks` the supervisor asks how it is.
    """
    line = socket.socket(fileno=number)
    line.set_inheritable(False)
    os.register_at_fork(after_in_child=line.close)  # a fork of a handler's own has no supervisor
    if asks is not None:
        from .health import WorkerHealth
        from .health.crew import answer_questions

        answer_questions(asks, WorkerHealth(worker, metrics=True))
    asked = threading.Event()
    on_signal(_stopping(worker, asked))
    threading.Thread(target=_listen, args=(worker, line, asked), daemon=True).start()
    try:
        with ThreadPoolExecutor(1, "towline-worker") as thread:  # here it would take the signals
            code = thread.submit(worker.run).result()
    finally:
        on_signal(signal.SIG_IGN)
    ends_by_itself = worker.settings.drain or worker.settings.max_jobs is not None
    if ends_by_itself and not asked.is_set():
        try:
            line.send(DONE)
        except OSError:  # the supervisor is gone
            pass
    return code


def _stopping(worker: Worker, asked: threading.Event) -> Callable[[int, FrameType | None], object]:
    """What a signal does: stop the worker, from a thread that is there already. Locks may be held
    by the very thread that is interrupted, and there may be no room for another."""
    signals: SimpleQueue[int] = SimpleQueue()

    def wait() -> None:
        while signals.get():
            asked.set()
            worker.stop(wait=False)

    threading.Thread(target=wait, name="towline-signals", daemon=True).start()
    return lambda number, frame: signals.put(number)


def on_signal(action: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    """What SIGTERM, SIGINT and SIGHUP do from now on. At the very end that is nothing: the
    interpreter would fall back on dying by the signal, and the exit code would be another."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, action)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
        signal.signal(signal.SIGHUP, action)


def _listen(worker: Worker, line: socket.socket, asked: threading.Event) -> None:
    while word := line.recv(1):
        asked.set()
        worker.stop(now=word == NOW, wait=False)
    log.warning("the supervisor is gone: stopping")
    asked.set()
    worker.stop(wait=False)
    time.sleep(worker.settings.grace + STOP_OVERRUN)
    os._exit(FAILED)
