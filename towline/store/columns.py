"""The columns of a job's row, taken from the records: a new one is named in `model`, not here."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ..model import JobRecord, NewJob

_RECORD = JobRecord.__struct_fields__
JOB = _RECORD[: _RECORD.index("live_state")]  # of the table `job`, in the order of its record

# Decided when a job is stored; all else is what its caller said.
_DECIDED = ("id", "chain_id", "position", "blockers", "created_at")
_SAID = tuple(name for name in JOB if name not in _DECIDED)
assert {*_SAID} < {*NewJob.__struct_fields__}

# Jobs that are stored as one run have all of this in common.
SHAPE = (*(name for name in _SAID if name not in ("key", "arguments")), "at", "delay")
shape_of = attrgetter(*SHAPE)


# A new job's row of the table `job`, with which its record begins, too: of the job and of its id,
# chain, position, number of blockers and time. Written out as if by hand: a batch may have 100,000,
# and getters take twice as long.
_value = {name: f"job.{name}" for name in _SAID} | {"policy": "int(job.policy)"}
row_of: Callable[[NewJob, int, int, int, int, int], tuple[Any, ...]] = eval(
    f"lambda job, {', '.join(_DECIDED)}: ({', '.join(_value.get(name, name) for name in JOB)})"
)

new_record: Callable[..., JobRecord] = JobRecord  # of that row, state, …, run_at
