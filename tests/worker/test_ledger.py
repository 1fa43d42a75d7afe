"""The ledger of a worker: which of its attempts had begun, for whoever sweeps it. Finding A11."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate, outcomes
from towline import State, Towline
from towline.store.lease import Begun
from towline.worker.unwritten import PLACES, Ledger, begun_by, forget

PROGRAM = """
import os, sys, threading
from towline import Towline
app = Towline(sys.argv[1])

@app.task
def work(number: int) -> None:
    os.write(1, b"%d\\n" % number)
    threading.Event().wait(60)

app.worker(name="victim", lease=3000, concurrency=2, prefetch=20).run()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where ledgers are kept: for this process, and for those it starts."""
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path / f"towline-{os.geteuid()}"


@pytest.mark.usefixtures("folder")
def test_what_begun_is_known_to_others() -> None:
    ledger = Ledger(77)
    ledger.begin(5, 1, 1000)
    ledger.begin(6, 2, 1001)
    assert begun_by(77) == Begun(frozenset({(5, 1), (6, 2)}))
    ledger.close()
    assert begun_by(77) is None


@pytest.mark.usefixtures("folder")
def test_what_was_written_over_is_not_taken_for_not_begun() -> None:
    """A job may run while tens of thousands begin and end beside it."""
    ledger = Ledger(77)
    for number in range(PLACES + 1):
        ledger.begin(number + 1, 1, number)
    begun = begun_by(77)
    assert begun is not None
    assert begun.since == PLACES // 2
    assert not begun.is_without(1, 1, claimed_at=0)
    assert not begun.is_without(PLACES, 1, claimed_at=PLACES - 1)
    assert begun.is_without(PLACES + 2, 1, claimed_at=PLACES)


def test_a_ledger_in_a_folder_of_others_is_not_trusted(folder: Path) -> None:
    """Who can write there could have jobs run once more than their crash limit allows."""
    Ledger(77).begin(5, 1, 1000)
    folder.chmod(0o777)
    assert begun_by(77) is None
    with pytest.raises(PermissionError):
        Ledger(78)
    forget(77)
    assert (folder / "77.begun").exists()
    folder.chmod(0o700)
    assert begun_by(77) == Begun(frozenset({(5, 1)}))


def test_a_folder_of_somebody_else_is_not_trusted(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but root gives folders away; so it stays ours, and we say that we are another."""
    Ledger(77).begin(5, 1, 1000)
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    folder.rename(folder.with_name(f"towline-{another}"))
    assert begun_by(77) is None
    with pytest.raises(PermissionError, match="folder"):
        Ledger(78)


def test_a_folder_that_is_a_link_is_not_trusted(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(0o700)
    folder.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        Ledger(77)
    assert begun_by(77) is None


def test_a_worker_without_a_ledger_works(app: Towline, folder: Path) -> None:
    """A folder that cannot be used costs nobody a job."""
    folder.write_text("a file")

    @app.task
    def work(number: int) -> int:
        return number

    jobs = app.enqueue_many([work.call(number) for number in range(50)])
    with app.worker(prefetch=10):
        assert [job.result(LIMIT) for job in jobs] == list(range(50))


def test_a_stop_removes_it(app: Towline, folder: Path) -> None:
    gate = Gate()

    @app.task
    def work() -> None:
        gate.enter()

    with app.worker() as worker:
        work.enqueue()
        gate.wait_inside()
        assert [path.name for path in folder.iterdir()] == [f"{worker.pump.turns.worker}.begun"]
        gate.open()
    assert list(folder.iterdir()) == []


def test_what_a_killed_worker_had_not_begun_is_not_lost(
    app: Towline, database: Database, tmp_path: Path, folder: Path
) -> None:
    """Finding A11, O10: it comes back at once, without a mark; the ledger goes with the sweep."""

    @app.task
    def work(number: int) -> int:
        return number

    jobs = app.enqueue_many([work.call(number) for number in range(12)])
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    process = subprocess.Popen([sys.executable, program, database.url], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process:
        try:
            called = {int(process.stdout.readline()) for _ in range(2)}
            # Those that wait go back after a moment: it is killed before, or has none by then.
            os.kill(process.pid, signal.SIGKILL)
        finally:
            process.kill()
    assert len(list(folder.iterdir())) == 1
    with app.worker(name="heir"):
        until(lambda: [worker.name for worker in app.workers()] == ["heir"])
        for number, job in enumerate(jobs):
            if number in called:
                until(lambda: outcomes(app, job.id)[:1] == ["lost"])  # noqa: B023
                if job.refresh().state is State.SCHEDULED:
                    app.run_now(job.id)
            assert job.result(LIMIT) == number
    assert list(folder.iterdir()) == []
    for number, job in enumerate(jobs):
        assert outcomes(app, job.id) == ["lost"] * (number in called) + ["completed"]
