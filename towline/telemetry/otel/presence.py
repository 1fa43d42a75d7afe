"""Whether the application has set up OpenTelemetry: until it does, its API makes nothing of what it
is told, so it is not told.

The API tells only by making up stand-ins, which takes longer than all we do for an attempt. So its
own variables are looked at; where they are not, somebody is taken to be there.
"""

from __future__ import annotations

from opentelemetry import metrics, trace
from opentelemetry.metrics import _internal as metrics_inside

_SOMEBODY = object()


def resolve() -> None:
    """Let the API load what the environment names, if it names something."""
    trace.get_tracer_provider()
    metrics.get_meter_provider()


def has_tracers() -> bool:
    return getattr(trace, "_TRACER_PROVIDER", _SOMEBODY) is not None


def has_meters() -> bool:
    return getattr(metrics_inside, "_METER_PROVIDER", _SOMEBODY) is not None
