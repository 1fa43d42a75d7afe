"""The tables of `towline bench`: made beside the application's under another prefix, told apart
from those of somebody else by a row that names their owner, and dropped at the end.

A bench that was killed leaves its tables behind. The next one drops them, once it is certain that
their process is gone.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from signal import SIG_DFL, SIG_IGN, SIGINT, getsignal, signal
from types import FrameType
from typing import Any

from ...app import Towline
from ...operation import Op, Query, Scalar, Statement, Steps
from ...sql import SEQUENCES, SERVER_TABLES, TABLES, VIEWS
from ...times import MICRO
from ...worker import STOP_SIGNALS
from ...worker.identity import identity_of, is_gone
from ..ending import CommandError

PREFIX = "towline_bench_"
OWNER = f"{PREFIX}owner"
NAMES = [OWNER, *(PREFIX + name for name in TABLES + SERVER_TABLES + VIEWS + SEQUENCES)]
FORGOTTEN = 2 * 3600  # seconds; no bench takes as long
PAGES = 1000  # given back at a time, so that other writers get in between


def beside(app: Towline) -> Towline:
    """An app on the same database with the same settings, and tables of its own."""
    engine = app.settings.engine
    server = engine.server
    return Towline(
        engine.url, prefix=PREFIX, schema=server.schema, lock_timeout=engine.lock_timeout,
        durable=engine.durable, notify=server.notify, connections=server.connections,
        pooler=server.pooler, listen=server.listen, migrate=False,
    )  # fmt: skip


@contextmanager
def tables(app: Towline) -> Iterator[None]:
    """Have the tables of the bench for a while; whatever happens, they are dropped.

    SIGTERM and SIGHUP end it in order, as Ctrl-C does. While it tidies up, no signal ends it.
    """
    free = _free_pages(app)
    others = [n for n in STOP_SIGNALS if n != SIGINT and getsignal(n) is SIG_DFL]  # nohup
    before: dict[int, Any] = {number: signal(number, _leave) for number in others}
    refused = False
    try:
        try:
            app.runner.engine.run(Op("claim_tables", _claim, app))
        except Exception:
            refused = True
            raise
        app.migrate()
        yield
    finally:
        before[SIGINT] = signal(SIGINT, SIG_IGN)
        for number in others:
            signal(number, SIG_IGN)
        try:
            if not refused and _is_mine(app):
                app.runner.engine.run(Op("drop_tables", _drop, app))
                _give_back(app, free)
        finally:
            for one, handler in before.items():
                signal(one, handler)


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def table(app: Towline, name: str) -> str:
    """A name as it stands in SQL: with its schema, where there are any."""
    schema = app.runner.engine.migrations.schema
    return f'"{schema}".{name}' if schema else name


def statement(name: str, text: str, **params: Scalar) -> Statement:
    return Query(name, text)(**params)


def _claim(app: Towline) -> Steps[None]:
    """Say whose the tables are; refuse when they are somebody else's."""
    store, migrations = app.runner.store, app.runner.engine.migrations
    if migrations.schema:
        yield migrations.hold(store.sql)
    now = yield from store.now()
    there = {str(name) for name, _ in (yield store.sql.find_relations(names=json.dumps(NAMES)))}
    if there:
        if OWNER not in there:
            raise CommandError(
                f"the database has {min(there)}, which is not of a bench: its tables would "
                f"begin with {PREFIX}, so rename or drop yours first"
            )
        rows = yield statement(
            "owner", f"SELECT host, pid, birth, made_at FROM {table(app, OWNER)}"
        )
        for host, pid, birth, made_at in rows:
            assert isinstance(pid, int)
            assert isinstance(made_at, int)
            gone = is_gone(pid, None if birth is None else str(birth))
            if not gone and now - made_at < FORGOTTEN * MICRO:
                raise CommandError(
                    f"another bench runs on this database: process {pid} on {host!s}. If it does "
                    f"not, drop {OWNER} and what else begins with {PREFIX}"
                )
        yield from _drop(app)
    yield statement(
        "create_owner",
        f"CREATE TABLE {table(app, OWNER)} (host text, pid bigint, birth text, made_at bigint, "
        "beats bigint)",
    )
    pid = os.getpid()
    yield statement(
        "own", f"INSERT INTO {table(app, OWNER)} VALUES (:host, :pid, :birth, :now, 0)",
        host=socket.gethostname(), pid=pid, birth=identity_of(pid), now=now,
    )  # fmt: skip


def _is_mine(app: Towline) -> bool:
    """Whether the claim was stored: it may have been interrupted before."""

    def steps() -> Steps[bool]:
        if not (yield app.runner.store.sql.find_relations(names=json.dumps([OWNER]))):
            return False
        rows = yield statement("owner", f"SELECT pid, birth FROM {table(app, OWNER)}")
        return rows == [(os.getpid(), identity_of(os.getpid()))]

    return app.runner.engine.run(Op("look", steps, reads=True))


def _drop(app: Towline) -> Steps[None]:
    """Drop what a bench makes, nothing else, and nothing before what depends on it."""
    found = yield app.runner.store.sql.find_relations(names=json.dumps(NAMES))
    for kind in ("view", "table", "sequence"):
        for name in (str(name) for name, what in found if what == kind):
            yield statement("drop", f"DROP {kind} IF EXISTS {table(app, name)}")


def _free_pages(app: Towline) -> int:
    """SQLite: how many pages of the file were free before."""

    def steps() -> Steps[int]:
        ((pages,),) = yield app.runner.store.sql.describe_database()
        assert isinstance(pages, int)
        return pages

    if app.runner.engine.name != "sqlite":
        return 0
    return app.runner.engine.run(Op("free_pages", steps, reads=True))


def _give_back(app: Towline, free: int) -> None:
    """SQLite: let the file be as long as before, if it was made so that it can be."""
    if app.runner.engine.name == "sqlite":
        while (left := _free_pages(app) - free) > 0:
            if not app.runner.engine.vacuum(min(left, PAGES)):
                return
