"""Where an app's database is: said once, meant for ever, and shown without its password.

Findings A9 (a changed directory), B4, P15, W5, S8 (passwords, and what is said of unknown URLs).
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from towline import Towline
from towline.errors import InvalidSetting
from towline.secret import masked

SECRET = "S3CR%ET"

# ---- a change of directory (A9)


@pytest.mark.parametrize("folder", ["plain", "a %41 b", "q?x#y", "ümläut"])
def test_a_relative_url_is_meant_from_where_the_app_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    here, elsewhere = tmp_path / folder, tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()
    monkeypatch.chdir(here)
    app = Towline("sqlite:///rel.db")
    os.chdir(elsewhere)
    app.migrate()
    url = app.url
    app.close()
    again = Towline(url)
    assert again.counts() == {}
    again.close()
    assert (here / "rel.db").exists()
    assert list(elsewhere.iterdir()) == []
    assert (again.url, repr(again)) == (url, repr(app))


def test_so_is_one_from_the_environment_and_one_to_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOWLINE_URL", "sqlite:///env.db")
    app = Towline()
    assert app.url == f"sqlite:///{tmp_path}/env.db"
    assert repr(app) == f"<Towline sqlite:///{tmp_path}/env.db>"
    app.use("sqlite:///../other.db")
    assert app.url == f"sqlite:///{tmp_path}/../other.db"
    app.use(f"sqlite:///{tmp_path}/absolute.db")
    assert app.url == f"sqlite:///{tmp_path}/absolute.db"


# ---- no password is shown (B4, P15)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://ann:pw@h:1/db?x=1", "postgresql://ann:***@h:1/db?x=1"),
        ("postgresql://ann@h/db", "postgresql://ann@h/db"),
        ("postgresql:///db", "postgresql:///db"),
        ("postgresql://ann:p/w@x?y#z@h/db", "postgresql://ann:***@h/db"),
        ("postgresql://ann@corp:pw@h/db", "postgresql://ann@corp:***@h/db"),
        ("postgresql://h/db?user=a&password=pw&x=1", "postgresql://h/db?user=a&password=***&x=1"),
        ("postgresql://h/db?sslpassword=pw", "postgresql://h/db?sslpassword=***"),
        ("postgresql+asyncpg://ann:pw@h/db", "postgresql+asyncpg://ann:***@h/db"),
        ("postgresql:ann:pw@h/db", "postgresql:***@h/db"),
        ("host=h password=pw user=a", "host=h password=*** user=a"),
        ("host=h PASSWORD = 'p\\' w' user=a", "host=h PASSWORD = *** user=a"),
        ("password=p\\ w&x user=a", "password=*** user=a"),
        ("redis://:pw@h/0", "redis://:***@h/0"),
        ("redis://ann:pw/0", "redis://ann:***/0"),
        ("postgresql://h:1,[::1]:2/db", "postgresql://h:1,[::1]:2/db"),
        ("postgresql://[::1]:2/db", "postgresql://[::1]:2/db"),
        ("sqlite:////srv/a:b@c.db", "sqlite:////srv/a:b@c.db"),
    ],
)
def test_an_address_is_shown_without_its_password(address: str, shown: str) -> None:
    assert masked(address) == shown


@pytest.mark.parametrize(
    "make",
    [
        lambda: Towline(f"postgresql+asyncpg://ann:{SECRET}@127.0.0.1/x"),
        lambda: Towline(f"POSTGRESQL://ann:{SECRET}@127.0.0.1/x"),
        lambda: Towline(f"postgresql:ann:{SECRET}@127.0.0.1/x"),
        lambda: Towline(f"host=127.0.0.1 password={SECRET}"),
        lambda: Towline(f"mysql://ann:{SECRET}@127.0.0.1/x"),
        lambda: Towline(f"sqlite://ann:{SECRET}@127.0.0.1/x"),
        lambda: Towline(f"postgresql://ann:{SECRET}@127.0.0.1/x"),
        lambda: Towline(f"postgresql://ann:x{SECRET}@/[::1/x?password={SECRET}"),
        lambda: Towline("postgresql://ann@h/x", wake=f"amqp://ann:{SECRET}@127.0.0.1"),
        lambda: Towline("postgresql://ann@h/x", wake=f"redis://ann:{SECRET}/0"),
    ],
)
def test_a_refused_address_is_not_told_with_its_password(make: Callable[[], Any]) -> None:
    with pytest.raises(InvalidSetting) as refused:
        make()
    told = "".join(traceback.format_exception_only(refused.value))
    assert SECRET not in told
    assert "S3C" not in told


def test_an_app_is_printed_without_its_password() -> None:
    app = Towline("postgresql://shop:s3cret@127.0.0.1:1/shop")
    assert repr(app) == "<Towline postgresql://shop:***@127.0.0.1:1/shop>"
    assert "s3cret" in app.url


# ---- what is said of a URL nobody knows (W5, S8)


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "psycopg2"])
def test_a_url_of_sqlalchemy_is_answered_with_ours(driver: str) -> None:
    with pytest.raises(InvalidSetting, match=rf"without \+{driver}: use postgresql://.*sqlite:///"):
        Towline(f"postgresql+{driver}://u@h/x")


@pytest.mark.parametrize("url", ["mysql://x", "shop.db", "sqlite:shop.db", "postgresql:x"])
def test_the_answer_names_both_engines(url: str) -> None:
    with pytest.raises(InvalidSetting, match=r"use postgresql://user@host/database, sqlite:///"):
        Towline(url)


def test_a_path_is_no_url() -> None:
    with pytest.raises(InvalidSetting, match="a URL is text, not PosixPath"):
        Towline(Path("shop.db"))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


# ---- what belongs to another engine


@pytest.mark.parametrize(
    "settings", [{"schema": "jobs"}, {"pooler": True}, {"listen": "postgresql://h/x"}]
)
def test_what_only_postgres_has_is_refused_for_a_file(url: str, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match=f"{next(iter(settings))}= belongs to PostgreSQL"):
        Towline(url, **settings)


def test_but_not_when_a_test_points_the_app_at_a_file(url: str) -> None:
    app = Towline("postgresql://h/x", schema="jobs", pooler=True)
    app.use(url)
    assert app.counts() == {}
    app.close()


# ---- another database, another channel


def test_an_app_that_is_pointed_elsewhere_tells_those_who_listen_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The channel on a shared server is named after the database."""

    opened: list[tuple[str, Told]] = []

    class Told:
        def __init__(self) -> None:
            self.queues: list[set[str]] = []
            self.stopped = False

        def tell(self, queues: set[str]) -> None:
            self.queues.append(queues)

        def stop(self) -> None:
            self.stopped = True

    def open_wake(url: str, channel: str) -> Told:
        opened.append((channel, told := Told()))
        return told

    monkeypatch.setattr("towline.app.open_wake", open_wake)
    app = Towline(f"sqlite:///{tmp_path}/one.db", wake="redis://h")

    @app.task
    def add() -> None: ...

    app.use(f"sqlite:///{tmp_path}/two.db")
    add.enqueue()
    app.close()
    (first, old), (second, new) = opened
    assert (first, second) == ("towline.public.towline_one.db", "towline.public.towline_two.db")
    assert (old.queues, old.stopped) == ([], True)
    assert new.queues == [{"default"}]
