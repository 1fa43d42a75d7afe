"""For the tests of applications: a throw-away database, jobs run on the spot, a clock that moves.

Nothing is pretended: jobs are stored and claimed as always, handlers run by the same code as in a
worker. What is different is where (in the test's own thread) and when (when the test says so).
"""

from __future__ import annotations

from .clock import Clock
from .crash import Crash, crash_at
from .draining import adrain, drain
from .inlining import inline
from .inventory import assert_enqueued, enqueued
from .isolation import isolated
from .recording import recorded
from .working import real_worker

__all__ = [
    "Clock",
    "Crash",
    "adrain",
    "assert_enqueued",
    "crash_at",
    "drain",
    "enqueued",
    "inline",
    "isolated",
    "real_worker",
    "recorded",
]
