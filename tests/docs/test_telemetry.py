"""The tables of the pages on events and metrics are what the code has."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT
from towline.events.kinds import EVENTS
from towline.logs import FIELDS
from towline.telemetry.prometheus.catalogue import METRICS

PAGES = ROOT / "docs" / "guides" / "see"
# `attempt.ended` has what `attempt.started` has.
SAME = {"job", "chain", "position", "attempt", "worker", "waited"}


def rows(page: str) -> dict[str, list[str]]:
    """The cells of each row of a table, by the first word in backticks."""
    found = {}
    for line in (PAGES / page).read_text().splitlines():
        if line.startswith("| `"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found[cells[0].split("`")[1]] = cells[1:]
    return found


def words(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def test_the_table_of_events_is_that_of_the_code() -> None:
    table = rows("events.md")
    assert set(table) == set(EVENTS)
    for name, (labels, others) in table.items():
        event = EVENTS[name]
        assert words(labels) == set(event.labels), name
        rest = {*event.__struct_fields__} - {"at", *event.labels, *event.private}
        said = words(others) | (SAME if "the same" in others else set())
        assert said == rest, name


def test_the_tables_of_metrics_are_those_of_the_code() -> None:
    table = rows("prometheus.md")
    known = {m.series[0] if m.kind != "histogram" else m.name: m for m in METRICS}
    assert set(table) == set(known)
    for name, (labels, text) in table.items():
        assert words(labels) == set(known[name].labels), name
        assert text.startswith("histogram") == (known[name].kind == "histogram"), name


def test_the_fields_of_log_lines_are_those_of_the_code() -> None:
    text = (PAGES / "events.md").read_text()
    said = re.search(r"by `extra`: ((?:`\w+`\s?)+)", text.replace("\n", " "))
    assert said is not None
    assert tuple(re.findall(r"`(\w+)`", said[1])) == FIELDS
