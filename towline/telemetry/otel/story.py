"""What the span of an attempt says from its begin: name, attributes, links. It is put together once
somebody wants it, which for nearly all of a sample is never."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

from msgspec import Struct
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.trace import Link

from ...records import BlockerRecord, Claimed
from ...times import MICRO
from . import conventions as words
from .context import span_of

Attributes: TypeAlias = dict[str, Any]
Told: TypeAlias = tuple[Attributes, Sequence[Link]]

NO_ATTRIBUTES = BoundedAttributes(attributes={}, immutable=True)  # of a link


class Story(Struct, frozen=True, gc=False):
    """Of one attempt. Nothing in it leads back to it, so the collector need not look for it."""

    name: str
    common: Attributes  # of all attempts of its task
    held: Claimed
    blockers: Sequence[BlockerRecord]
    worker: str
    began: int  # by the database's clock
    linked: bool  # to what created the job, which is not above it

    def told(self) -> Told:
        held = self.held
        attributes: Attributes = {
            **self.common,
            words.ID: str(held.job_id),
            words.CONVERSATION: str(held.chain_id),
            words.ATTEMPT: held.attempt,
            words.POSITION: held.position,
            words.WORKER: self.worker,
            words.WAITED: waited(held, self.began),
        }
        links: Sequence[Link] = ()
        if self.linked and held.trace:
            links = _link(held.trace)
        if held.blockers:
            attributes[words.BLOCKERS] = held.blockers
            links = [*links, *_to_blockers(self.blockers, held.trace)]
        return attributes, links


def common(task: str, queue: str) -> Attributes:
    return {
        words.SYSTEM: "towline",
        words.OPERATION: "run",
        words.OPERATION_TYPE: "process",
        words.DESTINATION: queue,
        words.TASK: task,
    }


def waited(held: Claimed, began: int) -> float:
    """For how many seconds it could have run before."""
    return max(began - max(held.run_at, held.created_at), 0) / MICRO


@lru_cache(maxsize=128)  # jobs that were stored by one call have one creator
def _link(text: str) -> tuple[Link, ...]:
    creator = span_of(text)
    return () if creator is None else (Link(creator, NO_ATTRIBUTES),)


def _to_blockers(blockers: Sequence[BlockerRecord], creator: str | None) -> list[Link]:
    """One to each context on an edge, if it is another than the job's own."""
    found: dict[tuple[int, int], Link] = {}
    made = span_of(creator)
    own = None if made is None else (made.trace_id, made.span_id)
    for blocker in blockers:
        if (span := span_of(blocker.trace)) is not None:
            key = span.trace_id, span.span_id
            if key != own and key not in found:
                found[key] = Link(span, NO_ATTRIBUTES)
                if len(found) == words.MOST_LINKS:
                    break
    return list(found.values())
