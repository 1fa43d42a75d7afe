"""Q1 and Q6 in short: many processes on one file, some of them killed; nothing is lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import rows
from tests.sqlite.conftest import CONNECT, Trace
from tests.sqlite.processes import Held, run, together
from tests.until import until
from towline import Towline

# Half of them only enqueue, half of them are workers without handlers. For three seconds, and on a
# disk that stalls until enough has been done.
STORM = """
import contextlib

def few():
    with contextlib.closing(sqlite3.connect(sys.argv[1], timeout=60)) as eye:
        return (eye.execute("SELECT sum(ended) FROM towline_rollup").fetchone()[0] or 0) <= 100

def work(number):
    from towline.model import Outcome
    from towline.records import Ending
    end = time.monotonic() + 3
    app = open_app()
    stored, ran, name = [], [], f"w{number}"
    worker = app.runner.run(app.runner.store.register(
        name, host="h", pid=os.getpid(), birth=None, version="0", queues=["default"],
        concurrency=8, lease=60_000_000))
    endings = []
    going = True
    while going or endings:
        if number % 2:
            stored.append(app.add.enqueue(len(stored)).id)
            if len(stored) % 10 == 0:
                app.counts(), app.jobs(limit=5)
            going = time.monotonic() < end or len(stored) < 40
        else:
            going = time.monotonic() < end or few()
            room = 8 if going else 0
            turn = app.runner.run(app.runner.store.turn(worker, name, ["default"], room, endings))
            ran += turn.finished.accepted
            assert not turn.finished.refused
            endings = [Ending(held, Outcome.COMPLETED, output="1") for held in turn.claimed]
    app.close()
    out = sys.argv[1] + f".answer{number}"
    with open(out, "w") as file:
        json.dump([stored, ran], file)
    return "fine"
"""

# Open, use, close, again and again: the last to close has the file for itself for a moment.
COMING_AND_GOING = """
def work(number):
    end = time.monotonic() + 2
    times = 0
    while time.monotonic() < end or times < 3:
        app = open_app(migrate=number % 2 == 0)
        if number % 4:
            app.add.enqueue(1)
        else:
            app.counts()
        app.close()
        times += 1
    return times if number % 4 else 0
"""

# Writers are killed at any moment; what they had said is stored must be there.
KILLS = """
import random, signal
def write(number):
    app = open_app()
    while True:
        job = app.add.enqueue(1)
        os.write(1, f"{job.id}\\n".encode())
def start(number):
    pid = os.fork()
    if pid == 0:
        write(number)
    return pid
choose = random.Random(7)
pids = [start(number) for number in range(3)]
for _ in range(20):
    time.sleep(choose.uniform(0.01, 0.1))
    place = choose.randrange(3)
    os.kill(pids[place], signal.SIGKILL)
    os.waitpid(pids[place], 0)
    pids[place] = start(place)
for pid in pids:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
"""


def sound(database: Path) -> None:
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]


def test_Q1_a_storm_of_eight_processes_loses_nothing_and_raises_nothing(database: Path) -> None:
    run("open_app().migrate()", database)
    assert together(8, STORM, database) == ["fine"] * 8
    stored: list[int] = []
    ran: list[int] = []
    for number in range(8):
        ids, done = json.loads(Path(f"{database}.answer{number}").read_text())
        stored += ids
        ran += done
    assert sorted(stored) == list(range(1, len(stored) + 1))
    assert [id for id, times in Counter(ran).items() if times > 1] == []
    completed = rows(database, "SELECT id FROM towline_jobs WHERE state = 'completed'")
    assert sorted(id for (id,) in completed) == sorted(ran)
    assert rows(database, "SELECT count(*) FROM towline_job") == [(len(stored),)]
    assert rows(database, "SELECT count(*) FROM towline_live") == [(len(stored) - len(ran),)]
    assert rows(database, "SELECT sum(ended) FROM towline_rollup") == [(len(ran),)]
    assert rows(database, "SELECT count(*) FROM towline_live WHERE state = 3") == [(0,)]
    assert len(stored) > 100
    assert len(ran) > 100
    sound(database)


def test_Q1_processes_that_come_and_go_never_find_the_database_locked(database: Path) -> None:
    run("open_app().migrate()", database)
    times = together(6, COMING_AND_GOING, database)
    assert all(isinstance(each, int) for each in times), times
    assert rows(database, "SELECT count(*) FROM towline_job") == [(sum(times),)]
    sound(database)


@pytest.mark.parametrize("action", ["migrate", "check_schema"])
def test_Q1_a_file_that_somebody_has_alone_for_a_moment_is_waited_for(
    trace: Trace, make_app: Callable[..., Towline], database: Path, action: str
) -> None:
    """As whoever closes the last connection has, to put the log away."""
    engine = make_app().runner.engine
    engine.prepare()
    engine.migrate()
    engine.close()
    engine.prepare()
    alone = CONNECT(database, isolation_level=None)
    alone.execute("PRAGMA locking_mode = EXCLUSIVE")
    alone.execute("BEGIN IMMEDIATE")
    opened = len(trace.connections)
    call = Held(getattr(engine, action))
    until(lambda: len(trace.connections) > opened)
    alone.close()
    assert not call.result()


def test_Q6_killed_writers_lose_nothing_they_had_acknowledged(database: Path) -> None:
    run("open_app().migrate()", database)
    said = [int(line) for line in run(KILLS, database).splitlines()]
    assert said
    stored = [id for (id,) in rows(database, "SELECT id FROM towline_job ORDER BY id")]
    assert stored == list(range(1, len(stored) + 1))
    assert len(set(said)) == len(said)
    assert set(said) <= set(stored)
    # Each kill can hide at most one answer.
    assert len(stored) - len(said) <= 23
    sound(database)
