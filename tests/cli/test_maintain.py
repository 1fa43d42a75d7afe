"""migrate, sql, prune, vacuum."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.shop import APP, Shop
from towline import Towline


@pytest.fixture
def empty(shop: Shop) -> Shop:
    """A shop whose database does not exist yet."""
    shop.url = f"sqlite:///{shop.folder}/new.db"
    return shop


def test_migrate_creates_the_tables(empty: Shop) -> None:
    """M2: it says what was applied."""
    found = empty.data("migrate", "--url", empty.url)
    assert found["applied"][0].startswith("0001")
    assert empty.data("migrate", APP) == {"applied": []}
    assert empty.text("migrate", APP) == "up to date\n"
    empty.url = f"sqlite:///{empty.folder}/other.db"
    assert empty.text("migrate", APP).startswith("applied 0001")


def test_looking_creates_nothing(empty: Shop) -> None:
    """A path that was mistyped must not become a database; exit code 4."""
    for words in (("jobs",), ("stats",), ("job", "1"), ("pause", "mail"), ("prune",)):
        line = empty.refused(words[0], APP, *words[1:], code=4)
        assert "towline migrate" in line
    assert not Path(f"{empty.folder}/new.db").exists()


def test_sql_can_be_run_by_other_tools(empty: Shop) -> None:
    """M6"""
    text = empty.text("sql", "--url", empty.url)
    with closing(sqlite3.connect(empty.folder / "new.db")) as connection:
        connection.executescript(text)
    app = Towline(empty.url, migrate=False)
    assert app.counts() == {}
    app.close()
    found = empty.data("sql", APP)
    assert (found["sql"], found["migrations"][0][:4]) == (text, "0001")
    newest = found["migrations"][-1]
    assert empty.data("sql", APP, "--after", newest)["migrations"] == []
    assert newest in empty.refused("sql", APP, "--after", "9999-none", code=2)


def test_prune(shop: Shop) -> None:
    """R4: with the times of the app."""
    job = shop.put("add", a=1, b=1)
    shop.app.complete(job, 2)
    shop.put("add", a=1, b=1)  # the newest row stays, so that its id is not given out again
    assert shop.text("prune", APP) == "0 chains deleted\n"
    source = (shop.folder / "shop.py").read_text()
    kept = source.replace('["SHOP_URL"])', '["SHOP_URL"], keep_completed=0)')
    assert kept != source
    (shop.folder / "shop.py").write_text(kept)
    assert shop.data("prune", APP) == {"chains": 1}


@pytest.mark.each_engine
def test_R4_who_prunes_leaves_a_line(any_shop: Shop) -> None:
    """With the number and what was chosen, in the transaction that deletes; a preview leaves none,
    nor does what finds nothing."""
    shop = any_shop
    for _ in range(3):
        shop.app.complete(shop.put("add", a=1, b=1), 2)
    shop.put("add", a=1, b=1)
    words = ("prune", APP, "--older-than", "0", "--state", "completed")
    assert shop.data(*words, "--preview")["chains"] == 3
    assert shop.text("prune", APP) == "0 chains deleted\n"
    assert list(shop.app.audit()) == []
    assert shop.data(*words) == {"chains": 3}
    (line,) = shop.app.audit()
    assert (line.action, line.number, line.job_id) == ("prune", 3, None)
    assert line.chosen == {"state": ["completed"], "older_than": 0.0}
    assert "@" in line.by


def test_R4_prune_with_and_without_a_name(any_shop: Shop) -> None:
    """By the times of the app too; the twin does the same; who gives no name leaves no line."""
    app = Towline(any_shop.url, keep_completed=0, keep_failed=None)
    for by in (None, "ann", "bob"):
        app.complete(any_shop.put("add", a=1, b=1), 2)
        any_shop.put("add", a=1, b=1)
        if by == "bob":
            assert asyncio.run(app.aprune(older_than=0, by=by)) == 1
        else:
            assert app.prune(by=by) == 1
    told = [(line.by, line.number, line.chosen) for line in app.audit()]
    assert told == [
        ("bob", 1, {"state": ["completed", "failed", "cancelled"], "older_than": 0.0}),
        ("ann", 1, {"state": ["completed", "cancelled"]}),
    ]
    app.close()


def test_vacuum(any_shop: Shop) -> None:
    """R6"""
    assert any_shop.data("vacuum", APP) == {"pages": 0}
    assert "vacuum" in any_shop.text("vacuum", APP) or "given back" in any_shop.text("vacuum", APP)
