"""How close does enqueueing on PostgreSQL come to the bare COPY of the same rows?

Bulk: `app.enqueue_many` of N calls against a binary COPY of the very same rows into the same three
tables, in one transaction, on a database of the same schema, with psycopg's compiled writer. The
rows of the bare COPY, ids and all, are made beforehand; building the calls is shown apart.

Single: `task.enqueue` against a commit of one row in a plain table. Together: eight threads that
enqueue one by one, against one thread.

    python -m bench.postgres_enqueue             # about two minutes
    python -m bench.postgres_enqueue --quick     # fewer rounds
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import psycopg

from bench._server import add_option, quiet_server, run_sql, version
from bench.bulk_enqueue import TEXT, THREADS, Timer, alone_and_together, share
from tests.servers import Server
from towline import Towline
from towline.postgres.engine import PACKAGE
from towline.sql import Queries, Row
from towline.task import Call, Task

SQL = Queries(PACKAGE, "towline_", "public")
INSERTS = (SQL.insert_chains, SQL.insert_jobs, SQL.insert_live)
ARGUMENTS = f'{{"text":"{TEXT}"}}'


def open_app(url: str) -> tuple[Towline, Task[[str], None]]:
    app = Towline(url)

    @app.task
    def work(text: str) -> None:
        pass

    app.migrate()
    return app, work


class Bare:
    """The same rows by hand: no checks, no ids to ask for, no answer."""

    def __init__(self, url: str) -> None:
        open_app(url)[0].close()
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute("CREATE TABLE plain (id bigserial PRIMARY KEY, arguments text)")
        self.next_id = 1

    def rows(self, number: int) -> tuple[list[Row], list[Row], list[Row]]:
        now = time.time_ns() // 1000
        ids = range(self.next_id, self.next_id + number)
        self.next_id += number
        return (
            [(id, "work", now, None) for id in ids],
            [
                (id, id, 0, "work", None, "default", 0, 5, None, None, 0, 0, ARGUMENTS, None, now)
                for id in ids
            ],
            [(0, "default", 0, id, 0, 0, now) for id in ids],
        )

    def many(self, tables: Sequence[Sequence[Row]]) -> None:
        with self.connection.transaction(), self.connection.cursor() as cursor:
            for query, rows in zip(INSERTS, tables, strict=True):
                assert query.copy is not None
                table, columns, types = query.copy
                text = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT binary)"
                with cursor.copy(text.encode()) as copy:
                    copy.set_types(types)
                    for row in rows:
                        copy.write_row(row)

    def plain(self, number: int) -> None:
        for _ in range(number):
            self.connection.execute("INSERT INTO plain (arguments) VALUES (%s)", (ARGUMENTS,))


def bulk(server: Server, number: int, rounds: int) -> str:
    """One row of the first table; each round has its own transaction, databases grow alike."""
    ours, theirs = server.create(), server.create()
    app, work = open_app(ours)
    bare = Bare(theirs)
    calling, storing, copying = Timer(number), Timer(number), Timer(number)
    calls: list[Call[Any]] = []

    def call() -> None:
        calls[:] = [work.call(TEXT) for _ in range(number)]

    for _ in range(rounds):
        calling(call)
        storing(lambda: app.enqueue_many(calls))
        rows = bare.rows(number)
        copying(lambda rows=rows: bare.many(rows))  # type: ignore[misc]
    app.close()
    bare.connection.close()
    for url in (ours, theirs):
        server.drop(url)
    run_sql(server.url, b"CHECKPOINT")
    return f"| {number:,} | {copying} | {storing} | {share(copying, storing)} | {calling} |"


def single(server: Server, number: int, rounds: int) -> str:
    with server.database() as mine, server.database() as other:
        app, work = open_app(mine)
        bare = Bare(other)
        ours, one = Timer(number), Timer(number)

        def enqueue() -> None:
            for _ in range(number):
                work.enqueue(TEXT)

        for _ in range(rounds):
            ours(enqueue)
            one(lambda: bare.plain(number))
        app.close()
        bare.connection.close()
        return f"| {one} | {ours} | {share(one, ours)} |"


def together(server: Server, number: int, rounds: int) -> str:
    """The same number of single enqueues, by one thread and by eight."""
    with server.database() as url:
        app, work = open_app(url)
        row = alone_and_together(work, number, rounds)
        app.close()
        return row


def main() -> None:
    parser = argparse.ArgumentParser(description="Enqueueing against the bare COPY.")
    add_option(parser)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    quick = options.quick
    with quiet_server(options.server) as server:
        print(
            f"PostgreSQL {version(server.url)}. µs per job, wall best / median (client CPU best). "
            "A share is the part of the bare rate.\n"
        )

        def show(title: str, columns: str, rows: Sequence[Callable[[], str]]) -> None:
            print(f"{title}\n\n{columns}\n|" + "---|" * (columns.count("|") - 1))
            for row in rows:
                print(row(), flush=True)
            print()

        sizes = ((50_000, 3 if quick else 7), (1_000, 20 if quick else 60), (10, 200))
        show(
            "Bulk, target a share of 0.5 or more",
            "| calls | COPY | enqueue_many | share | building the calls |",
            [lambda n=n, r=r: bulk(server, n, r) for n, r in sizes],  # type: ignore[misc]
        )
        rounds = 4 if quick else 15
        show("Single", "| one row | enqueue | share |", [lambda: single(server, 200, rounds)])
        show(
            f"Together: {THREADS} threads; the gain is how many times as fast",
            "| one thread | eight threads | gain |",
            [lambda: together(server, 400, rounds)],
        )


if __name__ == "__main__":
    main()
