"""Bugs of what flows: fan-out and chunks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from tests.mutants.mutant import POSTGRES, SQLITE, Mutant
from towline.operation import Query, Steps
from towline.records import Claimed, Ending, NewJob
from towline.store import enqueue, finish
from towline.store.edges import Placed
from towline.store.finish import Finished
from towline.store.ground import Ground
from towline.store.replacing import Replacement
from towline.worker.attempt import Attempt, Report
from towline.worker.chunks import ChunkRun

FAN_OUT = "conformance/test_fan_out.py::{}[{{database}}: ours, blocking]"
REFUSED = "conformance/test_fan_out.py::{}[{{database}}: ours, blocking-attempt]"
CHUNK = "worker/test_chunk.py::{}[thread-{{database}}]"
BOTH = (SQLITE, POSTGRES)

_finish, _placed_after = finish.finish, finish.placed_after
_judge = ChunkRun._judge


def children_before_the_fence(
    store: Ground, endings: Sequence[Ending], worker: str | None, slot: int,
    now: int | None = None, wakes: bool = True,
) -> Steps[Finished]:  # fmt: skip
    """They are stored for whatever was sent; the continuation waits for them as for any chain."""
    sent: list[Ending] = []
    for ending in endings:
        following = ending.next
        if following is not None and following.children:
            at = yield from store.now()
            ids = yield from store.new_ids(len(following.children))
            batch = yield from enqueue.arrange(store, following.children, ids, at)
            yield from enqueue.insert(store, batch.placed(batch.order), at)
            heir = replace(following, children=(), blockers=batch.resolved(following))
            ending = replace(ending, next=heir)
        sent.append(ending)
    return (yield from _finish(store, sent, worker, slot, now, wakes))


def children_before_a_commit(
    store: Ground, before: Any, job: NewJob, id: int, children: Sequence[int], now: int
) -> Steps[tuple[list[Placed], list[Replacement]]]:
    """They are committed with the end of the job, and then the continuation is stored."""
    placed, replacing = yield from _placed_after(store, before, job, id, children, now)
    if job.children:
        yield from enqueue.insert(store, placed[:-1], now)
        yield Query("commit", "COMMIT")()
        yield Query("begin", "BEGIN")()
    return placed[-1:], replacing


def all_or_nothing(self: ChunkRun, ready: list[Attempt], results: Any) -> Iterator[Report]:
    """One item that failed fails the chunk."""
    for result in results or ():
        if isinstance(result, BaseException):
            raise result
    yield from _judge(self, ready, results)


def always(held: Claimed) -> bool:
    return True


FLOWING = [
    Mutant(
        "children before the fence",
        "What a continuation brings along is stored before the fence is looked at.",
        "F4",
        [REFUSED.format("test_F4_a_refused_attempt_leaves_no_children")],
        methods={"towline.store.finish.finish": children_before_the_fence},
        on=BOTH,
        sign="('a', 'pending')",
    ),
    Mutant(
        "children in another transaction",
        "What a continuation brings along is committed before the continuation is stored.",
        "F4",
        [FAN_OUT.format("test_F4_children_are_stored_in_the_commit_that_completes_the_job")],
        methods={"towline.store.finish.placed_after": children_before_a_commit},
        on=BOTH,
        sign="'completed'",
    ),
    Mutant(
        "a chunk ends all or nothing",
        "One item that failed fails every item of its chunk.",
        "F7",
        [CHUNK.format("test_F7_one_item_that_fails_takes_no_other_with_it")],
        methods={"towline.worker.chunks.ChunkRun._judge": all_or_nothing},
        on=BOTH,
        sign="['failed', 'failed', 'failed']",
    ),
    Mutant(
        "a failed item shares its next chunk",
        "An item that failed is gathered with others again.",
        "F8",
        [CHUNK.format("test_F8_an_item_that_failed_runs_alone")],
        methods={"towline.worker.turns.may_share": always},
        on=BOTH,
        sign="[3, 3] == [3, 1, 1, 1]",
    ),
]
