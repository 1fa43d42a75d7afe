"""Finding S4: whatever makes a job pending wakes an idle worker, whatever ends a chain wakes who
waits for it: through a broker, the server, the file, or in the same process.

Nobody finds anything by looking here: the pauses between looks are longer than any test.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import database as databases
from tests.brokers import Broker, broker, brokers
from tests.database import Database
from tests.sqlite.processes import ROOT
from tests.until import until
from tests.worker.gate import LIMIT
from towline import INJECTED, ChainCancelled, Context, Job, Next, State, Towline
from towline.worker import Worker

FAR = 3600.0


@pytest.fixture(autouse=True)
def _no_looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("towline.worker.lookout.LOOK_INTERVAL", FAR)
    monkeypatch.setattr("towline.wakes.waiting.GROWTH", 1e9)
    monkeypatch.setattr("towline.wakes.waiting.LONGEST", FAR)
    monkeypatch.setattr("towline.wakes.waiting.DEAF", FAR)


@pytest.fixture(params=brokers())
def server(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker(request.param) as server:
        yield server


@pytest.fixture
def url() -> str:
    return "sqlite:///nowhere/unused.db"  # each test names its own


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Database]:
    with databases.opened(databases.newest(), tmp_path) as database:
        yield database


@pytest.fixture(params=[databases.SQLITE, databases.newest()])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    with databases.opened(request.param, tmp_path) as database:
        yield database


class Two:
    """One app that only calls, and others that have workers; each knows all tasks."""

    def __init__(self, make: Callable[[], Towline]) -> None:
        self._make = make
        self.caller = make()
        furnish(self.caller)

    def worker(self, *queues: str) -> Worker:
        app = self._make()
        furnish(app)
        return app.worker(queues=queues, lease=FAR)

    def job(self, task: str, queue: str = "one", **settings: Any) -> Job[Any]:
        return self.caller.registry[task].using(queue=queue, **settings).enqueue()

    def ends(self, job: Job[Any]) -> Any:
        """Look again and again: this is not about who waits."""
        until(lambda: not job.refresh().state.open)
        return job.output


def furnish(app: Towline) -> None:
    @app.task(max_attempts=1)
    def shaky(ctx: Context = INJECTED) -> str:
        if ctx.attempt == 1:
            raise ValueError
        return "second"

    @app.task
    def work() -> str:
        return "done"

    @app.task
    def behind(ctx: Context = INJECTED) -> str:
        return "behind"

    @app.task
    def first() -> Next[str]:
        return second.then()

    @app.task(queue="two")
    def second() -> str:
        return "second"


@pytest.fixture
def two(postgres: Database, server: Broker, make_app: Callable[..., Towline]) -> Two:
    """Nothing but the broker carries a hint from one to the other."""
    return Two(lambda: make_app(postgres.url, notify=False, wake=server.url))


def idle(two: Two) -> None:
    """The worker is there, hears, and has nothing to do."""
    two.ends(two.job("work"))


def test_a_new_job(two: Two) -> None:
    with two.worker("one"):
        for _ in range(3):
            idle(two)


def test_a_retry(two: Two) -> None:
    with two.worker("one"):
        job = two.job("shaky")
        two.ends(job)
        assert job.refresh().state is State.FAILED
        two.caller.retry(job.id)
        assert two.ends(job) == "second"


def test_run_now(two: Two) -> None:
    with two.worker("one"):
        idle(two)
        job = two.job("work", delay=3000)
        two.caller.run_now(job.id)
        assert two.ends(job) == "done"


def test_resume(two: Two) -> None:
    with two.worker("one", "two"):
        idle(two)
        two.caller.pause("one")
        job = two.job("work")
        two.ends(two.job("work", queue="two"))
        assert job.refresh().state is State.PENDING
        two.caller.resume("one")
        assert two.ends(job) == "done"


@pytest.mark.parametrize("how", ["complete", "fail", "cancel"])
def test_an_end_from_outside_that_frees_a_dependent(two: Two, how: str) -> None:
    with two.worker("one"):
        idle(two)
        blocker = two.job("work", queue="nobody's")
        job = two.job("behind", after=[blocker], on_blocker_failure="run")
        if how == "complete":
            two.caller.complete(blocker.id, "by hand")
        elif how == "fail":
            two.caller.fail(blocker.id, "by hand")
        else:
            two.caller.cancel(blocker.id)
        assert two.ends(job) == "behind"


def test_a_continuation_into_a_queue_of_another_worker(two: Two) -> None:
    with two.worker("one"), two.worker("two"):
        idle(two)
        two.ends(two.job("work", queue="two"))
        job = two.job("first")
        until(lambda: two.caller.chain(job.id).output == "second")


def test_a_job_that_its_worker_hands_back(two: Two) -> None:
    """A stop that leaves something is told to the others too."""
    began, go = threading.Event(), threading.Event()
    stopping = two.worker("one")

    @stopping.app.task(name="slow")
    def slow() -> str:
        began.set()
        go.wait(LIMIT)
        return "first"

    with two.worker("one") as other:
        other.stop()  # its app is there, and knows the task; it begins again below
        other.app.task(name="slow")(lambda: "again")
        stopping.start()
        job = stopping.app.registry["slow"].using(queue="one").enqueue()
        assert began.wait(LIMIT)
        other.start()
        idle(two)
        stopping.stop(now=True)
        assert two.ends(job) == "again"
        go.set()


# ---- those who wait


PROGRAM = """
import sys
from towline import Towline
app = Towline(sys.argv[1], notify=sys.argv[4] == "notify")
job = int(sys.argv[3])
if sys.argv[2] == "complete":
    app.complete(job, "by hand")
else:
    app.cancel(job)
"""


class Waiter(threading.Thread):
    """Waits for a chain, blocking or awaiting, and keeps what came of it."""

    def __init__(self, job: Job[Any], awaits: bool) -> None:
        super().__init__()
        self._job, self._awaits = job, awaits
        self.result: Any = None
        self.start()

    def run(self) -> None:
        try:
            if self._awaits:
                self.result = asyncio.run(self._job.aresult(LIMIT))
            else:
                self.result = self._job.result(LIMIT)
        except ChainCancelled:
            self.result = "cancelled"
        except TimeoutError:
            self.result = "too late"

    def ended(self) -> Any:
        self.join(2 * LIMIT)
        return self.result


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
@pytest.mark.parametrize("act", ["complete", "cancel"])
def test_who_waits_hears_of_an_end_in_another_process(
    database: Database, make_app: Callable[..., Towline], act: str, awaits: bool
) -> None:
    app = make_app(database.url)
    furnish(app)
    job = app.registry["work"].enqueue()
    waiter = Waiter(job, awaits)
    until(lambda: app.runner.waiting.rings)
    command = [sys.executable, "-c", PROGRAM, database.url, act, str(job.id), "notify"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=LIMIT)
    assert waiter.ended() == ("by hand" if act == "complete" else "cancelled")


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_who_waits_hears_of_an_end_in_the_same_process(
    database: Database, make_app: Callable[..., Towline], awaits: bool
) -> None:
    """Also where nobody is notified through the server."""
    app = make_app(database.url, notify=False)
    furnish(app)
    job = app.registry["work"].enqueue()
    waiter = Waiter(job, awaits)
    until(lambda: app.runner.waiting.rings)
    app.complete(job.id, "by hand")
    assert waiter.ended() == "by hand"


def test_who_waits_hears_of_a_worker_in_the_same_process(
    database: Database, make_app: Callable[..., Towline]
) -> None:
    app = make_app(database.url, notify=False)
    furnish(app)
    job = app.registry["first"].enqueue()
    waiter = Waiter(job, False)
    until(lambda: app.runner.waiting.rings)
    with app.worker():
        assert waiter.ended() == "second"
