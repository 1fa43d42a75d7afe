"""Q4: every commit to the file wakes those who watch it, without a server, whoever made it.

That a commit was not missed is shown by what can be seen when a ring comes, not by when it comes.
Where inotify is used the look that is taken anyway is put far away: it would hide what was missed.
"""

from __future__ import annotations

import gc
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.database import SqliteDatabase
from tests.kit import new
from tests.speed import by_speed
from tests.sqlite.processes import OtherProcess, engine_of, run
from tests.wakes.rings import Rings
from tests.wakes.writer import STORED, writer
from towline import Towline
from towline.sqlite import watch as watches
from towline.sqlite.watch import SqliteWatch

COMMITS = by_speed(10, 25)
GATED, POLLED = "inotify", "polling"


@pytest.fixture(params=[GATED, POLLED])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The two ways to know when to look."""
    if request.param == POLLED:

        def refuse() -> None:
            raise OSError("no more of them")

        monkeypatch.setattr(watches, "Inotify", refuse)
    else:
        first, factor, _ = watches.GATED
        monkeypatch.setattr(watches, "GATED", (first, factor, 3600.0))
    return str(request.param)


@pytest.fixture
def url(database: Path) -> str:
    return SqliteDatabase(database).url


@pytest.fixture
def app(url: str, make_app: Callable[..., Towline]) -> Towline:
    return make_app(url)


@contextmanager
def watching(app: Towline) -> Iterator[Rings]:
    """Rings that see what is stored; the first has come."""
    with closing(sqlite3.connect(engine_of(app).path, check_same_thread=False)) as eye:

        def look() -> int:
            ((stored,),) = eye.execute(STORED).fetchall()
            return int(stored)

        rings = Rings(look)
        watch = SqliteWatch(engine_of(app))
        watch.start(rings)
        try:
            assert rings.take() == [None]
            yield rings
        finally:
            watch.stop()


@pytest.fixture
def other(url: str) -> Iterator[OtherProcess]:
    with writer(url) as other:
        yield other


WAYS = [
    "insert FULL", "insert NORMAL", "enqueue FULL", "enqueue NORMAL", "caller", "large FULL",
    "large NORMAL",
]  # fmt: skip


@pytest.mark.parametrize("order", by_speed(WAYS[1::2], WAYS))
def test_Q4_every_commit_of_another_process_rings(
    app: Towline, other: OtherProcess, how: str, order: str
) -> None:
    """Plain SQL, our API, our API in the caller's transaction; at synchronous FULL and NORMAL."""
    with watching(app) as rings:
        for number in range(1, COMMITS + 1):
            assert other.do(order) == "done"
            rings.wait_until_seen(number)


@pytest.mark.parametrize("level", ["FULL", "NORMAL"])
def test_Q4_the_last_of_many_commits_is_never_missed(
    app: Towline, other: OtherProcess, how: str, level: str
) -> None:
    """Rings of commits that follow each other closely may be one, which comes after the last."""
    each = 20 if level == "FULL" else 150
    with watching(app) as rings:
        for number in range(1, 11):
            assert other.do(f"many {each} {level}") == "done"
            rings.wait_until_seen(number * each)


def test_Q4_several_writers_at_the_same_moment(app: Towline, url: str, how: str) -> None:
    """While one commit syncs, another is written: each is looked for long enough."""
    with watching(app) as rings, writer(url) as one, writer(url) as two:
        for number in range(1, 11):
            for each in (one, two):
                assert each.process.stdin
                each.process.stdin.write("many 5 FULL\n")
                each.process.stdin.flush()
            assert (one.hear(), two.hear()) == ("done", "done")
            rings.wait_until_seen(number * 10)


def test_Q4_commits_of_this_process_ring_too(app: Towline, how: str) -> None:
    with watching(app) as rings:
        for number in range(1, 6):
            app.runner.run(app.runner.store.enqueue([new()]))
            rings.wait_until_seen(number)


def test_Q4_a_log_that_begins_anew_is_still_watched(
    app: Towline, other: OtherProcess, how: str
) -> None:
    with watching(app) as rings:
        for number in range(1, 6):
            other.do("insert")
            rings.wait_until_seen(number)
            other.do("truncate")


def test_S3_what_is_no_commit_does_not_ring(
    app: Towline, other: OtherProcess, how: str, database: Path
) -> None:
    """A transaction that is taken back after it was written to the log; files beside it."""
    with watching(app) as rings:
        for number in range(1, 6):
            other.do("undone")
            (database.parent / "neighbour").write_text("many words\n" * number)
            other.do("insert")
            rings.wait_until_seen(number)
            assert rings.take() == [None]


@pytest.mark.parametrize("fate", ["deleted", "replaced"])
def test_Q4_a_file_that_is_no_longer_ours_rings_and_is_heard_again_when_it_is_back(
    app: Towline, database: Path, fate: str
) -> None:
    """Whoever looks after that ring gets the typed error. Finding A15: the watch was deaf then."""
    rings = Rings()
    watch = SqliteWatch(engine_of(app))
    watch.start(rings)
    assert rings.take() == [None]
    away = database.with_name("away.db")
    os.link(database, away)
    if fate == "replaced":
        aside = database.with_name("another.db")
        aside.write_bytes(b"")
        aside.replace(database)
    else:
        database.unlink()
    assert rings.take() == [None]
    away.replace(database)
    assert rings.take() == [None]
    app.runner.run(app.runner.store.enqueue([new()]))
    assert rings.take() == [None]
    watch.stop()
    assert threads() == []


def test_Q4_stop_leaves_nothing_behind(app: Towline, how: str, database: Path) -> None:
    engine_of(app).prepare()
    engine_of(app).close()
    before = descriptors()
    watch = SqliteWatch(engine_of(app))
    for _ in range(3):
        rings = Rings()
        watch.start(rings)
        rings.take()
        watch.stop()
        watch.stop()
    assert threads() == []
    assert descriptors() == before


def threads() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == "towline watch"]


def descriptors() -> int:
    gc.collect()  # what other tests have left would be closed in between
    return len(os.listdir("/dev/fd"))


FORKED = """
import threading
from towline.sqlite.watch import SqliteWatch

app = open_app()
app.migrate()
rung = threading.Event()
watch = SqliteWatch(app.runner.engine)
watch.start(lambda queues: rung.set())
assert rung.wait(30)

def files():
    names = [os.path.realpath(f"/dev/fd/{n}") for n in os.listdir("/dev/fd")]
    return [name for name in names if name.startswith(sys.argv[1]) and ".lock" not in name]

for number in range(20):
    pid = os.fork()
    if pid == 0:
        watch.stop()
        print(files(), flush=True)
        heard = threading.Event()
        watch.start(lambda queues: heard.set())
        assert heard.wait(30)
        watch.stop()
        os._exit(0)
    assert os.waitpid(pid, 0) == (pid, 0)
    rung.clear()
    app.add.enqueue(number)
    assert rung.wait(30)
watch.stop()
"""


def test_Q5_a_forked_child_has_none_of_it_and_the_parent_goes_on(database: Path) -> None:
    assert run(FORKED, database).splitlines() == ["[]"] * 20


ENDS = """
from towline.sqlite.watch import SqliteWatch

app = open_app()
app.migrate()
SqliteWatch(app.runner.engine).start(lambda queues: None)
"""


def test_Q4_a_process_ends_while_it_watches(database: Path) -> None:
    assert run(ENDS, database) == ""
