"""A graph of chains, small enough to be drawn: chains that are alike are one node.

Of chains that wait for the same and are needed by the same only one of each task and state is
drawn, with their number. Where that is still too many, they are taken together more and more
roughly. The state is kept apart always: one that failed among a thousand is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .page import Data

if TYPE_CHECKING:
    from ..app import Towline
    from ..records import ChainRecord
    from ..store.graph import Graph

MOST_DRAWN = 100  # nodes; a browser lays them out in a blink
STRETCHES = 20  # pieces of a graph that is deep, when all else is not enough


def graph_data(app: Towline, id: int) -> Data:
    """A chain with all that it waits for and needs it."""
    found = app.runner.run(app.runner.store.graph(id))
    groups = _grouped(found, id)
    place = {chain.id: group[0].id for group in groups for chain in group}
    between = dict.fromkeys((place[edge.blocker], place[edge.waiting]) for edge in found.edges)
    edges = [(a, b) for a, b in between if a != b]
    before, behind = _neighbours(list(place.values()), edges)
    return {
        "nodes": [
            {
                "id": group[0].id,
                "task": group[0].task,
                "tasks": len({chain.task for chain in group}),
                "state": str(group[0].state),
                "chains": len(group),
                "waits_for": before[group[0].id],
                "needed_by": behind[group[0].id],
            }
            for group in groups
        ],
        "edges": edges,
        "chains": len(found.chains),
        "complete": found.complete,
    }


def _grouped(found: Graph, id: int) -> list[list[ChainRecord]]:
    """By the first way that leaves few enough; the chain that is asked for is always by itself."""
    pairs = [(edge.blocker, edge.waiting) for edge in found.edges]
    before, behind = _neighbours([chain.id for chain in found.chains], pairs)
    near = {each: (frozenset(before[each]), frozenset(behind[each])) for each in before}
    level = _levels(before, behind)
    depth = 1 + max(level.values())
    ways: tuple[Callable[[ChainRecord], object], ...] = (
        lambda chain: (chain.task, near[chain.id]),
        lambda chain: near[chain.id],
        lambda chain: (chain.task, level[chain.id]),
        lambda chain: level[chain.id],
        lambda chain: level[chain.id] * STRETCHES // depth,
    )
    groups: dict[object, list[ChainRecord]] = {}
    for way in ways:
        groups = {}
        for chain in found.chains:
            groups.setdefault((chain.id == id, chain.state, way(chain)), []).append(chain)
        if len(groups) <= MOST_DRAWN:
            break
    return list(groups.values())


def _neighbours(
    ids: list[int], edges: list[tuple[int, int]]
) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    """Of each what it waits for, and what needs it."""
    before: dict[int, list[int]] = {id: [] for id in ids}
    behind: dict[int, list[int]] = {id: [] for id in ids}
    for blocker, waiting in edges:
        before[waiting].append(blocker)
        behind[blocker].append(waiting)
    return before, behind


def _levels(before: dict[int, list[int]], behind: dict[int, list[int]]) -> dict[int, int]:
    """How many steps each is away from what waits for nothing, by the longest way. Chains that wait
    for one another in a circle come last."""
    left = {id: len(blockers) for id, blockers in before.items()}
    level: dict[int, int] = {}
    step = [id for id, number in left.items() if number == 0]
    while step:
        level.update(dict.fromkeys(step, 1 + max(level.values(), default=-1)))
        following: list[int] = []
        for id in step:
            for waiting in behind[id]:
                left[waiting] -= 1
                if left[waiting] == 0:
                    following.append(waiting)
        step = following
    last = 1 + max(level.values(), default=-1)
    return {id: level.get(id, last) for id in before}
