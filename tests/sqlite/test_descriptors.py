"""Findings A7 and A12: what becomes of a process that has few file descriptors, or none left."""

from __future__ import annotations

from pathlib import Path

from tests.kit import rows
from tests.sqlite.processes import run

LIMITED = """
import resource, threading
from towline.errors import StoreError

def limit(number):
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, most))

def opened():
    return len(os.listdir("/dev/fd"))
"""

PEAK = """
limit(200)
app = open_app()
job = app.add.enqueue(1)
problems = []
ready = threading.Barrier(300)
def read():
    ready.wait(30)
    try:
        app.job(job.id)
    except BaseException as error:
        problems.append(repr(error))
threads = [threading.Thread(target=read) for _ in range(300)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
say(problems[:1], app.job(job.id).id, opened() < 120)
app.close()
say(opened())
"""

NONE_LEFT = """
app = open_app()
app.add.enqueue(1)
app.counts()
app.close()
full = []
limit(60)
try:
    while True:
        full.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
def attempt(call):
    try:
        call()
    except StoreError as error:
        say(type(error).__name__, error.retry_safe, "ulimit -n" in str(error))
attempt(app.counts)
attempt(lambda: app.add.enqueue(2))
for descriptor in full:
    os.close(descriptor)
say(app.add.enqueue(3).id, len(app.jobs()))
"""

AFTER_COMMIT = """
import errno
from towline.sqlite.log import Log
def is_long(self):
    raise OSError(errno.EMFILE, "Too many open files", "app.db-wal")
Log.is_long = is_long
app = open_app()
say(app.add.enqueue(1).id, app.add.enqueue(2).id)
"""


def test_A7_a_peak_of_reading_threads_takes_few_descriptors(database: Path) -> None:
    """Before, each thread had a connection, and they were kept when the threads were gone."""
    answers = run(LIMITED + PEAK, database).splitlines()
    assert answers[0] == "[] 1 True"
    assert int(answers[1]) < 15


def test_A7_no_descriptor_left_is_said_and_is_over_when_there_are_some(database: Path) -> None:
    refused = "StoreUnavailable True True"
    assert run(LIMITED + NONE_LEFT, database).splitlines() == [refused, refused, "2 2"]


def test_A12_what_is_committed_is_acknowledged_though_the_log_cannot_be_looked_at(
    database: Path,
) -> None:
    assert run(AFTER_COMMIT, database) == "1 2"
    assert rows(database, "SELECT count(*) FROM towline_job") == [(2,)]
