"""Meetings with a caller at REPEATABLE READ or SERIALIZABLE (finding P1).

He sees the database as it was at his first statement. What he enqueues is right, or the server
refuses it, since what he waits for has changed. What ends, opens again or deletes a chain, we
refuse: he would not see who has just begun to wait for it, and nobody would tell him.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.races import meetings as m
from tests.races import meetings_of_control as c
from tests.races.interleaver import Meeting
from tests.races.stepped import Style
from towline.model import Policy

OURS, CALLER = Style.OURS, Style.CALLER
Named = tuple[str, Meeting[Any], tuple[Style, ...]]
# Beside READ COMMITTED the two levels hardly differ: of the second one, each kind once.
AT_SERIALIZABLE = frozenset({
    "enqueue behind, completed {}", "enqueue behind, failed {}", "enqueue behind, cancelled {}",
    "enqueue behind, finish {}", "enqueue behind, continue {}", "retry {}, enqueue behind",
    "delete {}, enqueue behind", "prune {}, enqueue behind", "enqueue {} behind, finish completed",
    "retry, enqueue {} behind", "delete, enqueue {} behind", "prune, enqueue {} behind",
    "dedup, dedup {}",
})  # fmt: skip


def with_an_old_snapshot() -> Iterator[Named]:
    """Every kind of operation, at both levels."""
    for level in Style:
        if level.old:
            yield from at(level)


def at(level: Style) -> Iterator[Named]:
    for kind in (ends, retries, deletes, enqueues):
        for name, meeting, styles in kind(level):
            if level is Style.REPEATABLE_READ or name in AT_SERIALIZABLE:
                yield name.format(level.value), meeting, styles


def ends(level: Style) -> Iterator[Named]:
    """He ends what somebody begins to wait for, from outside or as its worker."""
    for how in ("completed", "failed", "cancelled"):
        meeting = m.enqueue_and_end(how, Policy.FAIL, outside=True)
        yield f"enqueue behind, {how} {{}}", meeting, (OURS, level)
    for key in (None, "k"):
        word = "finish" if key is None else "finish with a key"
        meeting = m.enqueue_and_end("completed", Policy.FAIL, key=key)
        yield f"enqueue behind, {word} {{}}", meeting, (OURS, level)
    for word, outside in (("continue", False), ("continue outside", True)):
        meeting = m.enqueue_and_continue(outside=outside)
        yield f"enqueue behind, {word} {{}}", meeting, (OURS, level)
    yield "cancel by filter {}, enqueue behind", c.filter_and_enqueue("cancel"), (level, OURS)
    yield "finish, complete {}", m.finish_and_control("completed"), (OURS, level)


def retries(level: Style) -> Iterator[Named]:
    """He opens a failed chain again that somebody begins to wait for, or prunes."""
    behind = c.retry_and_enqueue_behind(Policy.FAIL)
    yield "retry {}, enqueue behind", behind, (level, OURS)
    yield "retry by filter {}, enqueue behind", c.filter_and_enqueue("retry"), (level, OURS)
    yield "prune, retry {}", c.prune_and_retry("blocker"), (OURS, level)


def deletes(level: Style) -> Iterator[Named]:
    """He deletes or prunes what somebody begins to wait for, or ends."""
    yield "delete {}, enqueue behind", c.delete_and_enqueue_behind(), (level, OURS)
    yield "delete {}, finish", c.delete_and_finish(goes_on=False), (level, OURS)
    yield "prune {}, enqueue behind", c.prune_and_enqueue_behind(), (level, OURS)


def enqueues(level: Style) -> Iterator[Named]:
    """He begins to wait for what somebody ends, opens or deletes; or takes a key, or changes what
    has one."""
    for how in ("completed", "failed"):
        finish = m.enqueue_and_end(how, Policy.FAIL)
        yield f"enqueue {{}} behind, finish {how}", finish, (level, OURS)
    outside = m.enqueue_and_end("failed", Policy.RUN, outside=True)
    yield "enqueue {} behind, failed caller", outside, (level, CALLER)
    yield "enqueue {} behind, continue", m.enqueue_and_continue(), (level, OURS)
    yield "enqueue {} behind, cascade", m.enqueue_and_cascade(), (level, OURS)
    behind = c.retry_and_enqueue_behind(Policy.FAIL)
    yield "retry, enqueue {} behind", behind, (OURS, level)
    yield "delete, enqueue {} behind", c.delete_and_enqueue_behind(), (OURS, level)
    yield "prune, enqueue {} behind", c.prune_and_enqueue_behind(), (OURS, level)
    yield "prune, key {}", c.prune_and_key("any"), (OURS, level)
    yield "delete, key {}", c.delete_and_key(), (OURS, level)
    yield "dedup, dedup {}", c.dedup_twice("open"), (OURS, level)
    yield "retry, enqueue {} its key", c.retry_key_and_enqueue(), (OURS, level)
    yield "claim, replace {}", m.claim_and_replace(0), (OURS, level)
    yield "promote, run now {}", m.promote_and_control("run"), (OURS, level)
