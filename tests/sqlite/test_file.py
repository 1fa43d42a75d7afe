"""Q6 and Q11: the file under the database, where it lies and what becomes of it."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import package_for_all, rows
from tests.sqlite.conftest import add
from tests.sqlite.processes import Held, engine_of, run
from towline import Towline
from towline.errors import (
    DatabaseReplaced,
    DiskFull,
    InvalidSetting,
    SchemaMissing,
    StoreError,
    UnsafeFileSystem,
)
from towline.sqlite import file
from towline.sqlite.file import File, file_system, path_of
from towline.task import Task

# ---- Q6: deleted, replaced


def test_Q6_a_deleted_database_is_noticed_by_reading_and_writing(
    app: Towline, task: Task[[int], int], database: Path
) -> None:
    job = task.enqueue(1)
    database.unlink()
    with pytest.raises(DatabaseReplaced, match=r"app\.db was deleted while it was open"):
        task.enqueue(2)
    with pytest.raises(DatabaseReplaced, match="put the file back"):
        app.job(job.id)
    with pytest.raises(DatabaseReplaced, match="deleted"):
        app.vacuum()
    assert not database.exists()


def test_Q6_a_thread_that_never_read_before_makes_no_new_file_of_a_deleted_one(
    app: Towline, task: Task[[int], int], database: Path
) -> None:
    task.enqueue(1)
    database.unlink()
    with pytest.raises(DatabaseReplaced, match="deleted"):
        Held(app.counts).result()
    assert not database.exists()


def test_Q6_a_replaced_database_is_noticed_by_reading_and_writing(
    app: Towline, task: Task[[int], int], database: Path, tmp_path: Path
) -> None:
    task.enqueue(1)
    other = tmp_path / "restored.db"
    sqlite3.connect(other).close()
    os.replace(other, database)
    with pytest.raises(DatabaseReplaced, match=r"replaced by another file .* remove the -wal"):
        task.enqueue(2)
    with pytest.raises(DatabaseReplaced, match="Stop all processes"):
        app.counts()
    assert rows(database, "SELECT name FROM sqlite_master") == []


def test_Q6_a_file_that_is_replaced_while_it_is_being_opened_is_not_used(
    app: Towline, task: Task[[int], int], database: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Else its reader stays with it, and takes the log of the right one for its own."""
    job = task.enqueue(1)
    app.close()
    away, other = tmp_path / "away.db", tmp_path / "other.db"
    shutil.copyfile(database, other)
    rows(other, "DELETE FROM towline_job")
    task.enqueue(2)  # it is open again, and was seen to be the same
    before = other.read_bytes()
    connect = sqlite3.connect

    def too_late(*given: Any, **named: Any) -> sqlite3.Connection:
        monkeypatch.undo()
        database.rename(away)
        other.rename(database)
        opened: sqlite3.Connection = connect(*given, **named)
        return opened

    monkeypatch.setattr(sqlite3, "connect", too_late)
    with pytest.raises(DatabaseReplaced):
        app.vacuum()
    assert database.read_bytes() == before
    away.rename(database)
    assert app.job(job.id).state == "pending"
    app.close()
    assert rows(database, "SELECT count(*) FROM towline_job") == [(2,)]


def test_Q6_a_file_that_was_put_back_is_accepted_again(
    app: Towline, task: Task[[int], int], database: Path, tmp_path: Path
) -> None:
    task.enqueue(1)
    away = tmp_path / "away.db"
    database.rename(away)
    with pytest.raises(DatabaseReplaced):
        task.enqueue(2)
    away.rename(database)
    assert task.enqueue(3).id == 2


def test_Q6_after_close_a_new_file_at_the_path_is_a_new_database(
    app: Towline, task: Task[[int], int], database: Path
) -> None:
    task.enqueue(1)
    app.close()
    for path in database.parent.glob("app.db*"):
        path.unlink()
    assert task.enqueue(2).id == 1
    assert app.job(1).record.arguments == '{"number":2}'


@pytest.mark.parametrize("content", [b"not a database, by far" * 100, b"SQLite format 3\0" * 100])
def test_Q6_what_is_not_a_database_is_refused_and_left_alone(
    make_app: Callable[..., Towline], database: Path, content: bytes
) -> None:
    database.write_bytes(content)
    with pytest.raises(StoreError, match=r"app\.db is damaged or not a database"):
        make_app().counts()
    assert database.read_bytes() == content


# ---- Q6: full


def limit_pages(app: Towline, more: int) -> None:
    """Let the file grow by so many pages, as a disk with little space would."""
    connection = engine_of(app)._writer.connection
    assert connection is not None
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + more}").fetchone()


def test_Q6_a_full_disk_is_a_clear_error_and_work_goes_on_when_space_returns(
    make_app: Callable[..., Towline], database: Path
) -> None:
    app = make_app()

    @app.task
    def keep(text: str) -> None: ...

    first = keep.enqueue("small")
    limit_pages(app, 2)
    for _ in range(2):
        with pytest.raises(DiskFull, match=r"no space left for .*app\.db: nothing was stored") as e:
            keep.enqueue("x" * 50_000)
        assert e.value.retry_safe
    assert first.refresh().state == "pending"
    assert len(app.jobs()) == 1
    limit_pages(app, 10_000)
    assert keep.enqueue("x" * 50_000).id == 2
    assert rows(database, "PRAGMA integrity_check") == [("ok",)]


def test_Q6_a_batch_that_does_not_fit_is_not_stored_in_part(
    make_app: Callable[..., Towline],
) -> None:
    app = make_app()

    @app.task
    def keep(text: str) -> None: ...

    app.migrate()
    limit_pages(app, 20)
    with pytest.raises(DiskFull):
        app.enqueue_many([keep.call("x" * 3000) for _ in range(100)])
    assert len(app.jobs()) == 0
    assert len(app.enqueue_many([keep.call("x" * 3000) for _ in range(5)])) == 5


# ---- Q6: read-only

# Root may write everything: become nobody, after everything has been imported and used once. What
# the package reads later comes from a copy, since nobody may have no right to look into a checkout.
NOBODY = """
from towline.errors import TowlineError

def become_nobody():
    warm = Towline("sqlite:///" + sys.argv[2])
    warm.task(add).enqueue(1)
    warm.counts()
    warm.close()
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)

def attempt(call):
    try:
        answer = call()
    except TowlineError as error:
        say(type(error).__name__, error.retry_safe, error)
    else:
        say("fine", answer)

import towline

assert towline.__file__.startswith(os.getcwd()), "nobody reads the copy"
become_nobody()
app = open_app(migrate=len(sys.argv) < 4)
attempt(lambda: app.counts()["default"])
attempt(lambda: app.add.enqueue(2).id)
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder everybody may look into."""
    path = Path(tempfile.mkdtemp(prefix="towline-"))
    path.chmod(0o755)
    yield path
    path.chmod(0o755)
    shutil.rmtree(path)


@pytest.fixture
def stored(folder: Path) -> Path:
    """A database with one job, whose -wal is gone."""
    database = folder / "app.db"
    app = Towline(f"sqlite:///{database}")
    app.task(add).enqueue(1)
    app.close()
    database.chmod(0o444)
    for path in folder.glob("app.db?*"):
        path.unlink()
    return database


def as_nobody(database: Path, tmp_path: Path, *arguments: object) -> list[str]:
    with package_for_all() as copy:
        said = run(NOBODY, database, tmp_path / "warm.db", *arguments, root=copy)
    return said.splitlines()


def test_Q6_a_read_only_file_can_be_read_and_says_why_it_cannot_be_written(
    stored: Path, tmp_path: Path
) -> None:
    stored.parent.chmod(0o777)
    reading, writing = as_nobody(stored, tmp_path)
    assert reading == "fine {'pending': 1}"
    assert writing.startswith(f"ReadOnlyDatabase False {stored} cannot be written by user ")
    assert "the file, its -wal and -shm and their folder must be writable" in writing
    assert rows(stored, "SELECT count(*) FROM towline_job") == [(1,)]


def test_Q6_a_read_only_folder_says_so(stored: Path, tmp_path: Path) -> None:
    stored.chmod(0o666)
    stored.parent.chmod(0o555)
    for answer in as_nobody(stored, tmp_path):
        assert answer.startswith(f"ReadOnlyDatabase False {stored} cannot be written by user ")


def test_Q6_a_new_file_in_a_read_only_folder_says_so(folder: Path, tmp_path: Path) -> None:
    folder.chmod(0o555)
    for answer in as_nobody(folder / "app.db", tmp_path):
        assert answer.startswith("ReadOnlyDatabase False")
    assert list(folder.iterdir()) == []


def test_Q6_tables_that_cannot_be_made_in_a_read_only_file_say_so(
    folder: Path, tmp_path: Path
) -> None:
    database = folder / "app.db"
    connection = sqlite3.connect(database)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE mine (id)")
    connection.close()
    database.chmod(0o444)
    folder.chmod(0o777)
    for answer in as_nobody(database, tmp_path):
        assert answer.startswith("ReadOnlyDatabase False")


# ---- where it lies


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///app.db", "app.db"),
        ("sqlite:///data/app.db", "data/app.db"),
        ("sqlite:///../app.db", "../app.db"),
        ("sqlite:////var/lib/app.db", "/var/lib/app.db"),
        ("sqlite:////with%20blank/%25.db", "/with blank/%.db"),
        ("sqlite:////a%3Fb%23c.db", "/a?b#c.db"),
        ("sqlite:////gr%C3%B6%C3%9Fe.db", "/größe.db"),
        ("sqlite:////größe.db", "/größe.db"),
        ("sqlite:////a\nb.db", "/a\nb.db"),
        ("sqlite:////c:memory:", "/c:memory:"),
    ],
)
def test_a_url_names_a_path(url: str, path: str) -> None:
    assert path_of(url) == Path(path)


@pytest.mark.parametrize(
    "url",
    [
        "app.db",
        "/var/lib/app.db",
        "sqlite:app.db",
        "sqlite:/app.db",
        "sqlite://app.db",
        "sqlite://host/app.db",
        "sqlite:///app.db?mode=ro",
        "sqlite:///app.db#part",
        "file:app.db",
        "mysql:///app.db",
        "",
    ],
)
def test_a_url_that_names_no_path_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"use sqlite:///relative\.db or sqlite:////absolute"):
        path_of(url)


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///:memory:", "sqlite:///%3Amemory%3A"])
def test_there_is_no_database_in_memory(url: str) -> None:
    with pytest.raises(InvalidSetting, match="no in-memory mode"):
        Towline(url)


def test_a_path_with_a_null_character_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"U\+0000"):
        Towline("sqlite:///app%00.db")


def test_a_relative_path_stays_where_it_was_when_the_process_moves(
    make_app: Callable[..., Towline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    app = make_app("sqlite:///with%20blank.db")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    app.task(add).enqueue(1)
    assert rows(tmp_path / "with blank.db", "SELECT count(*) FROM towline_job") == [(1,)]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_missing_folder_is_named_and_not_made(
    make_app: Callable[..., Towline], tmp_path: Path
) -> None:
    app = make_app(f"sqlite:///{tmp_path}/missing/app.db")
    with pytest.raises(InvalidSetting, match=f"does not exist: {tmp_path}/missing"):
        app.counts()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "missing").mkdir()
    assert app.counts() == {}


def test_two_names_of_one_file_are_one_database(
    make_app: Callable[..., Towline], app: Towline, task: Task[[int], int], tmp_path: Path
) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "app.db")
    other = make_app(f"sqlite:///{tmp_path}/link.db")
    assert other.task(add).enqueue(1).id == 1
    assert task.enqueue(2).id == 2
    assert {path.name for path in tmp_path.glob("*.lock")} == {"app.db.lock"}


# ---- Q11: network file systems

MOUNTS = r"""
21 1 0:19 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 21 0:25 / /srv rw,relatime shared:7 master:2 - nfs4 server:/export rw,vers=4.2
31 30 0:26 / /srv/local rw - xfs /dev/sdb1 rw
32 21 0:27 / /media/my\040share rw - cifs //server/share rw
33 21 0:28 / /home/größe rw - fuse.sshfs host:/ rw
34 21 0:29 / /over rw - nfs server:/ rw
35 34 0:30 / /over rw - tmpfs tmpfs rw
36 21 0:31 / /back\134slash rw - 9p share rw
a line that says nothing
"""


@pytest.fixture
def mounts(tmp_path: Path) -> str:
    table = tmp_path / "mountinfo"
    # A name on a disk need not be UTF-8.
    table.write_bytes(MOUNTS.encode() + b"37 21 0:32 / /bad\xff rw - virtiofs share rw\n")
    return str(table)


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/app.db", "ext4"),
        ("/srv/app.db", "nfs4"),
        ("/srv/deep/er/app.db", "nfs4"),
        ("/srvx/app.db", "ext4"),
        ("/srv/local/app.db", "xfs"),
        ("/media/my share/app.db", "cifs"),
        ("/media/my/app.db", "ext4"),
        ("/home/größe/app.db", "fuse.sshfs"),
        ("/over/app.db", "tmpfs"),
        ("/back\\slash/app.db", "9p"),
        (os.fsdecode(b"/bad\xff/app.db"), "virtiofs"),
    ],
)
def test_Q11_the_file_system_of_a_path_is_the_deepest_and_last_mounted(
    mounts: str, path: str, kind: str
) -> None:
    assert file_system(Path(path), mounts) == kind


def test_Q11_a_system_that_does_not_tell_is_trusted(tmp_path: Path) -> None:
    assert file_system(tmp_path, str(tmp_path / "no such table")) is None


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "virtiofs"])
def test_Q11_a_network_file_system_is_refused_with_the_reason(
    make_app: Callable[..., Towline],
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    table = database.parent / "mountinfo"
    table.write_text(
        f"21 1 0:19 / / rw - ext4 d rw\n22 21 0:20 / {database.parent} rw - {kind} s rw"
    )
    monkeypatch.setattr(file, "file_system", lambda path: file_system(path, str(table)))
    app = make_app()
    with pytest.raises(UnsafeFileSystem, match=rf"lies on {kind}: .*local disk, or use PostgreSQL"):
        app.task(add).enqueue(1)
    assert not database.exists()


def test_Q11_a_link_is_judged_by_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / "far"
    far.mkdir()
    (tmp_path / "app.db").symlink_to(far / "app.db")
    table = tmp_path / "mountinfo"
    table.write_text(f"21 1 0:19 / / rw - ext4 d rw\n22 21 0:20 / {far} rw - nfs4 s rw\n")
    monkeypatch.setattr(file, "file_system", lambda path: file_system(path, str(table)))
    with pytest.raises(UnsafeFileSystem):
        File(tmp_path / "app.db").check_place()
    File(tmp_path / "other.db").check_place()


# ---- finding A26: files of others


def test_A26_reading_leaves_a_file_without_our_tables_as_it_is(
    make_app: Callable[..., Towline], database: Path
) -> None:
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE mine (id)")
    connection.close()
    before = database.read_bytes()
    app = make_app(migrate=False)
    with pytest.raises(SchemaMissing):
        app.counts()
    app.close()
    assert database.read_bytes() == before
    assert [path.name for path in database.parent.glob("app.db*")] == ["app.db"]


@pytest.mark.parametrize("content", [None, b""])
def test_A26_reading_makes_no_file_and_fills_no_empty_one(
    make_app: Callable[..., Towline], database: Path, content: bytes | None
) -> None:
    if content is not None:
        database.write_bytes(content)
    app = make_app(migrate=False)
    with pytest.raises(SchemaMissing):
        app.counts()
    app.close()
    assert [path.read_bytes() for path in database.parent.glob("app.db*")] == (
        [] if content is None else [content]
    )


def test_A26_the_first_write_puts_the_file_into_WAL_mode(
    make_app: Callable[..., Towline], database: Path
) -> None:
    connection = sqlite3.connect(database)
    connection.execute("CREATE TABLE mine (id)")
    connection.close()
    assert make_app().task(add).enqueue(1).id == 1
    assert rows(database, "PRAGMA journal_mode") == [("wal",)]
