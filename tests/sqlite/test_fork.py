"""Q5: after fork a parent's connection is never used by the child."""

from __future__ import annotations

from pathlib import Path

from tests.kit import rows
from tests.sqlite.crew import run

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
    refused(lambda: app.add.enqueue(2))
    refused(lambda: app.job(job.id))
    refused(job.refresh)
    refused(app.migrate)
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
    yield from app.store.enqueue([app.add.call(1).new_job(())])
    in_child(child)
app.run(compose("forking", steps))
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
    refused(lambda: app.add.enqueue(2))
in_child(child)
say(app.add.enqueue(1).id)
"""

REFUSED = "refused this app was opened before fork(); open one in the child"


def stored(database: Path) -> list[tuple[int]]:
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]
    return rows(database, "SELECT id FROM towline_job ORDER BY id")


def test_Q5_a_child_that_uses_its_parents_app_is_refused_and_harms_nothing(database: Path) -> None:
    answers = run(FORKED + USES, database).splitlines()
    assert answers == [REFUSED] * 4 + ["2 2"]
    assert stored(database) == [(1,), (2,)]


def test_Q5_a_fork_in_the_middle_of_a_transaction_harms_nothing(database: Path) -> None:
    *refused, in_use, parent = run(FORKED + IN_TRANSACTION, database).splitlines()
    assert refused == [REFUSED] * 2
    assert "forked while" in in_use
    assert "spawn" in in_use
    assert parent == "2 2"
    assert stored(database) == [(1,), (2,)]


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


def test_Q5_an_app_made_before_the_fork_is_refused_even_when_it_was_not_used_yet(
    database: Path,
) -> None:
    assert run(FORKED + BEFORE_USE, database).splitlines() == [REFUSED, "1"]
    assert stored(database) == [(1,)]
