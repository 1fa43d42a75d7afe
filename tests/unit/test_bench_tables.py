"""The pure part of the benchmarks: rounds, ratios, tables, plots, the page."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from bench.goals import judged
from bench.measure import Entry, fairness
from bench.plots import Bar, bars
from bench.record import Record, label
from bench.report import filled
from bench.rounds import interleaved, ratio
from bench.tables import base_of, grouped, tables


def made(system: str, rate: float, round: int, **more: object) -> Record:
    parameters = {"disk": "disk", "durable": True, **more}
    return Record(
        scenario="drain", engine="sqlite", system=system, parameters=parameters, round=round,
        count=1000, seconds=1000 / rate,
    )  # fmt: skip


def test_who_begins_changes_with_the_round() -> None:
    order = [(case, system) for _, case, system in interleaved([("a", "xy"), ("b", "x")], 2)]
    assert order == [("a", "x"), ("a", "y"), ("b", "x"), ("b", "x"), ("a", "y"), ("a", "x")]


def test_a_ratio_is_of_rounds_that_have_both() -> None:
    share = ratio({"1": 10.0, "2": 30.0, "3": 90.0}, {"1": 5.0, "2": 10.0})
    assert share == (3.0, 2.5)
    assert ratio({"1": 10.0}, {"2": 10.0}) is None


def test_a_label_says_what_is_unusual() -> None:
    usual = {"disk": "disk", "durable": True, "threads": 1}
    assert label(usual) == ""
    assert label({**usual, "durable": False, "threads": 8}) == "not durable, 8 threads"
    assert label({"kind": "pending", "rows": 1000}) == "pending, 1,000 rows"


def test_a_case_is_compared_with_the_usual_one() -> None:
    groups = grouped([made("towline", 100, 0), made("towline", 50, 0, handler="async")])
    group = groups["drain", "sqlite", "async"]["towline"]
    base = base_of(groups, group)
    assert base is not None
    assert base.first.rate == pytest.approx(100)
    assert base_of(groups, base) is None


def test_a_table_has_a_row_for_each_system_and_says_what_is_missing() -> None:
    missing = made("huey", 1, 0)
    missing.error, missing.count = "missing: no network", 0
    twice = made("gigq", 10, 0)
    twice.twice = 1
    (table,) = tables([made("towline", 100, 0), made("towline", 300, 1), twice, missing])
    assert [row[1] for row in table.rows] == ["towline", "gigq (NOT exactly once)", "huey"]
    assert table.rows[1][4] == "10.00 (10.00)"
    assert "missing: no network" in table.rows[2]


def test_goals_are_judged_inside_a_round() -> None:
    records = [
        made("towline", 100, 0), made("huey", 5, 0),
        made("towline", 10, 1), made("huey", 2, 1),
        made("towline", 100, 2), made("huey", 8, 2),
    ]  # fmt: skip
    (verdict,) = judged(records)
    assert verdict.value == pytest.approx(12.5)
    assert verdict.reached


def test_fairness_is_the_least_by_the_most() -> None:
    entries = [Entry(n, n * 1_000_000, n % 4 // 3) for n in range(8)]
    assert fairness(entries, 2) == {"fairness": 2 / 6, "longest_wait_ms": 4.0}


def test_a_plot_is_well_formed() -> None:
    svg = bars(
        "Drain <fast>", "jobs per second", [Bar("a & b", 12_345, "ours"), Bar("c", 3, "peer")]
    )
    assert len(ElementTree.fromstring(svg).findall("{http://www.w3.org/2000/svg}rect")) == 2
    assert "12,345" in svg


def test_the_page_keeps_what_is_written_by_hand() -> None:
    page = "before\n<!-- table: sqlite-drain -->\nold\n<!-- end -->\nafter\n"
    page += "<!-- plot: sqlite-drain -->\n<!-- end -->\n"
    text = filled(page, tables([made("towline", 100, 0)]), {"sqlite-drain"})
    assert text.startswith("before\n")
    assert "\nafter\n" in text
    assert "old" not in text
    assert "| usual | towline | 100 |" in text
    assert "(performance/sqlite-drain.svg)" in text
    assert filled(text, tables([made("towline", 100, 0)]), {"sqlite-drain"}) == text
