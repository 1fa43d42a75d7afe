"""guides/with/transactions.md runs: one example per framework; what it says is what is there."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg

from tests import servers
from tests.docs.blocks import ROOT, program_of, run

PAGE = ROOT / "docs" / "guides" / "with" / "transactions.md"
URL = "postgresql://shop@db.example.com/shop"


def test_E1_the_page_on_transactions_runs(tmp_path: Path) -> None:
    with servers.server(servers.servers()[-1]).database() as url:
        printed = run(program_of(PAGE, {URL: url}), tmp_path)
        with psycopg.connect(url) as connection:
            items = connection.execute("SELECT item FROM orders ORDER BY id").fetchall()
    assert printed == "0 orders of gold, 5 receipts, 3 shipments\n"
    assert items == [("rope",), ("rope",), ("anchor",)]
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        items = connection.execute("SELECT item FROM orders ORDER BY id").fetchall()
    assert items == [("rope",), ("rope",), ("anchor",), ("anchor",), ("sail",)]
