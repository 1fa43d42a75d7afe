"""A worker: its settings, its threads and its life, from registering to signing off."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from datetime import timedelta
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, Unpack

from msgspec.structs import replace

from ..errors import InvalidState, StoreUnavailable
from ..executor import in_thread
from ..exit_codes import AT_ONCE, DATABASE, FAILED, OK
from ..naming import EVERY
from ..secret import masked
from ..text import counted
from ..times import MICRO, length
from ..version import VERSION
from .identity import identity_of
from .pump import Pump
from .settings import WorkerSettings, check_concurrency, check_settings
from .slots import Slots, locate
from .slots.thread import ThreadSlots

if TYPE_CHECKING:
    import asyncio

    from ..app import Towline
    from ..wakes import Wake
    from .health import WorkerHealth
    from .health.port import Port
    from .health.systemd import Notices

log = logging.getLogger("towline.worker")

SIGNAL_CHECK = 0.1  # seconds in which a signal is heeded
STOP_OVERRUN = 15.0  # seconds beyond its grace in which a stop ends, whatever the database does


# A terminal that goes away means stop, unless nohup has said otherwise.
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, *([signal.SIGHUP] if os.name != "nt" else []))


class Worker:
    """Runs jobs of an app. `run()` blocks; `with worker:` runs it beside the caller's own code.

    `concurrency` attempts run at a time, on threads, on an event loop or in processes, as their
    tasks say. `lease`: after so long without a sign of life its jobs are taken over. `grace`: how
    long handlers may go on after a stop. `drain`: stop when nothing is left to do, `max_jobs` when
    so many have run.
    `error_text` puts what errors say into the log, which may be private, beside their kind.
    """

    def __init__(self, app: Towline, **settings: Unpack[WorkerSettings]) -> None:
        self.app = app
        self.settings = check_settings((task.queue for task in app.registry.values()), **settings)
        self._slots = OpenSlots(self)
        self.loop: asyncio.AbstractEventLoop | None = None  # the application's own, if it has one
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._at_once = False
        self._signals = self._heeded = 0
        self._broken = False
        self._stop_by: float | None = None  # when a stop is given up
        self._wakes: list[Wake] = []
        self._health: WorkerHealth | None = None
        self._port: Port | None = None
        self.notices: Notices | None = None  # for systemd, where a command serves it
        self.pump = self._new_pump()

    @property
    def name(self) -> str:
        return self.settings.name

    @property
    def running(self) -> bool:
        return self._thread is not None and not self._ended.is_set()

    @property
    def busy(self) -> int:
        """How many of its slots run a handler; from any thread."""
        held = self.pump.turns.held.copy().values()
        return len({id(each.chunk or each) for each in held if each.begun is not None})

    @property
    def health_address(self) -> str | None:
        """HOST:PORT at which it is asked for its health; None while it is not."""
        return None if self._port is None else self._port.address

    # ---- life

    def run(self) -> int:
        """Work in this thread until SIGTERM, SIGINT or `stop()`; return the exit code.

        The first signal lets handlers end within the grace time, a second stops at once. Raises
        when the database cannot be used at the start; what fails later is tried again.
        """
        previous = self._take_signals()
        try:
            self.start()
            self._wait()
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._broken:
            return FAILED
        if not self._ended.is_set() or self.pump.unwritten:
            return DATABASE
        return AT_ONCE if self._at_once else OK

    def start(self) -> Worker:
        """Work in threads of its own, beside the caller's code.

        Raises when the database can never be used as it is (no folder, other tables, not to be
        written); one that is only away is waited for.
        """
        locate.refuse_while_loading()
        if self.running:
            raise InvalidState("this worker runs already")
        try:
            self.app.runner.prepare()
        except StoreUnavailable as error:
            log.warning("worker %s waits for its database: %s", self.name, error)
        if self._ended.is_set():
            self._ended.clear()
            self._at_once, self._stop_by = False, None
            self._signals = self._heeded = 0
            self.pump = self._new_pump()
        _ = self.pump.turns.declarations  # raises when something is declared that cannot be
        self._warn_of_strange_queues()
        if any(task.run_in == "process" for task in self.app.registry.values()):
            locate.location_of(self.app)  # raises when another process could not find the app
        self._open_health()
        self._thread = threading.Thread(target=self._serve, name="towline-pump", daemon=True)
        self.app.workers_here.add(self)
        self._thread.start()
        return self

    def stop(self, *, now: bool = False, wait: bool = True) -> None:
        """Stop claiming, let handlers end, hand the rest back. `now` does not wait for them."""
        if self.running and not self.pump.is_stopping:
            number = len(self.pump.turns.held)
            text = f"is stopping: {counted(number, 'attempt runs', 'attempts run')}"
            self.pump.turns.announce.changed("stopping", text)
        self._at_once = self._at_once or now
        by = time.monotonic() + STOP_OVERRUN + (0.0 if now else self.settings.grace)
        self._stop_by = by if self._stop_by is None else min(by, self._stop_by)
        self.pump.stop(now)
        if wait and self._thread is not None:
            self._wait()

    def resize(self, concurrency: int) -> None:
        """Run so many attempts at a time from now on. Those that run already run on: a smaller
        number counts when enough of them have ended. It may be called from any thread."""
        check_concurrency(concurrency)
        self.settings = replace(self.settings, concurrency=concurrency)
        self.pump.resize(self.settings)
        for slots in list(self._slots.values()):
            slots.resize(concurrency)

    def _wait(self) -> None:
        """Until it has ended, or a stop has to be given up: the database may never answer."""
        while not self._ended.wait(SIGNAL_CHECK):
            if self._signals > self._heeded:
                self._heeded = self._signals
                self.stop(now=self._signals > 1, wait=False)
            if self._stop_by is not None and time.monotonic() >= self._stop_by:
                log.error("worker %s is left where it is: its database does not answer", self.name)
                return

    def __enter__(self) -> Worker:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def __aenter__(self) -> Worker:
        """Inside an asyncio application: awaiting handlers run on its own loop."""
        import asyncio  # who awaits this has it

        self.loop = asyncio.get_running_loop()
        return await in_thread(self.start)

    async def __aexit__(self, *_: object) -> None:
        await in_thread(self.stop)
        self.loop = None

    # ---- inside

    def _serve(self) -> None:
        settings, announce = self.settings, self.pump.turns.announce
        try:
            announce.changed(
                "started",
                f"of Towline {VERSION} begins on {masked(self.app.url)}: "
                f"queues {', '.join(settings.queues)}, {settings.concurrency} at a time, "
                f"{counted(len(self.app.registry), 'task', 'tasks')}",
            )
            self.pump.run()
        except BaseException as error:
            self._broken = True
            announce.changed("broken", "ended by an error", error)
        finally:
            for wake in self._wakes:
                wake.stop()
            self._wakes.clear()
            for slots in self._slots.values():
                slots.close()
            self._slots.clear()
            ended = counted(self.pump.turns.finished, "attempt ended", "attempts ended")
            text = f"has stopped: {ended}, {announce.failed} of them badly"
            if (later := self.pump.next_due_in) is not None:
                text += f"; the next job is due in {length(timedelta(seconds=later))}"
            announce.changed("stopped", text)
            self.app.runner.events.flush()
            self.app.workers_here.discard(self)
            self._close_health()
            self._ended.set()

    def _open_health(self) -> None:
        """What answers for it, if that was asked for."""
        if self.settings.health is None and self.notices is None:
            return
        from .health import WorkerHealth

        if self.settings.health is not None:
            from .health.port import Port

            self._health = WorkerHealth(self, metrics=True)
            try:
                self._port = Port(self.settings.health, self._health)
            except BaseException:
                self._close_health()
                raise
        if self.notices is not None:
            self.pump.on_round = partial(self.notices.tell, WorkerHealth(self))

    def _close_health(self) -> None:
        port, self._port = self._port, None
        answers, self._health = self._health, None
        if port is not None:
            port.close()
        if answers is not None:
            answers.close()

    def _new_pump(self) -> Pump:
        return Pump(self.app, self.settings, self._slots, self._register)

    def _register(self) -> int:
        settings = self.settings
        runner = self.app.runner
        number = runner.run(
            runner.store.register(
                settings.name, host=socket.gethostname(), pid=os.getpid(),
                birth=identity_of(os.getpid()), version=VERSION, queues=settings.queues,
                concurrency=settings.concurrency, lease=round(settings.lease * MICRO),
                declares=self.pump.turns.declarations.digest,
            )
        )  # fmt: skip
        if not self._wakes:  # the database is there now, and can be listened to
            self._begin_wakes()
        return number

    def _begin_wakes(self) -> None:
        for wake in self.app.runner.wakes():
            wake.on_change(self.pump.turns.announce.wake_changed)
            wake.start(self.pump.wake)
            self._wakes.append(wake)

    def _take_signals(self) -> dict[int, Any]:
        if threading.current_thread() is not threading.main_thread():
            return {}
        return {
            number: signal.signal(number, self._on_signal)
            for number in STOP_SIGNALS
            if number != signal.SIGHUP or signal.getsignal(number) is signal.SIG_DFL
        }

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Locks may be held by the very thread that is interrupted: it is heeded a moment later.
        self._signals += 1

    def _warn_of_strange_queues(self) -> None:
        known = {task.queue for task in self.app.registry.values()}
        for queue in self.settings.queues:
            if queue not in {*known, "default", EVERY} and queue.removeprefix("-") not in known:
                log.warning("no task of this app is in queue %s: is it spelt right?", queue)


class OpenSlots(dict[str, Slots]):
    """The slots of a worker by kind, opened when the first attempt needs them."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def __missing__(self, kind: str) -> Slots:
        worker = self._worker
        limit, done = worker.settings.concurrency, worker.pump.done
        if kind == "thread":
            self[kind] = ThreadSlots(limit, done)
        elif kind == "loop":
            from .slots.loop import LoopSlots

            self[kind] = LoopSlots(limit, done, worker.loop)
        else:
            from .slots.process import ProcessSlots

            self[kind] = ProcessSlots(worker.app, worker.settings, done)
        if worker.settings.concurrency != limit:  # resized meanwhile
            self[kind].resize(worker.settings.concurrency)
        return self[kind]
