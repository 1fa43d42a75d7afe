"""One job's life runs through few files, and they are those that ARCHITECTURE.md says."""

from __future__ import annotations

from pathlib import Path

from tests.shape.source import ROOT
from tests.shape.walks import enqueue_walk, worker_walk

MOST = {"enqueue": 12, "worker": 20}


def test_an_enqueue_runs_through_few_files(tmp_path: Path) -> None:
    found = enqueue_walk(f"sqlite:///{tmp_path}/walk.db")
    assert len(found) <= MOST["enqueue"], found
    assert {"task/__init__.py", "app/batches.py", "runner.py", "sqlite/store.py"} <= set(found)


def test_a_job_in_a_worker_runs_through_few_files(tmp_path: Path) -> None:
    # Where the machine stands still for a moment, other duties become due: what every walk has.
    found = set(worker_walk(f"sqlite:///{tmp_path}/walk.db"))
    for number in range(30):
        if len(found) <= MOST["worker"]:
            break
        found &= set(worker_walk(f"sqlite:///{tmp_path}/walk{number}.db"))
    assert len(found) <= MOST["worker"], sorted(found)
    assert {"worker/pump.py", "worker/turns.py", "worker/attempt.py", "store/turn.py"} <= found


def test_the_files_of_the_journey_exist() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    journey = text[text.index("## One job's journey") : text.index("## Tables")]
    for name in ("runner.py", "store/enqueue.py", "worker/pump.py", "store/finish.py"):
        assert name in journey
        assert (ROOT / "towline" / name).exists()
