"""Q2: a timeout says who holds the writer, and a holder that dies is no obstacle."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit import rows
from tests.sqlite.conftest import add
from tests.sqlite.processes import Held, OtherProcess, Pause, engine_of, start
from tests.until import until
from towline import Job, Towline
from towline.errors import StoreUnavailable, WriterBusy
from towline.task import Task

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

# An operation that stays in its transaction until it is told to go on.
LONG = """
app = open_app()
def steps():
    yield from app.runner.store.enqueue([app.add.call(7).new_job(())])
    say("holding")
    sys.stdin.readline()
app.runner.run(Op("import_catalogue", steps))
say("stored")
"""

FOREIGN = """
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
connection.execute("BEGIN IMMEDIATE")
say("holding")
sys.stdin.readline()
connection.execute("ROLLBACK")
say("gone")
"""


@pytest.fixture
def hasty(app: Towline, make_app: Callable[..., Towline]) -> Towline:
    """An app that does not wait long for the writer."""
    hasty = make_app(lock_timeout=0.05)
    hasty.task(add)
    hasty.migrate()
    return hasty


@pytest.fixture
def task(hasty: Towline) -> Task[[int], int]:
    task: Task[[int], int] = hasty.registry["add"]
    return task


@pytest.fixture
def towline(app: Towline, database: Path) -> Iterator[OtherProcess]:
    with start(LONG, database) as other:
        assert other.hear() == "holding"
        yield other


@pytest.fixture
def foreign(app: Towline, database: Path) -> Iterator[OtherProcess]:
    with start(FOREIGN, database) as other:
        assert other.hear() == "holding"
        yield other


def refusal(call: Callable[[], object]) -> str:
    with pytest.raises(WriterBusy) as caught:
        call()
    assert isinstance(caught.value, StoreUnavailable)
    assert caught.value.retry_safe
    return str(caught.value)


@linux
def test_Q2_another_towline_process_is_named_with_what_it_does_and_since_when(
    task: Task[[int], int], towline: OtherProcess, database: Path
) -> None:
    text = refusal(lambda: task.enqueue(1))
    assert text.startswith(f"enqueue waited 0.05 s for the writer of {database}: ")
    assert f"Towline in process {towline.pid} ({sys.executable}" in text
    assert "operation 'import_catalogue'" in text
    assert re.search(r" since \d\d:\d\d:\d\d \(", text)
    assert "lock_timeout" in text
    assert towline.do("") == "stored"
    assert task.enqueue(1).id == 2


@linux
def test_Q2_a_connection_outside_towline_is_named(
    task: Task[[int], int], foreign: OtherProcess
) -> None:
    text = refusal(lambda: task.enqueue(1))
    assert f"a connection outside Towline in process {foreign.pid} ({sys.executable}" in text
    assert "operation" not in text
    assert foreign.do("") == "gone"
    assert task.enqueue(1).id == 1


@linux
def test_Q2_an_open_transaction_of_this_very_process_is_told_to_pass_it(
    task: Task[[int], int], database: Path
) -> None:
    mine = sqlite3.connect(database)
    try:
        mine.execute("BEGIN IMMEDIATE")
        text = refusal(lambda: task.enqueue(1))
        assert f"this process ({os.getpid()})" in text
        assert "a connection outside Towline is writing in this very process" in text
        assert "pass on=connection" in text
        assert task.using(on=mine).enqueue(1).id == 1
        mine.commit()
    finally:
        mine.close()
    assert task.enqueue(2).id == 2


@linux
def test_Q2_the_awaiting_face_says_the_same(task: Task[[int], int], towline: OtherProcess) -> None:
    async def enqueue() -> None:
        await task.aenqueue(1)

    text = refusal(lambda: asyncio.run(enqueue()))
    assert f"Towline in process {towline.pid}" in text


def test_Q2_every_writing_call_says_it_and_reading_goes_on(
    hasty: Towline, task: Task[[int], int], app: Towline, database: Path
) -> None:
    job = task.enqueue(1)
    with start(FOREIGN, database) as foreign:
        assert foreign.hear() == "holding"
        writing_is_refused(hasty, job)
        assert job.refresh().state == "pending"
        assert foreign.do("") == "gone"
    hasty.pause("default")
    assert hasty.paused() == ["default"]


def writing_is_refused(hasty: Towline, job: Job[int]) -> None:
    for call in (
        lambda: hasty.pause("default"),
        hasty.prune,
        hasty.vacuum,
        hasty.migrate,
        job.cancel,
    ):
        assert "outside Towline" in refusal(call)


def test_Q2_a_killed_holder_frees_the_writer_at_once_and_stores_nothing(
    task: Task[[int], int], towline: OtherProcess, database: Path
) -> None:
    refusal(lambda: task.enqueue(1))
    towline.kill()
    assert task.enqueue(2).id == 1
    assert rows(database, "SELECT arguments FROM towline_job") == [('{"number":2}',)]
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]


def test_Q2_a_killed_connection_outside_towline_frees_the_writer_at_once(
    task: Task[[int], int], foreign: OtherProcess
) -> None:
    foreign.kill()
    assert task.enqueue(1).id == 1


def test_Q2_the_record_of_a_killed_holder_misleads_nobody(
    task: Task[[int], int], towline: OtherProcess, database: Path
) -> None:
    towline.kill()
    record = Path(f"{database}.lock").read_bytes()
    assert b"import_catalogue" in record
    with start(FOREIGN, database) as foreign:
        assert foreign.hear() == "holding"
        text = refusal(lambda: task.enqueue(1))
        assert "import_catalogue" not in text
        assert str(towline.pid) not in text
    assert task.enqueue(1).id == 1


def test_Q2_a_stale_or_damaged_lock_file_of_an_earlier_day_is_harmless(
    database: Path, make_app: Callable[..., Towline]
) -> None:
    Path(f"{database}.lock").write_bytes(b"towline" + b"\xff" * 500)
    app = make_app(lock_timeout=0.05)
    assert app.task(add).enqueue(1).id == 1


def test_Q2_waiting_goes_on_when_the_holder_ends_in_time(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    patient = make_app(lock_timeout=30)
    task = patient.task(add)
    patient.migrate()
    pause = Pause()
    slow = Held(lambda: app.runner.run(pause.op))
    assert pause.inside.wait(30)
    call = Held(lambda: task.enqueue(1))
    until(lambda: engine_of(patient)._writer._leader)
    pause.go.set()
    assert slow.result() == "went"
    assert call.result().id == 1
