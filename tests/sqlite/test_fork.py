"""Q5: after fork a parent's connection is never used by the child, and its app works there.

Findings A1, A8, B2, S2: an app that exists before a fork, used or not, opens connections of its own
in the child; a fork while other threads use the app neither crashes nor shuts anybody out.
"""

from __future__ import annotations

from pathlib import Path

from tests.kit import rows
from tests.sqlite.processes import run

# Scripts run in an interpreter of their own: a test's process has threads.
FORKED = """
from towline.errors import ForkedConnection

def refused(call):
    try:
        call()
    except ForkedConnection as error:
        say("refused", error)
    else:
        say("done")

def in_child(work):
    '''Fork, work in the child, wait for its end.'''
    pid = os.fork()
    if pid == 0:
        work()
        sys.stdout.flush()
        os._exit(0)  # what it inherited is not its own to close
    assert os.waitpid(pid, 0) == (pid, 0)
"""

USES = """
app = open_app()
job = app.add.enqueue(1)
app.counts()
def child():
    say(app.add.enqueue(2).id, app.job(job.id).id, job.refresh().id, app.migrate())
in_child(child)
say(app.add.enqueue(3).id, len(app.jobs()))
"""

IN_TRANSACTION = """
app = open_app()
app.migrate()
def child():
    refused(lambda: app.add.enqueue(2))
    refused(lambda: app.counts())
    refused(lambda: open_app().add.enqueue(2))
def steps():
    yield from app.runner.store.enqueue([app.add.call(1).new_job(())])
    in_child(child)
app.runner.run(Op("forking", steps))
say(app.add.enqueue(3).id, len(app.jobs()))
"""

CLOSES = """
app = open_app()
app.add.enqueue(1)
app.counts()
def child():
    app.close()
    say("closed")
in_child(child)
say(app.add.enqueue(2).id, len(app.jobs()))
"""

OPENS = """
app = open_app()
app.add.enqueue(1)
def child():
    own = open_app()
    say("child", own.add.enqueue(2).id, len(own.jobs()))
    own.close()
in_child(child)
say(app.add.enqueue(3).id, len(app.jobs()))
"""

OUTLIVES = """
app = open_app()
app.add.enqueue(1)
opened, closed = os.pipe(), os.pipe()
pid = os.fork()
if pid == 0:
    own = open_app()
    own.add.enqueue(2)
    os.write(opened[1], b".")
    os.read(closed[0], 1)
    for number in range(3, 8):
        own.add.enqueue(number)
    say("child", len(own.jobs()))
    own.close()
    os._exit(0)
os.read(opened[0], 1)
app.close()
os.write(closed[1], b".")
assert os.waitpid(pid, 0) == (pid, 0)
"""

BEFORE_USE = """
app = open_app()
def child():
    say(app.add.enqueue(2).id)
in_child(child)
app.close()
in_child(child)
say(app.add.enqueue(1).id)
"""

IN_HANDLER = """
app = open_app()
app.migrate()
def child():
    refused(lambda: app.add.enqueue(2))
with app.runner.engine.transaction() as connection:
    connection.execute("CREATE TABLE mine (id)")
    in_child(child)
    connection.execute("INSERT INTO mine VALUES (1)")
in_child(lambda: refused(lambda: app.add.enqueue(3)))
say(app.add.enqueue(3).id, len(app.jobs()))
"""

# Children that use the app at the same time, as workers of gunicorn --preload do.
MANY = """
import multiprocessing, concurrent.futures, asyncio
fork = multiprocessing.get_context("fork")
app = open_app()
app.add.enqueue(0)
app.counts()
def use(number):
    job = app.add.enqueue(number)
    assert asyncio.run(app.ajob(job.id)).id == job.id
    return job.refresh().id
def work():
    worker = app.worker(drain=True, concurrency=2)
    worker.run()
with fork.Pool(4) as pool:
    ids = pool.map(use, range(40), chunksize=1)
    ids += [use(number) for number in range(5)]
with concurrent.futures.ProcessPoolExecutor(2, mp_context=fork) as pool:
    ids += pool.map(use, range(20))
processes = [fork.Process(target=use, args=(number,)) for number in range(4)]
processes.append(fork.Process(target=work))
for process in processes:
    process.start()
ids += [use(number) for number in range(5)]
for process in processes:
    process.join()
    assert process.exitcode == 0, process.exitcode
in_child(work)
assert len(set(ids)) == 70
((state, number),) = app.counts()["default"].items()
say(state, number)
"""

# Threads that read, write and wait while one forks: without the lock of each connection this ended
# in a segmentation fault within 20 forks.
STORM = """
import threading
app = open_app()
first = app.add.enqueue(0)
stop = threading.Event()
problems, done = [], []
def repeat(work):
    try:
        while not stop.is_set():
            work()
            done.append(1)
    except BaseException as error:
        problems.append(repr(error))
def wait():
    try:
        first.result(timeout=0.01)
    except TimeoutError:
        pass
works = [lambda: app.job(first.id), app.counts, lambda: app.add.enqueue(1), wait]
threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in works]
for thread in threads:
    thread.start()
codes = []
for number in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        try:
            app.add.enqueue(2)
            app.counts()
        except BaseException as error:
            say("child", repr(error))
            os._exit(1)
        os._exit(0)
    codes.append(os.waitpid(pid, 0)[1])
    time.sleep(0.002)
stop.set()
for thread in threads:
    thread.join(30)
    assert not thread.is_alive()
assert problems == [], problems
assert done
say(sorted(set(codes)))
"""


def stored(database: Path) -> list[tuple[int]]:
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]
    return rows(database, "SELECT id FROM towline_job ORDER BY id")


def test_Q5_an_app_that_was_used_before_the_fork_works_in_the_child(database: Path) -> None:
    answers = run(FORKED + USES, database).splitlines()
    assert answers == ["2 1 1 []", "3 3"]
    assert stored(database) == [(1,), (2,), (3,)]


def test_Q5_a_fork_in_the_middle_of_a_transaction_harms_nothing(database: Path) -> None:
    *refused, parent = run(FORKED + IN_TRANSACTION, database).splitlines()
    assert len(refused) == 3
    for answer in refused:
        assert "forked while" in answer
        assert "spawn" in answer
    assert parent == "2 2"
    assert stored(database) == [(1,), (2,)]


def test_Q5_a_fork_in_the_middle_of_a_handlers_transaction_harms_nothing(database: Path) -> None:
    in_use, done, parent = run(FORKED + IN_HANDLER, database).splitlines()
    assert "forked while" in in_use
    assert done == "done"
    assert parent == "2 2"
    assert rows(database, "SELECT id FROM mine") == [(1,)]
    assert stored(database) == [(1,), (2,)]


def test_Q5_children_of_every_kind_use_the_app_at_the_same_time(database: Path) -> None:
    assert run(FORKED + MANY, database) == "completed 75"
    assert len(stored(database)) == 75


def test_Q5_a_fork_while_other_threads_use_the_app_harms_nobody(database: Path) -> None:
    """Finding A1. `python -m tests.faults.forks` does it for as long as one likes."""
    assert run(FORKED + STORM, database, 40) == "[0]"
    assert len(stored(database)) > 40


def test_Q5_a_child_that_closes_its_parents_app_closes_nothing(database: Path) -> None:
    assert run(FORKED + CLOSES, database).splitlines() == ["closed", "2 2"]
    assert stored(database) == [(1,), (2,)]


def test_Q5_an_app_of_its_own_works_in_the_child(database: Path) -> None:
    assert run(FORKED + OPENS, database).splitlines() == ["child 2 2", "3 3"]
    assert stored(database) == [(1,), (2,), (3,)]


def test_Q5_an_app_of_its_own_works_in_the_child_when_the_parent_closes_first(
    database: Path,
) -> None:
    """SQLite's memory of the parent's locks goes through the fork: the child believes that it
    holds the file, takes no lock of its own, and the parent's last close removes the log."""
    assert run(FORKED + OUTLIVES, database) == "child 7"
    assert stored(database) == [(number,) for number in range(1, 8)]


def test_Q5_an_app_that_was_not_used_or_was_closed_works_in_the_child(database: Path) -> None:
    assert run(FORKED + BEFORE_USE, database).splitlines() == ["1", "2", "3"]
    assert stored(database) == [(1,), (2,), (3,)]
