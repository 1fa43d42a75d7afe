"""For the application's own logging: `InAttempt`, a filter, and the keys that our lines have."""

from __future__ import annotations

from .telemetry.in_attempt import InAttempt
from .telemetry.log import FIELDS

__all__ = ["FIELDS", "InAttempt"]
