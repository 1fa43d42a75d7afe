"""Bars of long work: at a terminal, on stderr; never in a pipe."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.shop import APP, Shop
from tests.cli.terminal import Terminal
from tests.kit import new

MANY = 1000


@pytest.fixture
def many(shop: Shop) -> Shop:
    shop.app.runner.run(shop.app.runner.store.enqueue([new("add")] * MANY))
    return shop


def at_a_terminal(shop: Shop, out: Path, *words: str) -> str:
    """What the terminal shows while stdout goes to a file."""
    with out.open("w") as file, Terminal(shop, *words, stdout=file.fileno()) as terminal:
        assert terminal.ends() == 0
        return terminal.shown


def test_bulk_work_has_a_bar(many: Shop, tmp_path: Path) -> None:
    """With how many of how many, a rate and the time left; the answer alone is on stdout."""
    out = tmp_path / "out"
    for words, bar in (
        (("cancel", APP, "--all", "--json"), "cancelling"),
        (("retry", APP, "--state", "cancelled", "--json"), "retrying"),
        (("delete", APP, "--state", "open", "--yes", "--json"), "deleting"),
    ):
        shown = at_a_terminal(many, out, *words)
        assert bar in shown
        assert f"/{MANY}" in shown
        assert "/s" in shown
        assert json.loads(out.read_text()) == {"number": MANY, "preview": False}


def test_prune_and_migrate_have_one(many: Shop, tmp_path: Path) -> None:
    """Without a total, which is not known."""
    out = tmp_path / "out"
    many.app.cancel_many(everything=True)
    source = (many.folder / "shop.py").read_text()
    kept = source.replace('["SHOP_URL"])', '["SHOP_URL"], keep_cancelled=0)')
    (many.folder / "shop.py").write_text(kept)
    shown = at_a_terminal(many, out, "prune", APP)
    assert "deleting" in shown
    assert out.read_text() in (f"{MANY} chains deleted\n", f"{MANY - 1} chains deleted\n")
    assert "migrating" in at_a_terminal(many, out, "migrate", APP)
    assert out.read_text() == "up to date\n"


def test_in_a_pipe_there_is_none(many: Shop) -> None:
    for words in (
        ("cancel", APP, "--all"),
        ("retry", APP, "--all", "--preview"),
        ("delete", APP, "--all", "--yes"),
        ("prune", APP),
        ("migrate", APP),
    ):
        assert many.run(*words).stderr == ""
