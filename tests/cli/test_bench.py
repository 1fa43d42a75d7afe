"""`towline bench`: its figures, what it proves, and that nothing of it is left behind.

No time and no rate is asserted: they are the machine's.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests import database as databases
from tests.cli.shop import APP, Shop
from tests.until import until
from towline.cli.bench.limits import (
    CPU,
    DISK,
    SERVER,
    Alone,
    Handlers,
    crowded,
    limits_of,
    many,
    span,
)
from towline.cli.bench.measure import Figure, Proof

SHORT = ("--seconds", "0.5")
LONG = ("--seconds", "60")
EITHER = {"cpu", "sync", "enqueue", "enqueue_not_durable", "enqueue_threads", "bulk", "drain"}


def rows(shop: Shop, text: str) -> list[tuple[Any, ...]]:
    """What plain SQL finds, past the library."""
    connection = databases.connect(shop.url)
    try:
        cursor = connection.execute(text)
        found = cursor.fetchall() if cursor.description else []
        connection.commit()
        return list(found)
    finally:
        connection.close()


def relations(shop: Shop) -> set[str]:
    """Every table, view and sequence there is."""
    if shop.url.startswith("sqlite"):
        text = "SELECT name FROM sqlite_master"
    else:
        text = "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace"
    return {name for (name,) in rows(shop, text)}


def of_bench(shop: Shop) -> set[str]:
    return {name for name in relations(shop) if name.startswith("towline_bench_")}


# ---- what it says


@pytest.mark.each_engine
def test_bench_measures_proves_and_leaves_nothing(any_shop: Shop) -> None:
    shop = any_shop
    job, before = shop.put("add", a=1, b=1), relations(shop)
    stored = rows(shop, "SELECT * FROM towline_job"), rows(shop, "SELECT * FROM towline_live")
    done = shop.run("bench", APP, *SHORT, "--json")
    assert done.stderr == ""
    found = json.loads(done.stdout, parse_constant=pytest.fail)

    sqlite = shop.url.startswith("sqlite")
    facts = found["facts"]
    assert facts["engine"] == ("sqlite" if sqlite else "postgres")
    assert facts["version"][0].isdigit()
    assert facts["durable"] is True
    assert {"towline", "python", "system", "cpus", "database", "threads", "slots"} <= set(facts)

    figures = found["figures"]
    assert set(figures) == EITHER | {"start"} | (set() if sqlite else {"round_trip"})
    for name, figure in figures.items():
        numbers = [figure[key] for key in ("count", "seconds", "rate", "each")]
        assert all(number > 0 for number in numbers), (name, figure)
        assert figure["cpu"] >= 0
        if name in ("cpu", "sync", "round_trip"):
            assert figure["limit"] is None
        else:
            assert figure["limit"]["kind"] in (CPU, DISK, SERVER)
    assert 0 < figures["start"]["p50"] <= figures["start"]["p99"]

    proof = found["proof"]
    assert found["ok"] is True
    assert proof["enqueued"] == proof["stored"] > proof["handed"]
    assert proof["handed"] == proof["ran"] == proof["completed"] == proof["attempts"]

    assert relations(shop) == before
    assert stored == (rows(shop, "SELECT * FROM towline_job"),
                      rows(shop, "SELECT * FROM towline_live"))  # fmt: skip
    assert shop.state(job) == "pending"
    assert not [path for path in os.listdir(shop.folder) if "bench" in path]


def test_people_see_a_table_and_the_proof(any_shop: Shop) -> None:
    shop = any_shop
    done = shop.run("bench", "--url", shop.url, *SHORT)
    assert done.stderr == ""  # the bar is for a terminal
    lines = done.stdout.splitlines()
    (header,) = [line for line in lines if line.startswith("what")]
    assert header.split("  ")[-1] == "limited by"
    for what in ("enqueue, 1 thread", "enqueue, 8 threads", "drain, one worker", "enqueue → start"):
        assert [line for line in lines if line.startswith(what)], what
    assert "ran exactly once" in done.stdout
    assert of_bench(shop) == set()


def test_handlers_of_the_application_are_told_of(shop: Shop) -> None:
    shop.put("add", a=1, b=1)
    shop.run("worker", APP, "--drain")
    found = shop.data("bench", APP, *SHORT)
    assert found["handlers"]["count"] == 1
    assert found["handlers"]["mean"] > 0


def test_an_app_without_durability_is_measured_as_it_is(shop: Shop) -> None:
    text = "import os, towline\napp = towline.Towline(os.environ['SHOP_URL'], durable=False)\n"
    (shop.folder / "loose.py").write_text(text)
    found = shop.data("bench", "loose:app", *SHORT)
    assert found["facts"]["durable"] is False
    assert set(found["figures"]) == EITHER - {"enqueue_not_durable"} | {"start"}
    assert found["ok"]


def test_its_tables_are_in_the_schema_of_the_app(tmp_path: Path) -> None:
    with databases.opened(databases.newest(), tmp_path) as database:
        shop = Shop(tmp_path, database.url)
        there = ("--url", shop.url, "--schema", "other")
        shop.run("migrate", *there)
        rows(shop, "CREATE TABLE public.towline_bench_job (mine integer)")  # in nobody's way
        assert shop.data("bench", *there, *SHORT)["ok"]
        left = rows(shop, "SELECT relnamespace::regnamespace::text FROM pg_class "
                    "WHERE relname LIKE 'towline_bench_%'")  # fmt: skip
        assert left == [("public",)]
        shop.close()


def test_on_a_terminal_stderr_has_a_bar_and_stdout_data_only(shop: Shop) -> None:
    master, slave = os.openpty()
    seen = bytearray()

    def read() -> None:
        try:
            while part := os.read(master, 4096):
                seen.extend(part)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        words = [sys.executable, "-W", "error", "-m", "towline", "bench", APP, *SHORT, "--json"]
        done = subprocess.run(
            words, cwd=shop.folder, env={**shop.environment(), "TERM": "xterm"}, timeout=60,
            check=True, stdout=subprocess.PIPE, stderr=slave,
        )  # fmt: skip
    finally:
        os.close(slave)
        reader.join()
        os.close(master)
    assert json.loads(done.stdout)["ok"]
    assert b"enqueue, 1 thread" in seen
    assert b"s left" in seen


def test_a_file_that_can_be_shortened_is_as_long_as_before(shop: Shop) -> None:
    (before,) = rows(shop, "PRAGMA page_count")
    shop.run("bench", APP, *SHORT, "--json")
    (after,) = rows(shop, "PRAGMA page_count")
    assert after <= (before[0] + 2,)  # pages that point to others


# ---- what it refuses


def test_a_file_that_is_not_there_is_not_made(shop: Shop) -> None:
    said = shop.refused("bench", "--url", "sqlite:///nowhere.db", *SHORT, code=4)
    assert "there is no database" in said
    assert not (shop.folder / "nowhere.db").exists()


@pytest.mark.each_engine
def test_tables_of_somebody_else_are_left_alone(any_shop: Shop) -> None:
    rows(any_shop, "CREATE TABLE towline_bench_job (mine integer)")
    rows(any_shop, "INSERT INTO towline_bench_job VALUES (7)")
    said = any_shop.refused("bench", APP, *SHORT, code=2)
    assert "towline_bench_job" in said
    assert rows(any_shop, "SELECT mine FROM towline_bench_job") == [(7,)]
    assert of_bench(any_shop) == {"towline_bench_job"}


def test_another_name_that_begins_alike_is_no_hindrance(any_shop: Shop) -> None:
    rows(any_shop, "CREATE TABLE towline_bench_results (mine integer)")
    any_shop.run("bench", APP, *SHORT)
    assert of_bench(any_shop) == {"towline_bench_results"}


def test_seconds_are_a_number(shop: Shop) -> None:
    for wrong in ("nan", "-1", "soon", "1e9"):
        shop.refused("bench", APP, f"--seconds={wrong}", code=2)


# ---- when it is ended


@pytest.mark.each_engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_drops_its_tables(any_shop: Shop, number: signal.Signals) -> None:
    before = relations(any_shop)
    running = any_shop.start("bench", APP, *LONG)
    until(lambda: len(of_bench(any_shop)) > 10, "its tables")
    until(lambda: rows(any_shop, "SELECT 1 FROM towline_bench_job LIMIT 1"), "its first job")
    said = any_shop.refused("bench", APP, *SHORT, code=2)
    assert f"process {running.process.pid} " in said
    running.signal(number)
    assert running.ends() == 128 + number
    assert "Traceback" not in running.log
    assert relations(any_shop) == before


def test_what_a_killed_one_left_the_next_one_drops(any_shop: Shop) -> None:
    before = relations(any_shop)
    running = any_shop.start("bench", APP, *LONG)
    until(lambda: len(of_bench(any_shop)) > 10, "its tables")
    running.signal(signal.SIGKILL)
    running.ends()
    assert of_bench(any_shop)
    any_shop.run("bench", APP, *SHORT)
    assert relations(any_shop) == before


# ---- what limits


def figure(each: float, cpu: float) -> Figure:
    """A thousand operations of so many seconds, each with so much CPU."""
    return Figure(count=1000, seconds=1000 * each, cpu=1000 * cpu)


def test_where_the_time_of_one_goes() -> None:
    file, server = Alone(0.4e-3, None), Alone(0.4e-3, figure(0.1e-3, 0.0))
    assert file.limit(figure(0.1e-3, 0.09e-3)).kind == CPU
    assert file.limit(figure(0.5e-3, 0.05e-3)).text == "the disk: a sync takes 400 µs of 500 µs"
    assert "other processes" in file.limit(figure(5e-3, 0.05e-3)).text
    assert server.limit(figure(0.6e-3, 0.05e-3)).kind == DISK
    assert server.limit(figure(3e-3, 0.05e-3)).kind == SERVER
    assert Alone(0.0, None).limit(figure(0.1e-3, 0.02e-3)).kind == DISK


def test_where_the_time_of_many_goes() -> None:
    sync = figure(1e-3, 0.0)
    assert crowded(figure(0.1e-3, 0.09e-3), sync, is_file=True).kind == CPU
    assert crowded(figure(0.2e-3, 0.02e-3), sync, is_file=True).text.startswith("the disk: 5.0 of")
    assert crowded(figure(2e-3, 0.02e-3), sync, is_file=True).kind == DISK
    assert crowded(figure(0.2e-3, 0.02e-3), sync, is_file=False).kind == SERVER
    assert many(figure(1e-5, 9e-6), is_file=True).kind == CPU
    assert many(figure(1e-5, 1e-6), is_file=True).kind == DISK
    assert many(figure(1e-5, 1e-6), is_file=False).kind == SERVER


def test_without_durability_no_sync_is_blamed() -> None:
    names = EITHER - {"enqueue_not_durable"} | {"start"}
    found = limits_of({name: figure(1e-3, 0.9e-3) for name in names}, is_file=True, durable=False)
    assert {limit.kind for limit in found.values()} == {CPU}


def test_times_are_short_to_read() -> None:
    shown = [span(seconds) for seconds in (54e-9, 32.54e-6, 0.8212e-3, 1.5, 75.0)]
    assert shown == ["54 ns", "32.5 µs", "821 µs", "1.5 s", "75 s"]


def test_a_job_that_ran_twice_is_no_proof() -> None:
    once = {"enqueued": 9, "stored": 9, "handed": 5, "ran": 5, "completed": 5, "attempts": 5}
    assert Proof(**once).holds
    for name in once:
        assert not Proof(**{**once, name: once[name] + 1}).holds
    assert Handlers(10, 0.5).rate == 16
