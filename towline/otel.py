"""OpenTelemetry: `instrument(app)` makes spans and metrics of what an app stores and runs.

Needs `opentelemetry-api` (the extra `otel`); FollowLinks needs the SDK. Nothing is switched on by
an import.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .telemetry.otel.instrument import instrument, uninstrument

if TYPE_CHECKING:
    from .telemetry.otel.sampler import FollowLinks

__all__ = ["FollowLinks", "instrument", "uninstrument"]


def __getattr__(name: str) -> Any:
    if name == "FollowLinks":
        from .telemetry.otel.sampler import FollowLinks

        return FollowLinks
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
