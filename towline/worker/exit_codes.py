"""Exit codes of a worker's process, for its supervisor and for scripts."""

from __future__ import annotations

STOPPED = 0  # in order, or drained
BROKEN = 1  # by an error; a supervisor: something had to be killed, or kept dying
WRONG_USAGE = 2  # the command makes no sense, or the application cannot be imported
STOPPED_AT_ONCE = 3  # by a second signal
NO_DATABASE = 4  # it cannot be used, or did not answer when what is left should be written
