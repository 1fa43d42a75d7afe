"""Exit codes of commands, workers and supervisors, and what each stands for."""

from __future__ import annotations

import signal

OK, FAILED, USAGE, AT_ONCE, DATABASE = range(5)
INTERRUPTED = 128 + signal.SIGINT

MEANING = {
    OK: "it worked; a worker: stopped in order, or drained",
    FAILED: "it did not work: no such job, not in that state; doctor: found a problem",
    USAGE: "wrong usage, or the application cannot be imported",
    AT_ONCE: "a worker was stopped at once, by a second signal",
    DATABASE: "the database cannot be used: away, read-only, no or other tables",
}
