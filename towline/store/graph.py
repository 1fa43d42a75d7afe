"""A chain with all that it waits for and all that needs it, however far: chains and edges.

Read step by step from the chain outwards, a few statements for each step however wide it is, until
there is nothing new or enough was found.
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import NotFound
from ..operation import Steps
from ..records import ChainRecord
from . import cascade, read
from .ground import Ground, as_json, chunks, int_of

MOST_CHAINS = 2000


class Edge(NamedTuple):
    """A job of one chain waits for another chain, perhaps under a name."""

    blocker: int
    waiting: int
    name: str | None


class Graph(NamedTuple):
    """Chains by id, and who waits for whom. `complete`: there is nothing further out."""

    chains: list[ChainRecord]
    edges: list[Edge]
    complete: bool


def graph(store: Ground, chain_id: int, most: int) -> Steps[Graph]:
    edges: dict[Edge, None] = {}
    seen: dict[int, None] = {}
    step, complete = [chain_id], True
    while step:
        room = most - len(seen)
        complete = complete and len(step) <= room
        step = step[:room]
        seen.update(dict.fromkeys(step))
        found = yield from _around(store, step)
        edges.update(dict.fromkeys(found))
        ends = (id for edge in found for id in (edge.blocker, edge.waiting))
        step = list(dict.fromkeys(id for id in ends if id not in seen))
    chains: list[ChainRecord] = []
    for chunk in chunks(list(seen)):
        chains += yield from read.chain_records(store, chunk)
    if chain_id not in (chain.id for chain in chains):
        raise NotFound(f"there is no chain {chain_id}")
    known = {chain.id for chain in chains}
    inside = [edge for edge in edges if edge.blocker in known and edge.waiting in known]
    return Graph(chains, inside, complete)


def _around(store: Ground, chains: list[int]) -> Steps[list[Edge]]:
    """What these chains wait for, and what waits for them."""
    owner: dict[int, int] = {}
    for chunk in chunks(chains):
        rows = yield store.sql.chain_job_ids(chains=as_json(chunk))
        owner.update((int_of(id), int_of(chain)) for id, chain, _ in rows)
    found: list[Edge] = []
    for chunk in chunks(list(owner)):
        for job, blockers in (yield from read.blockers(store, chunk)).items():
            found += [Edge(blocker.chain_id, owner[job], blocker.name) for blocker in blockers]
    for each in (yield from cascade.behind(store, chains)):
        found.append(Edge(each.chain_id, each.own_chain_id, each.name))
    return found
