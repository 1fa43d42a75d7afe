"""Two walks through the running library: which files one job's life really runs through.

    python -m tests.shape.walks

Read by `sys.setprofile`, so the files are those whose functions were called, in order of arrival.
First uses (opening, preparing, compiling a signature) are over before a walk begins.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from tests.shape.source import PACKAGE
from towline import Towline


@contextmanager
def walked(*threads: str) -> Iterator[dict[str, None]]:
    """The files of the package whose functions are called in the block: by this thread, or by
    threads that begin in it and whose names begin so."""
    files: dict[str, None] = {}
    inside = str(PACKAGE) + "/"

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(inside):
            if not threads or threading.current_thread().name.startswith(threads):
                files[name.removeprefix(inside)] = None

    set_profile = threading.setprofile if threads else sys.setprofile
    set_profile(note)
    try:
        yield files
    finally:
        set_profile(None)


def enqueue_walk(url: str) -> list[str]:
    """One `task.enqueue(…)` that is not the first."""
    app, task = _app(url)
    for _ in range(3):
        task.enqueue(1)
    with walked() as files:
        task.enqueue(1)
    app.close()
    return list(files)


def worker_walk(url: str) -> list[str]:
    """A worker that claims, runs and finishes one job in a thread slot, not its first: its pump
    and its slot."""
    app, task = _app(url)
    worker = app.worker(concurrency=1)
    with walked("towline-") as files:
        worker.start()
        task.enqueue(1).result(30)
        files.clear()
        task.enqueue(1).result(30)
        found = list(files)
        worker.stop()
    app.close()
    return found


def _app(url: str) -> tuple[Towline, Any]:
    app = Towline(url)
    app.migrate()

    @app.task
    def double(n: int) -> int:
        return 2 * n

    return app, double


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        for walk in (enqueue_walk, worker_walk):
            found = walk(f"sqlite:///{Path(folder) / walk.__name__}.db")
            print(f"{walk.__name__}: {len(found)} files\n  " + "\n  ".join(found))
