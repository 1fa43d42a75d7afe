"""A sampler for links. A link leads somewhere only if the trace behind it was kept, and the trace
that begins with it is worth keeping for the same reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, Sampler, SamplingResult

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanKind, TraceState


class FollowLinks(ParentBased):
    """Keep what its parent keeps; a trace of its own when a link of its first span was kept; else
    as `root` says."""

    def __init__(self, root: Sampler = ALWAYS_ON) -> None:
        self._given = root
        super().__init__(_Linked(root))

    def get_description(self) -> str:
        return f"FollowLinks({self._given.get_description()})"


class _Linked(Sampler):
    """Decides for spans without a parent."""

    def __init__(self, root: Sampler) -> None:
        self._root = root

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Any = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        kept = any(link.context.trace_flags.sampled for link in links or ())
        sampler = ALWAYS_ON if kept else self._root
        return sampler.should_sample(
            parent_context, trace_id, name, kind, attributes, links, trace_state
        )

    def get_description(self) -> str:
        return f"Linked({self._root.get_description()})"
