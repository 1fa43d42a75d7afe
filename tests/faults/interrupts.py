"""Interrupts: an exception that arrives anywhere in a call leaves nothing stuck (finding A3).

    python -m tests.faults.interrupts --engine sqlite            # every bytecode of every act
    python -m tests.faults.interrupts --engine postgres --step 7 # every seventh
    python -m tests.faults.interrupts --random 30                # a raising SIGALRM, seconds

An act is begun over and over; the first time it is interrupted before its first bytecode in
Towline's code, then before its second, until it comes through. After each, this thread, another
thread and (now and then) another process must be able to write and read at once, and the
interrupted job is stored once or not at all. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import gc
import os
import queue
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import towline
from tests.faults.audit import Audit
from tests.faults.fresh import Place, places
from tests.races.auditor import ask, open_reader
from tests.races.logs import Finding
from towline import Towline
from towline.operation import Op, Steps

INSIDE = (os.path.dirname(towline.__file__) + os.sep,)
AT_ONCE = 10.0  # seconds; what is stuck is stuck for good, what is slow is a loaded machine
NEIGHBOUR = 25  # how often another process has a try
ENOUGH = 5  # findings, after which there is no point in going on
TOOL = 3  # of sys.monitoring: one that nobody else has
OVER = 400  # bytecodes more than were counted: an act that has to wait has more
HOLD = 0.003  # seconds another thread has the writer, so that the act must wait for it

OTHER = """
import sys
from towline import Towline
app = Towline(sys.argv[1], lock_timeout=5)
@app.task
def other() -> None: ...
for line in sys.stdin:
    try:
        job = other.enqueue()
        app.job(job.id)
        print("done", flush=True)
    except BaseException as error:
        print(type(error).__name__, error, flush=True)
"""


class Interrupt(BaseException):
    """As Ctrl-C."""


class Alarm(Exception):
    """What the handler of SIGALRM raises in many programs: an ordinary exception."""


class Point:
    """Raises before the n-th bytecode of Towline's code that this thread comes to."""

    def __init__(self, number: int, kind: type[BaseException], inside: Sequence[str]) -> None:
        self.number = number
        self.place: str | None = None
        self._kind = kind
        self._inside = tuple(inside)
        self._seen = 0

    def __enter__(self) -> Point:
        self._thread = threading.get_ident()
        if sys.version_info >= (3, 12):
            # There `settrace` tells no more of bytecodes of what was interrupted before.
            tell = sys.monitoring
            tell.use_tool_id(TOOL, "interrupts")
            tell.register_callback(TOOL, tell.events.INSTRUCTION, self._instruction)
            tell.set_events(TOOL, tell.events.INSTRUCTION)
        else:
            sys.settrace(self._call)
        return self

    def __exit__(self, *_: object) -> None:
        if sys.version_info >= (3, 12):
            sys.monitoring.set_events(TOOL, 0)
            sys.monitoring.free_tool_id(TOOL)
        else:
            sys.settrace(None)

    def _instruction(self, code: CodeType, _: int) -> None:
        if threading.get_ident() == self._thread and code.co_filename.startswith(self._inside):
            self._tell(sys._getframe(1))

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        if self.place or not frame.f_code.co_filename.startswith(self._inside):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._step

    def _step(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "opcode":
            self._tell(frame)
        return self._step

    def _tell(self, frame: FrameType) -> None:
        if self.place:
            return
        self._seen += 1
        if self._seen > self.number:
            file = os.path.basename(frame.f_code.co_filename)
            self.place = f"{file}:{frame.f_lineno} {frame.f_code.co_name} +{frame.f_lasti}"
            raise self._kind(self.place)


class Bystanders:
    """Another thread and another process, which must get their turn whatever happens here."""

    def __init__(self, app: Towline, url: str) -> None:
        self.app = app
        self.other = app.task(name="other")(_nothing)
        self._orders: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[object] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()
        command = [sys.executable, "-c", OTHER, url]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)

    def close(self) -> None:
        self._orders.put(None)
        self._process.kill()
        self._process.communicate()

    def use(self) -> None:
        """Write and read."""
        job = self.other.enqueue()
        self.app.job(job.id)

    def hold(self, seconds: float) -> None:
        """Let the other thread have the writer for a while, beginning now."""
        inside = threading.Event()

        def steps() -> Steps[None]:
            yield from self.app.runner.store.enqueue([self.other.call().new_job(())])
            inside.set()
            time.sleep(seconds)

        self._orders.put(lambda: self.app.runner.run(Op("hold", steps)))
        assert inside.wait(AT_ONCE)

    def rejoin(self) -> None:
        answer = self._answers.get(timeout=AT_ONCE)
        if isinstance(answer, BaseException):
            raise answer

    def try_all(self, *, process: bool) -> None:
        """Raise unless everybody can work."""
        self.use()
        self._orders.put(self.use)
        self.rejoin()
        if process:
            assert self._process.stdin
            assert self._process.stdout
            self._process.stdin.write("go\n")
            self._process.stdin.flush()
            if (answer := self._process.stdout.readline().strip()) != "done":
                raise RuntimeError(f"another process: {answer}")

    def _follow(self) -> None:
        while order := self._orders.get():
            try:
                self._answers.put(order())
            except BaseException as error:
                self._answers.put(error)


def _nothing() -> None: ...


def _is_from(error: BaseException | None, kind: type[BaseException]) -> bool:
    """Whether an error is the interrupt, or what somebody made of it."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error is not None


class Interrupts:
    """A place with an app, what can be done there, and what was found."""

    def __init__(self, place: Place, inside: Sequence[str] = INSIDE) -> None:
        self.audit = Audit()
        self._inside = inside
        self._app = Towline(place.url, lock_timeout=5)
        self._mine = self._app.task(name="mine")(_nothing)
        self._first = self._mine.enqueue()
        self._bystanders = Bystanders(self._app, place.url)
        self._reader = open_reader(place.url)
        self._checks = 0
        self.acts: dict[str, Callable[[], object]] = {
            "enqueue": self._mine.enqueue,
            "read": self._read,
            "wait": self._mine.enqueue,  # behind another thread that has the writer
            "beside": self._mine.enqueue,  # two other threads that never rest
        }

    def close(self) -> None:
        self._bystanders.close()
        self._reader.close()
        self._app.close()
        gc.collect()  # generators that an interrupt left half done say so when they go: here

    def _read(self) -> object:
        return self._app.job(self._first.id), self._app.counts()

    def every(self, name: str, kind: type[BaseException], step: int = 1, start: int = 0) -> None:
        """Interrupt an act at each step-th bytecode."""
        most = max(len(self.count(name)) for _ in range(3)) + OVER
        with self._others(name == "beside"):
            for number in range(start, most, step):
                if len(self.audit.findings) >= ENOUGH:
                    return
                if self._once(name, number, kind) is not None:
                    self._count(f"{name} {kind.__name__}: bytecodes", 1)

    def only(self, name: str, kind: type[BaseException], numbers: Sequence[int]) -> None:
        """Interrupt an act at these bytecodes."""
        with self._others(name == "beside"):
            for number in numbers:
                self._once(name, number, kind)

    def count(self, name: str) -> list[str]:
        """Where each bytecode of an act lies: the names of files, in order."""
        places: list[str] = []

        class Counting(Point):
            def _tell(self, frame: FrameType) -> None:
                places.append(frame.f_code.co_filename)

        with Counting(0, Interrupt, self._inside):
            self.acts[name]()
        return places

    def random(self, seconds: float, kind: type[BaseException], seed: int = 0) -> None:
        """Interrupt writing and reading by a signal, at any moment."""
        chance = random.Random(seed)
        armed = False

        def ring(*_: object) -> None:
            nonlocal armed
            if armed:
                armed = False
                raise kind("by signal")

        def is_armed() -> bool:
            return armed

        before = signal.signal(signal.SIGALRM, ring)
        end = time.monotonic() + seconds
        hits = writes = 0
        try:
            while time.monotonic() < end and len(self.audit.findings) < ENOUGH:
                floor = self._newest()
                done: list[int] = []
                try:
                    armed = True
                    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.003))
                    self._use(is_armed, done)
                except BaseException as error:
                    hits += 1
                    if not _is_from(error, kind):
                        self._find("random", error)
                finally:
                    armed = False
                writes += len(done)
                self._check("random", floor, len(done), len(done) + 1)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        self._count(f"random {kind.__name__}: interrupts", hits)
        self._count(f"random {kind.__name__}: writes", writes)

    def _use(self, goes_on: Callable[[], bool], done: list[int]) -> None:
        while goes_on():
            done.append(self._mine.enqueue().id)
            self._read()

    def _once(self, name: str, number: int, kind: type[BaseException]) -> str | None:
        """Interrupt an act at a bytecode; where that was, None if it was over before."""
        floor = self._newest()
        held = name == "wait"
        if held:
            self._bystanders.hold(HOLD)
        done = 0
        with Point(number, kind, self._inside) as point:
            try:
                self.acts[name]()
                done = int(name != "read")
            except BaseException as error:
                if not _is_from(error, kind):
                    self._find(f"{name} at {point.place}", error)
        if held:
            try:
                self._bystanders.rejoin()
            except BaseException as error:
                self._find(f"{name} at {point.place}, the other", error)
        self._check(f"{name} at {number} {point.place}", floor, done, int(name != "read"))
        return point.place

    def _check(self, where: str, floor: int, least: int, most: int) -> None:
        """Everybody can work, and so many jobs were stored since."""
        self._checks += 1
        text = f"SELECT count(*) FROM towline_job WHERE task = 'mine' AND id > {floor}"
        ((stored,),) = ask(self._reader, text)
        if not least <= stored <= most:
            self._find(where, f"{stored} stored, {least} acknowledged, {most} tried")
        try:
            self._bystanders.try_all(process=self._checks % NEIGHBOUR == 0)
        except BaseException as error:
            self._find(where, error)

    @contextmanager
    def _others(self, wanted: bool) -> Iterator[None]:
        """Two threads that write all the time; all they were told is stored, is stored."""
        stop = threading.Event()
        acknowledged: list[int] = []

        def write() -> None:
            while not stop.is_set():
                try:
                    acknowledged.append(self._bystanders.other.enqueue().id)
                except BaseException as error:
                    self._find("another thread", error)
                    return

        threads = [threading.Thread(target=write) for _ in range(2 * wanted)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(AT_ONCE)
                if thread.is_alive():
                    self._find("another thread", "is stuck")
            stored = {id for (id,) in ask(self._reader, "SELECT id FROM towline_job")}
            if missing := set(acknowledged) - stored:
                self._find("another thread", f"{len(missing)} acknowledged jobs are missing")

    def _newest(self) -> int:
        ((newest,),) = ask(self._reader, "SELECT coalesce(max(id), 0) FROM towline_job")
        return int(newest)

    def _find(self, where: str, problem: object) -> None:
        kind = f"{type(problem).__name__}: " if isinstance(problem, BaseException) else ""
        self.audit.findings.append(Finding("stuck", f"{where}: {kind}{problem}"))

    def _count(self, name: str, number: int) -> None:
        self.audit.figures[name] += number


@contextmanager
def at(place: Place, inside: Sequence[str] = INSIDE) -> Iterator[Interrupts]:
    with closing(Interrupts(place, inside)) as interrupts:
        yield interrupts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--act", action="append", help="enqueue, read, wait, beside; all of them")
    parser.add_argument("--step", type=int, default=1, help="every so many bytecodes")
    parser.add_argument("--random", type=float, default=0.0, help="seconds of signals instead")
    parser.add_argument("--also", action="append", default=[], help="another package's folder")
    parser.add_argument("--folder", help="where the file is made: a RAM disk is quick")
    chosen = parser.parse_args(arguments)
    sys.unraisablehook = lambda _: None  # interrupts in __del__, which Python prints and drops
    inside = INSIDE + tuple(chosen.also)
    with tempfile.TemporaryDirectory(prefix="interrupts-", dir=chosen.folder) as folder:
        with places(chosen.engine, Path(folder)) as place, at(place, inside) as interrupts:
            for kind in (Interrupt, Alarm):
                if chosen.random:
                    interrupts.random(chosen.random / 2, kind, seed=os.getpid())
                    continue
                for name in chosen.act or interrupts.acts:
                    interrupts.every(name, kind, chosen.step)
            audit = interrupts.audit
    return 1 if audit.say(chosen.engine) else 0


if __name__ == "__main__":
    sys.exit(main())
