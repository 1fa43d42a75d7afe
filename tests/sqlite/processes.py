"""Other processes: one that follows orders, or several that start at the same moment."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from towline import Towline
from towline.operation import Loss, Op, Query, Steps
from towline.sqlite.engine import SqliteEngine

T = TypeVar("T")


ROOT = Path(__file__).resolve().parents[2]
FAR = 60.0

OPEN = """
import json, os, sqlite3, sys, time
from towline import Towline
from towline.operation import Loss, Op

def open_app(**settings):
    app = Towline("sqlite:///" + sys.argv[1], **{"lock_timeout": 60, **settings})
    app.add = app.task(add)
    return app

def add(number: int) -> int:
    return number

def say(*words):
    print(*words, flush=True)
"""

# Each child is forked from an interpreter that has read its modules but opened nothing yet.
CREW = """
gate = os.pipe()
for number in range(int(sys.argv[2])):
    if os.fork() == 0:
        os.close(gate[1])
        os.read(gate[0], 1)
        try:
            answer = work(number)
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(1, (json.dumps(answer) + "\\n").encode())
        os._exit(0)
os.close(gate[1])
"""


def engine_of(app: Towline) -> SqliteEngine:
    """The engine behind an app on a file, with what only it has."""
    assert isinstance(app.runner.engine, SqliteEngine)
    return app.runner.engine


class OtherProcess:
    """Another process; each line it is sent is an order, each line it prints an answer."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def do(self, order: str) -> str:
        assert self.process.stdin
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def start(script: str, database: Path, *arguments: object) -> Iterator[OtherProcess]:
    """Run a script beside us; it is gone at the end."""
    command = [sys.executable, "-c", OPEN + script, str(database), *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield OtherProcess(process)
        finally:
            process.kill()


def run(script: str, database: Path, *arguments: object, root: Path = ROOT) -> str:
    """Run a script to its end and return what it printed; the package comes from `root`."""
    command = [sys.executable, "-W", "error", "-c", OPEN + script, str(database)]
    done = subprocess.run(
        [*command, *map(str, arguments)], cwd=root, capture_output=True, text=True, timeout=100
    )
    # Whole, and not as the repr of a string that pytest would cut.
    assert done.returncode == 0, f"it ended with {done.returncode} and said:\n{done.stderr}"
    assert done.stderr == "", f"it complained:\n{done.stderr}"
    return done.stdout.strip()


def together(number: int, script: str, database: Path) -> list[Any]:
    """Call the script's `work(n)` in so many processes at the same moment; give their answers."""
    lines = run(script + CREW, database, number).splitlines()
    assert len(lines) == number
    return [json.loads(line) for line in lines]


class Held(Generic[T]):
    """A call in a thread of its own, that may be waiting; `result` joins it."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._answer: list[T] = []
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._answer.append(self._call())
        except BaseException as error:
            self.error = error

    def result(self) -> T:
        self.thread.join(FAR)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        (answer,) = self._answer
        return answer


class Pause:
    """An operation that stops in mid-transaction until it is let go."""

    def __init__(self, name: str = "slow", *, loss: Loss = Loss.NEVER) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()
        self.op: Op[str] = Op(name, self._steps, loss=loss)

    def _steps(self) -> Steps[str]:
        yield Query("one", "SELECT 1")()
        self.inside.set()
        assert self.go.wait(FAR)
        return "went"
