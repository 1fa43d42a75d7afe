"""The edges of a job: the chains that it waits for."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

from ..errors import BlockerError
from ..model import CHAIN_STATES, ChainState, Policy
from ..operation import Row, Steps
from ..records import DependentRecord, NewBlocker, NewJob
from .cascade import BAD
from .ground import Ground, as_json, chunks, int_of

UNDECLARED = -1  # position of an edge to the chain that had the key before, or below that


class Placed(Struct):
    """A job with its place: id, chain and position are decided."""

    id: int
    chain_id: int
    position: int
    job: NewJob
    blockers: Sequence[NewBlocker] = ()


def chain_states(
    store: Ground, placed: Sequence[Placed], born: Collection[int]
) -> Steps[dict[int, ChainState]]:
    """State of every chain these jobs wait for, but for those that are stored with them (`born`);
    refuse what cannot be waited for."""
    wanted = {int_of(b.chain_id) for place in placed for b in place.blockers}
    states: dict[int, ChainState] = {}
    created: dict[int, int] = {}
    for chunk in chunks(sorted(wanted.difference(born))):
        rows = yield store.sql.chain_states(chains=as_json(chunk))
        states.update((int_of(id), CHAIN_STATES[int_of(state)]) for id, state, _ in rows)
        created.update((int_of(id), int_of(created_at)) for id, _, created_at in rows)
    for place in placed:
        named: set[int] = set()
        for blocker in place.blockers:
            chain = int_of(blocker.chain_id)
            if chain in named:
                raise BlockerError(f"job {place.job.task} names chain {chain} twice as a blocker")
            named.add(chain)
            gone = blocker.created_at not in (None, created.get(chain))
            if chain == place.chain_id and not gone:
                raise BlockerError(f"job {place.job.task} cannot wait for its own chain")
            if gone or (chain not in born and chain not in states):
                raise BlockerError(
                    f"blocker chain {chain} of job {place.job.task} does not exist: "
                    "it was never stored, rolled back, deleted or pruned"
                )
    return states


def waits(
    place: Placed,
    states: Mapping[int, ChainState],
    rows: list[Row],
    doomed: dict[int, DependentRecord],
) -> int:
    """Add the edges of one job; return how many chains it waits for. It is doomed when one of them
    has failed and its policy is to fail, too."""
    job = place.job
    number, undeclared = 0, UNDECLARED
    for position, blocker in enumerate(place.blockers):
        chain = int_of(blocker.chain_id)
        if not blocker.declared:  # the last of them
            position, undeclared = undeclared, undeclared - 1
        rows.append((chain, place.id, position, blocker.name, blocker.trace, blocker.in_line))
        ended = states.get(chain, ChainState.OPEN)
        if ended in BAD:
            number += job.policy is not Policy.RUN
            if job.policy is Policy.FAIL:
                doomed.setdefault(place.id, DependentRecord(
                    chain, place.id, place.chain_id, job.queue, job.priority,
                    int(job.policy), job.task, job.key, blocker.name, job.lane,
                ))  # fmt: skip
        else:
            number += ended is ChainState.OPEN
    return number


def that_wait_for_others(placed: Sequence[Placed]) -> list[Placed]:
    """Continuations that wait for chains which were there before, themselves or through what they
    bring along. Nobody else can have named what is born here, so that alone closes no circle."""
    if not any(place.position and place.blockers for place in placed):
        return []
    born = {place.id for place in placed if place.position == 0}
    found: list[Placed] = []
    for place in placed:  # each after those of them that it waits for
        if not all(blocker.chain_id in born for blocker in place.blockers):
            born.discard(place.id)
            if place.position:
                found.append(place)
    return found


def refuse_circles(store: Ground, waiting: Sequence[Placed]) -> Steps[None]:
    """Only what goes on with a chain, or is replaced, can close a circle with stored jobs: its
    chain has dependents."""
    for place in waiting:
        chains = [int_of(blocker.chain_id) for blocker in place.blockers]
        if place.chain_id in (yield from store.upstream(chains, reopened=False)):
            raise BlockerError(f"job {place.job.task} cannot wait for what waits for its own chain")
