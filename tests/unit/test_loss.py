"""Which operations a crash of the machine may take back: a change of this list is a decision."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.kit import CLAIMED, Clock, completed, new
from towline.operation import Loss, Op
from towline.sql import Queries
from towline.store import Store
from towline.store.listing import JobFilter
from towline.store.retention import KeepFor

HELD = CLAIMED._replace(
    queue="q", arguments="{}", max_attempts=5, created_at=1, run_at=1, claimed_at=1
)


def every_operation(store: Store) -> Iterator[tuple[str, Op[Any]]]:
    """The operations that write, by what is told them."""
    yield "bulk", store.bulk("cancel", JobFilter(), False, None, 1)
    yield "cancel", store.cancel(1)
    yield "claim", store.claim(1, ["q"], 1)
    yield "complete", store.complete(1, None)
    yield "delete", store.delete([1])
    yield "drop_orphans", store.drop_orphans(["q"])
    yield "enqueue", store.enqueue([new()])
    yield "fail", store.fail(1, "why")
    yield "finish", store.finish([completed(HELD)])
    yield "park", store.park([HELD])
    yield "pause", store.pause("q")
    yield "progress", store.progress([(HELD, 0.5, None)])
    yield "progress of what began", store.progress([], [(HELD, 1)])
    yield "prune", store.prune(KeepFor(1, 1, 1))
    yield (
        "register",
        store.register(
            "w", host="h", pid=1, birth=None, version="1", queues=["q"], concurrency=1, lease=1
        ),
    )
    yield "renew", store.renew(1, "w", 1, [])
    yield "resume", store.resume("q")
    yield "retry", store.retry(1)
    yield "run_now", store.run_now(1)
    yield "still_running", store.still_running(HELD)
    yield "sweep", store.sweep()
    yield "turn", store.turn(1, "w", ["q"], 1)
    yield "turn that finishes", store.turn(1, "w", ["q"], 1, [completed(HELD)])
    yield "unregister", store.unregister(1)


def test_P1_what_a_promise_hangs_on_is_never_lost() -> None:
    found: dict[Loss, set[str]] = {}
    for name, op in every_operation(Store(Queries("towline.sqlite", "towline_"), Clock())):
        assert (op.name, op.reads) == (name.split()[0], False)
        found.setdefault(op.loss, set()).add(name)
    assert found.pop(Loss.NEVER) == {
        "bulk", "cancel", "complete", "delete", "fail", "finish", "pause", "resume", "retry",
        "run_now", "still_running", "sweep", "turn that finishes",
    }  # fmt: skip
    assert found == {
        Loss.IF_ALLOWED: {"enqueue"},
        Loss.WITH_WORKERS: {
            "claim", "drop_orphans", "park", "progress of what began", "prune",
            "register", "turn", "unregister",
        },
        Loss.ANY_TIME: {"progress", "renew"},
    }  # fmt: skip
