"""Meetings in a lane: claims under its limit, what fills or frees it, another limit (G1–G3).

Whatever the order: no more runs than the limit says, and a lane that could start something is found
by the next look, without the backstop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tests.kit import claim, completed, new, put, register
from tests.races.interleaver import Meeting, Met
from tests.races.meetings import Given, is_not
from towline.operation import Op, Steps
from towline.records import Claimed, NewJob
from towline.store import Store
from towline.store.limit import Numbers
from towline.store.listing import JobFilter

QUEUES = ["mail"]
Act = Callable[[Store, Claimed], Op[Any]]


def laned(lane: str = "acme") -> NewJob:
    return new(queue="mail", lane=lane)


def claims(store: Store, worker: int) -> Op[Any]:
    return Op("claim", claim, store, 5, worker, QUEUES)


def prepared(store: Store, waiting: int, runs: bool) -> Steps[Given]:
    """A lane of which one may run; and does, perhaps."""
    store.backstop = None
    yield from register(store, "w1")
    yield from register(store, "w2")
    yield from store.set_limit("mail", "*", Numbers(concurrency=1))
    yield from put(store, *[laned() for _ in range(waiting + runs)])
    held = (yield from claim(store, 1, 1, QUEUES)) if runs else []
    return {"held": held[0] if held else None}


def keeps(met: Met[Given], most: int = 1, before: int = 1) -> Iterator[str]:
    """No more than so many run, or than the limit before allowed; if fewer do and one waits, a
    look finds it."""
    states = [str(job.state) for job in met.stage.look(met.store.jobs(JobFilter(), 100)).records]
    running, waiting = states.count("running"), states.count("pending")
    if running > max(most, before):
        yield f"limit: {running} run, of {max(most, before)}"
    if running < most and waiting:
        ahead = met.stage.look(met.store.peek(QUEUES))
        if not ahead.pending:
            yield f"asleep: {waiting} wait, {running} run, and no look finds them"


def claim_and_claim() -> Meeting[Given]:
    """Two workers, two lanes with room for one each."""

    def prepare(store: Store) -> Steps[Given]:
        given = yield from prepared(store, 2, False)
        yield from put(store, laned("bolt"), laned("bolt"))
        return given

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return claims(store, 1), claims(store, 2)

    def expect(met: Met[Given]) -> Iterator[str]:
        lanes = [held.lane for answer in met.answers for held in answer]
        yield from is_not(sorted(lanes), ["acme", "bolt"], what="begun")
        yield from keeps(met, 2)

    return Meeting(prepare, operations, expect)


def claim_and_fill(runs: bool) -> Meeting[Given]:
    """A caller fills a lane while another looks at it."""

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return claims(store, 2), store.enqueue([laned()])

    def expect(met: Met[Given]) -> Iterator[str]:
        yield from keeps(met)

    return Meeting(lambda store: prepared(store, 0, runs), operations, expect)


def claim_and_free(act: Act) -> Meeting[Given]:
    """What runs ends, while another worker finds its lane full."""

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return claims(store, 2), act(store, given["held"])

    def expect(met: Met[Given]) -> Iterator[str]:
        yield from keeps(met)

    return Meeting(lambda store: prepared(store, 2, True), operations, expect)


def claim_and_limit(most: int) -> Meeting[Given]:
    """A limit changes while a worker claims under it: what it began before stays."""

    def operations(store: Store, given: Given) -> Sequence[Op[Any]]:
        return claims(store, 2), store.set_limit("mail", "*", Numbers(concurrency=most))

    def expect(met: Met[Given]) -> Iterator[str]:
        yield from keeps(met, most)

    return Meeting(lambda store: prepared(store, 3, False), operations, expect)


FREEING: dict[str, Act] = {
    "finish": lambda store, held: store.finish([completed(held)], "w1", 1),
    "cancel": lambda store, held: store.cancel(held.job_id),
    "park": lambda store, held: store.park([held]),
    "delete": lambda store, held: store.delete([held.chain_id]),
    "sweep": lambda store, held: store.sweep([], [1]),
}
