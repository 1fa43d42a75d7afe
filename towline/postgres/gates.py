"""Who holds the gate of a queue, and may claim under its limits: its row, locked.

A worker takes gates without waiting, and makes one that is missing under an advisory lock: an
upsert would wait for a caller who has set the queue's first limit and not committed.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..operation import Steps
from ..store.ground import Ground, as_json

LANES_COLLECTED = 100  # of which notes are collected at once
NOTES_COLLECTED = 50  # of each


def hold_now(store: Ground, queues: Sequence[str], now: int) -> Steps[tuple[list[str], bool]]:
    """Those of these gates that nobody else holds, with the notes of their lanes collected; True:
    there are more notes."""
    rows = yield store.sql.hold_gates(queues=as_json(queues))
    missing = set(queues) - {str(queue) for queue, _ in rows}
    made: list[str] = []
    for queue in sorted(missing):
        ((ours,),) = yield store.sql.try_to_make_gate(queue=queue)
        if ours:
            yield store.sql.make_gate(queue=queue)
            made.append(queue)
    if made:
        rows += yield store.sql.hold_gates(queues=as_json(made))
    held = [str(queue) for queue, ours in rows if ours]
    if not held:
        return [], False
    collected = yield store.sql.collect_notes(
        queues=as_json(held), now=now, lanes=LANES_COLLECTED, notes=NOTES_COLLECTED
    )
    return held, any(more for _, more in collected)


def hold(store: Ground, queue: str) -> Steps[None]:
    """The gate of a queue, whoever has it before."""
    if not (yield store.sql.hold_gate(queue=queue)):
        yield store.sql.wait_to_make_gate(queue=queue)
        yield store.sql.make_gate(queue=queue)
        yield store.sql.hold_gate(queue=queue)
