"""Metrics for Prometheus: `Metrics(app)`, with the extra `prometheus`; see docs/guides/see."""

from __future__ import annotations

try:
    from .telemetry.prometheus import Metrics
except ImportError as error:
    if not (error.name or "").startswith("prometheus_client"):
        raise
    raise ImportError(
        f"metrics need prometheus-client: pip install -e '.[prometheus]' ({error})",
        name=error.name,
    ) from error

__all__ = ["Metrics"]
