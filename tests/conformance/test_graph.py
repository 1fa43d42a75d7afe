"""A chain with all that it waits for and all that needs it, however far."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Play
from tests.kit import claim, continued, new, put
from towline.errors import NotFound
from towline.operation import Steps
from towline.store import Store
from towline.store.graph import Graph


def shape(found: Graph) -> tuple[set[int], set[tuple[int, int]], bool]:
    return (
        {chain.id for chain in found.chains},
        {(edge.blocker, edge.waiting) for edge in found.edges},
        found.complete,
    )


def test_it_is_followed_both_ways_and_past_continuations(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        (first, other) = yield from put(store, new("first"), new("other"))
        (middle,) = yield from put(store, new("middle", after=[first]))
        (last,) = yield from put(store, new("last", after=[middle, other]))
        yield from put(store, new("apart"))
        held, *_ = yield from claim(store, 1)
        yield from store.finish([continued(held, new("next", after=[other]))])
        all_of = {first, other, middle, last}
        edges = {(first, middle), (middle, last), (other, last), (other, first)}
        for chain in all_of:
            assert shape((yield from store.graph(chain))) == (all_of, edges, True)

    play(script)


def test_a_chain_alone(play: Play, store: Store) -> None:
    (chain,) = play(lambda: put(store, new()))
    assert shape(play(lambda: iter(store.graph(chain)))) == ({chain}, set(), True)
    with pytest.raises(NotFound, match="there is no chain 12345"):
        play(lambda: iter(store.graph(12345)))


def test_R2_so_many_and_no_more(play: Play, store: Store) -> None:
    def script() -> Steps[list[int]]:
        return (yield from put(store, *(new() for _ in range(30))))

    chains = play(script)
    (last,) = play(lambda: put(store, new(after=chains)))
    found, _, complete = shape(play(lambda: iter(store.graph(last, 10))))
    assert (len(found), complete) == (10, False)
    found, edges, complete = shape(play(lambda: iter(store.graph(last))))
    assert (len(found), len(edges), complete) == (31, 30, True)
