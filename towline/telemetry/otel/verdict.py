"""How a sampler of the SDK decides, where neither name, attributes nor links have a say in it: what
is dropped then needs none of them.

The samplers that everybody has are known here, by their very type; all others are asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    ParentBased,
    ParentBasedTraceIdRatio,
    Sampler,
    TraceIdRatioBased,
)

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

# Of a trace, whether its first span is kept; and the same of a span below another.
OfTrace: TypeAlias = Callable[[int], bool]
Verdict: TypeAlias = "Callable[[int, SpanContext | None], bool]"

PARENT_BASED = (ParentBased, ParentBasedTraceIdRatio)
USUAL = {
    "_remote_parent_sampled": ALWAYS_ON, "_remote_parent_not_sampled": ALWAYS_OFF,
    "_local_parent_sampled": ALWAYS_ON, "_local_parent_not_sampled": ALWAYS_OFF,
}  # fmt: skip


def verdict_of(sampler: Sampler) -> Verdict | None:
    """What it would say; None when it must be asked."""
    if type(sampler) not in PARENT_BASED:
        alone = _of_trace(sampler)
        return None if alone is None else lambda trace, parent: alone(trace)
    root = _of_trace(getattr(sampler, "_root", None))
    if root is None or any(getattr(sampler, name, None) is not USUAL[name] for name in USUAL):
        return None
    return lambda trace, parent: root(trace) if parent is None else parent.trace_flags.sampled


def _of_trace(sampler: Sampler | None) -> OfTrace | None:
    if sampler is ALWAYS_ON:
        return lambda trace: True
    if sampler is ALWAYS_OFF:
        return lambda trace: False
    if type(sampler) is not TraceIdRatioBased:
        return None
    bound, limit = sampler.bound, sampler.TRACE_ID_LIMIT
    return lambda trace: trace & limit < bound
