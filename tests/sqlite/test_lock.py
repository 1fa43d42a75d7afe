"""The cross-process baton of SQLite writers. Q1, Q2, Q3, Q5, Q12.

The others are real processes that follow a script: each line they are sent is an order, each line
they print says that it has been carried out.
"""

from __future__ import annotations

import gc
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from tests.sqlite.turns import Turns, WriterBusy
from tests.until import until
from towline import Towline
from towline.sqlite.holder import Holder, describe
from towline.sqlite.line import HOLD
from towline.sqlite.lock import SAMPLE, open_baton

ROOT = Path(__file__).resolve().parents[2]
FAR = 30.0

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")

TOWLINE = """
import sqlite3, sys, time
from tests.sqlite.turns import Turns
lock = Turns(sys.argv[1])
connection = sqlite3.connect(sys.argv[2], isolation_level=None, timeout=0)
print("ready", flush=True)
for order in sys.stdin:
    match order.split():
        case ["acquire", operation]:
            lock.acquire(connection, time.monotonic() + 30, operation)
            print("holding", flush=True)
        case ["release"]:
            connection.execute("COMMIT")
            lock.release()
            print("released", flush=True)
        case ["count", file]:
            for _ in range(60):
                lock.acquire(connection, time.monotonic() + 30, "count")
                with open(file) as f:
                    number = int(f.read())
                with open(file, "w") as f:
                    f.write(str(number + 1))
                connection.execute("COMMIT")
                lock.release()
            print("counted", flush=True)
"""

FOREIGN = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
print("ready", flush=True)
for order in sys.stdin:
    connection.execute(order)
    print("done", flush=True)
"""

FORK = """
import os, sqlite3, sys, time
from tests.sqlite.turns import Turns, WriterBusy
def connect(path):
    return sqlite3.connect(path, isolation_level=None, timeout=0)
lock = Turns(sys.argv[1])
connection = connect(sys.argv[1])
lock.acquire(connection, time.monotonic() + 30, "parent")
done, told = os.pipe(), os.pipe()
if os.fork() == 0:
    # Another file: SQLite's own memory of the parent's transaction went through the fork.
    mine = connect(sys.argv[1] + ".child")
    lock.release()  # not the child's to release
    try:
        lock.acquire(mine, time.monotonic() + 0.05, "child")
    except WriterBusy as busy:
        holder = busy.holder
        print(holder.kind, holder.pid == os.getppid(), holder.operation, flush=True)
    os.write(told[1], b".")
    os.read(done[0], 1)
    lock.acquire(mine, time.monotonic() + 30, "child")
    print("child holds", lock.holder().pid == os.getpid(), flush=True)
    os._exit(0)
os.read(told[0], 1)
print("parent holds", lock.holder().pid == os.getpid(), flush=True)
connection.execute("COMMIT")
lock.release()
os.write(done[1], b".")
os.wait()
lock.acquire(connection, time.monotonic() + 30, "parent")
print("parent again", flush=True)
"""


NEWBORN = """
import fcntl, sys
from towline.sqlite.line import HOLD
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX, 1, HOLD)
print("ready", flush=True)
sys.stdin.read()
"""


class OtherProcess:
    """Another process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.pid = process.pid

    def send(self, order: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(order + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def do(self, order: str) -> str:
        self.send(order)
        return self.hear()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def start(script: str, *arguments: object) -> Iterator[OtherProcess]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        other = OtherProcess(process)
        try:
            yield other
        finally:
            process.kill()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "app.db"
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.close()
    return path


@pytest.fixture
def connection(database: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(database, isolation_level=None, timeout=0, check_same_thread=False)
    yield connection
    connection.close()


@pytest.fixture
def towline(database: Path) -> Iterator[OtherProcess]:
    with start(TOWLINE, database, database) as other:
        assert other.hear() == "ready"
        yield other


@pytest.fixture
def foreign(database: Path) -> Iterator[OtherProcess]:
    with start(FOREIGN, database) as other:
        assert other.hear() == "ready"
        yield other


def soon() -> float:
    return time.monotonic() + 0.05


def far() -> float:
    return time.monotonic() + FAR


def has_a_lock(other: OtherProcess, file: Path) -> bool:
    inode = file.stat().st_ino
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(line[4] == str(other.pid) and line[5].endswith(f":{inode}") for line in lines)


def lock_file(database: Path) -> Path:
    return Path(f"{database}.lock")


def test_q1_turns_of_several_processes_never_overlap(database: Path, tmp_path: Path) -> None:
    """Each process writes a database of its own, so that only the baton keeps them apart."""
    number = tmp_path / "number"
    number.write_text("0")
    with ExitStack() as stack:
        others = [
            stack.enter_context(start(TOWLINE, database, tmp_path / f"own{n}.db")) for n in range(3)
        ]
        for other in others:
            assert other.hear() == "ready"
        for other in others:
            other.send(f"count {number}")
        for other in others:
            assert other.hear() == "counted"
    assert number.read_text() == "180"


@linux
def test_q1_waiters_are_served_in_the_order_they_came(
    database: Path, connection: sqlite3.Connection
) -> None:
    lock = Turns(database)
    lock.acquire(connection, far())
    with ExitStack() as stack:
        others = [stack.enter_context(start(TOWLINE, database, database)) for _ in range(3)]
        for other in others:
            assert other.hear() == "ready"
        for other in others:
            other.send("acquire turn")
            until(partial(has_a_lock, other, lock_file(database)))
        connection.execute("COMMIT")
        lock.release()
        for other in others:
            assert other.hear() == "holding"
            # Whoever let go and asks again comes after those who were waiting.
            with pytest.raises(WriterBusy):
                lock.acquire(connection, soon())
            assert other.do("release") == "released"
    lock.acquire(connection, far())


def test_q1_the_first_turn_of_a_new_lock_file_is_not_taken_for_a_standstill(
    database: Path, connection: sqlite3.Connection
) -> None:
    """Its record is not written yet, and the database not taken yet."""
    with start(NEWBORN, lock_file(database)) as other:
        assert other.hear() == "ready"
        with pytest.raises(WriterBusy):
            Turns(database).acquire(connection, time.monotonic())


def test_q2_the_deadline_leaves_nothing_locked_and_nothing_open(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess
) -> None:
    lock = Turns(database)
    assert towline.do("acquire turn") == "holding"
    for _ in range(2):
        with pytest.raises(WriterBusy):
            lock.acquire(connection, soon(), "enqueue")
        assert not connection.in_transaction
    assert towline.do("release") == "released"
    assert towline.do("acquire turn") == "holding"
    assert towline.do("release") == "released"
    lock.acquire(connection, far(), "enqueue")
    assert connection.in_transaction


def test_q2_the_deadline_passes_while_a_foreign_writer_holds(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess, foreign: OtherProcess
) -> None:
    lock = Turns(database)
    foreign.do("BEGIN IMMEDIATE")
    with pytest.raises(WriterBusy):
        lock.acquire(connection, soon())
    assert not connection.in_transaction
    foreign.do("COMMIT")
    assert towline.do("acquire turn") == "holding"


def test_an_error_that_is_not_busy_reaches_the_caller_and_leaves_nothing_locked(
    database: Path, towline: OtherProcess
) -> None:
    lock = Turns(database)
    closed = sqlite3.connect(database, isolation_level=None, timeout=0)
    closed.close()
    with pytest.raises(sqlite3.ProgrammingError):
        lock.acquire(closed, far())
    assert towline.do("acquire turn") == "holding"


def test_q3_a_turn_is_an_immediate_transaction(
    database: Path, connection: sqlite3.Connection
) -> None:
    lock = Turns(database)
    lock.acquire(connection, far())
    assert connection.in_transaction
    other = sqlite3.connect(database, isolation_level=None, timeout=0)
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        other.execute("BEGIN IMMEDIATE")
    other.close()


def test_q2_a_killed_holder_releases_and_its_record_is_harmless(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess
) -> None:
    lock = Turns(database)
    assert towline.do("acquire turn") == "holding"
    assert lock.holder().pid == towline.pid
    towline.kill()
    assert lock.holder() == Holder("unknown")
    lock.acquire(connection, far(), "enqueue")
    assert lock.holder().operation == "enqueue"


def test_q2_a_killed_waiter_is_no_obstacle(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess, foreign: OtherProcess
) -> None:
    foreign.do("BEGIN IMMEDIATE")
    towline.send("acquire waiting")
    until(lambda: lock_file(database).exists() and b"waiting" in lock_file(database).read_bytes())
    towline.kill()
    foreign.do("COMMIT")
    Turns(database).acquire(connection, far())


def test_a_damaged_lock_file_is_harmless(database: Path, connection: sqlite3.Connection) -> None:
    lock_file(database).write_bytes(b"\xff" * 5000)
    lock = Turns(database)
    lock.acquire(connection, far(), "enqueue")
    assert lock.holder().operation == "enqueue"


def test_a_removed_lock_file_does_not_stop_anybody(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess
) -> None:
    lock = Turns(database)
    lock.acquire(connection, far())
    lock_file(database).unlink()
    connection.execute("COMMIT")
    lock.release()
    assert towline.do("acquire turn") == "holding"
    assert towline.do("release") == "released"
    lock.acquire(connection, far())


@linux
def test_q2_another_towline_process_is_named(database: Path, towline: OtherProcess) -> None:
    lock = Turns(database)
    before = time.time()
    assert towline.do("acquire turn") == "holding"
    holder = lock.holder()
    assert (holder.kind, holder.pid) == ("towline", towline.pid)
    assert (holder.phase, holder.operation) == ("writing", "turn")
    assert holder.since is not None
    assert before <= holder.since <= time.time()
    text = describe(holder)
    assert f"Towline in process {towline.pid}" in text
    assert "'turn'" in text
    assert "since" in text


@linux
def test_q2_a_connection_outside_towline_is_named(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess, foreign: OtherProcess
) -> None:
    lock = Turns(database)
    foreign.do("BEGIN IMMEDIATE")
    # Also when a Towline process has the baton and waits for the same writer.
    towline.send("acquire turn")
    until(lambda: lock_file(database).exists() and b"turn" in lock_file(database).read_bytes())
    with pytest.raises(WriterBusy, match="outside Towline") as caught:
        lock.acquire(connection, soon())
    holder = caught.value.holder
    assert (holder.kind, holder.pid, holder.operation) == ("foreign", foreign.pid, None)
    assert holder.command is not None
    assert holder.command.startswith(sys.executable)
    assert f"process {foreign.pid} ({sys.executable}" in describe(holder)
    foreign.do("ROLLBACK")
    assert towline.hear() == "holding"


@linux
def test_q2_this_very_process_is_named(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess
) -> None:
    lock = Turns(database)
    mine = sqlite3.connect(database)
    mine.execute("INSERT INTO t VALUES (1)")
    with pytest.raises(WriterBusy, match="pass on=connection") as caught:
        lock.acquire(connection, soon())
    assert (caught.value.holder.kind, caught.value.holder.pid) == ("self", os.getpid())
    assert caught.value.holder.operation is None
    mine.commit()
    mine.close()
    lock.acquire(connection, far(), "transaction")
    holder = lock.holder()
    assert (holder.kind, holder.pid, holder.operation) == ("self", os.getpid(), "transaction")
    assert "pass on=connection" in describe(holder)


def test_q2_an_unknown_holder_has_advice_too() -> None:
    assert "on=connection" in describe(Holder("unknown"))
    waiting = Holder("towline", 7, time.time(), "waiting for the database", "turn")
    assert "outside Towline" in describe(waiting)


@linux
def test_q2_a_stopped_process_is_named_and_passed(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess
) -> None:
    """Stopped while it waits for its turn, it keeps its place in the line but not the database."""
    lock = Turns(database)
    lock.acquire(connection, far())
    towline.send("acquire turn")
    until(lambda: has_a_lock(towline, lock_file(database)))
    os.kill(towline.pid, signal.SIGSTOP)
    until(lambda: is_stopped(towline))
    connection.execute("COMMIT")
    lock.release()
    holder = lock.holder()
    assert (holder.kind, holder.pid, holder.stopped) == ("towline", towline.pid, True)
    assert "stopped" in describe(holder)
    for _ in range(3):
        lock.acquire(connection, far(), "enqueue")
        connection.execute("COMMIT")
        lock.release()
    os.kill(towline.pid, signal.SIGCONT)
    assert towline.hear() == "holding"
    with pytest.raises(WriterBusy):
        lock.acquire(connection, soon())


def is_stopped(other: OtherProcess) -> bool:
    return Path(f"/proc/{other.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_q12_a_foreign_writer_is_waited_for(
    database: Path, towline: OtherProcess, foreign: OtherProcess
) -> None:
    foreign.do("BEGIN IMMEDIATE")
    towline.send("acquire patient")
    until(lambda: lock_file(database).exists() and b"patient" in lock_file(database).read_bytes())
    foreign.do("INSERT INTO t VALUES (1)")
    foreign.do("COMMIT")
    assert towline.hear() == "holding"


def test_q5_after_fork_the_child_has_a_baton_of_its_own(database: Path) -> None:
    with start(FORK, database) as other:
        assert other.hear() == "towline True parent"
        assert other.hear() == "parent holds True"
        assert other.hear() == "child holds True"
        assert other.hear() == "parent again"
        assert other.process.wait() == 0


def test_two_locks_of_one_process_take_turns(
    database: Path, connection: sqlite3.Connection, towline: OtherProcess
) -> None:
    first, second = Turns(database), Turns(str(database))
    other = sqlite3.connect(database, isolation_level=None, timeout=0)
    first.acquire(connection, far())
    with pytest.raises(WriterBusy, match="this process"):
        second.acquire(other, soon())
    second.close()
    del second
    # Closing one has not dropped the other's locks: nobody else gets in, by baton or otherwise.
    third = Turns(database)
    with pytest.raises(WriterBusy):
        third.acquire(other, soon())
    connection.execute("COMMIT")
    first.release()
    third.acquire(other, far())
    other.close()


def test_no_descriptor_is_left_open(database: Path, connection: sqlite3.Connection) -> None:
    def turn() -> None:
        lock = Turns(database)
        lock.acquire(connection, far())
        connection.execute("COMMIT")
        lock.release()
        lock.holder()

    gc.collect()  # what earlier tests left is not ours to count
    turn()
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        turn()
    assert len(os.listdir("/dev/fd")) == before


def test_the_lock_file_has_the_permissions_of_the_database(
    database: Path, connection: sqlite3.Connection
) -> None:
    database.chmod(0o664)
    before = os.umask(0o077)
    try:
        Turns(database).acquire(connection, far())
    finally:
        os.umask(before)
    assert stat.S_IMODE(lock_file(database).stat().st_mode) == 0o664


def test_without_a_lock_file_turns_are_taken_by_retrying(
    database: Path, connection: sqlite3.Connection, foreign: OtherProcess
) -> None:
    lock_file(database).mkdir()
    lock = Turns(database)
    foreign.do("BEGIN IMMEDIATE")
    with pytest.raises(WriterBusy):
        lock.acquire(connection, soon())
    foreign.do("COMMIT")
    lock.acquire(connection, far())
    connection.execute("COMMIT")
    lock.release()


def foreign_at(database: Path) -> float:
    """When a writer outside Towline was seen last, as the lock file says it."""
    return open_baton(str(lock_file(database)), str(database)).read(HOLD).foreign_at


def test_q12_who_closes_the_file_last_is_no_writer_outside_towline(tmp_path: Path) -> None:
    """It copies the log into the file and removes it: nobody else need be given room for that."""
    database = tmp_path / "app.db"

    def write(number: int) -> None:
        time.sleep(2 * SAMPLE)  # or the state of the log is not noted
        app.pause(f"queue{number}")

    for number in range(3):
        app = Towline(f"sqlite:///{database}")
        app.migrate()
        write(number)
        assert foreign_at(database) == 0.0
        app.close()
    app = Towline(f"sqlite:///{database}")
    write(3)
    with closing(sqlite3.connect(database)) as outside, outside:
        outside.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY)")
    write(4)
    assert foreign_at(database) > 0.0
    app.close()
