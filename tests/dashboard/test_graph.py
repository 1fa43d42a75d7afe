"""The graph of a chain, small enough to be drawn however large it is."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.kit import new
from towline import Towline
from towline.dashboard.collapsed import MOST_DRAWN, graph_data


def stored(app: Towline, *jobs: Any) -> list[int]:
    return [answer.record.id for answer in app.runner.run(app.runner.store.enqueue(jobs))]


def drawn(app: Towline, id: int) -> Counter[tuple[str, str, int]]:
    nodes = graph_data(app, id)["nodes"]
    return Counter((node["task"], node["state"], node["chains"]) for node in nodes)


@pytest.mark.each_engine
def test_a_thousand_alike_are_one_node_for_each_state(app: Towline) -> None:
    parts = stored(app, *[new("part")] * 1000)
    (join,) = stored(app, new("join", after=parts))
    assert drawn(app, join) == {("join", "open", 1): 1, ("part", "open", 1000): 1}
    app.runner.run(app.runner.store.complete(parts[0], None))
    data = graph_data(app, join)
    assert drawn(app, join) == {
        ("join", "open", 1): 1, ("part", "open", 999): 1, ("part", "completed", 1): 1,
    }  # fmt: skip
    assert (data["chains"], data["complete"]) == (1001, True)
    assert sorted(data["edges"]) == [(parts[0], join), (parts[1], join)]


def test_a_thousand_different_ones_too_and_the_failed_one_is_seen(app: Towline) -> None:
    (top,) = stored(app, new("top"))
    parts = stored(app, *(new(f"part{n}", after=[top]) for n in range(1000)))
    (join,) = stored(app, new("join", after=parts))
    app.runner.run(app.runner.store.fail(parts[500], "broken"))
    nodes = {node["id"]: node for node in graph_data(app, top)["nodes"]}
    assert nodes.keys() == {top, parts[0], parts[500], join}
    assert [nodes[parts[0]][name] for name in ("tasks", "chains")] == [999, 999]
    assert nodes[parts[500]]["state"] == "failed"
    assert nodes[join]["waits_for"] == [parts[0], parts[500]]


def test_few_are_drawn_as_they_are(app: Towline) -> None:
    parts = stored(app, *(new(f"part{n}") for n in range(MOST_DRAWN - 1)))
    (join,) = stored(app, new("join", after=parts))
    assert len(graph_data(app, join)["nodes"]) == MOST_DRAWN


@pytest.mark.parametrize("wide", [1, 2, 60])
def test_a_deep_one_is_drawn_in_pieces(app: Towline, wide: int) -> None:
    """Side by side or one behind the other, each waiting for others: never more than can be laid
    out, and never in a circle."""
    layers: list[list[int]] = [stored(app, *(new(f"a{n}") for n in range(wide)))]
    for depth in range(120 // wide):
        jobs = (new(f"{depth}.{n}", after=[layers[-1][n]]) for n in range(wide))
        layers.append(stored(app, *jobs))
    (end,) = stored(app, new("end", after=layers[-1]))
    data = graph_data(app, end)
    assert data["chains"] == wide * len(layers) + 1
    assert len(data["nodes"]) <= MOST_DRAWN
    place = {node["id"]: number for number, node in enumerate(data["nodes"])}
    assert all(a in place and b in place and a != b for a, b in data["edges"])
    assert sum(node["chains"] for node in data["nodes"]) == data["chains"]
    assert [node["chains"] for node in data["nodes"] if node["id"] == end] == [1]
