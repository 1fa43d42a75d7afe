"""The columns of a job's row, taken from the records (a new one is named in `records`, not here);
and those of a roll-up."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

from ..records import JobRecord, NewJob

_RECORD = JobRecord.__struct_fields__
JOB = _RECORD[: _RECORD.index("live_state")]  # of the table `job`, in the order of its record

# Decided when a job is stored; all else is what its caller said.
_DECIDED = ("id", "chain_id", "position", "blockers", "created_at")
_SAID = tuple(name for name in JOB if name not in _DECIDED)
assert {*_SAID} < {*NewJob.__struct_fields__}

# What few jobs have: a plain one has nothing of it.
RARE = ("lane", "weight", "expires_at", "schedule", "tick", "ordered")
_rare_of = attrgetter(*RARE, "expires")
_NOTHING = (None,) * (len(RARE) + 1)

# Jobs that are stored as one run have all of this in common.
SHAPE = (*(n for n in _SAID if n not in ("key", "arguments", *RARE)), "at", "delay")
shape_of = attrgetter(*SHAPE)


LANED = (*SHAPE, "lane", "weight")
laned_of = attrgetter(*LANED)


def is_plain(job: NewJob) -> bool:
    """Whether a job has no key, no blockers, and nothing of what few jobs have."""
    return job.key is None and not job.blockers and _rare_of(job) == _NOTHING


def is_simple(job: NewJob) -> bool:
    """Whether a job has, at most, a lane and a weight beyond what a plain one has."""
    return job.key is None and not job.blockers and _rare_of(job)[2:] == _NOTHING[2:]


# A new job's row of the table `job`, with which its record begins, too: of the job and of its id,
# chain, position, number of blockers and time. Written out as if by hand: a batch may have 100,000,
# and getters take twice as long.
_value = {name: f"job.{name}" for name in _SAID} | {"policy": "int(job.policy)"}
row_of: Callable[[NewJob, int, int, int, int, int], tuple[Any, ...]] = eval(
    f"lambda job, {', '.join(_DECIDED)}: ({', '.join(_value.get(name, name) for name in JOB)})"
)

# Of that row: what few jobs have stands together in it, with something before it and behind it.
FIRST_RARE, BEHIND_RARE = JOB.index(RARE[0]), JOB.index(RARE[-1]) + 1
NOTHING_RARE = _NOTHING[1:]
assert JOB[FIRST_RARE:BEHIND_RARE] == RARE

new_record: Callable[..., JobRecord] = JobRecord  # of that row, state, …, run_at

# A roll-up: what it counts, and its numbers. It has two times of those that ran, each as the sum
# and a histogram: how many were below each of these bounds (microseconds), and above the last.
BUCKETS = (1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000, 1_000_000_000)
_NUMBERS = range(len(BUCKETS) + 1)
COUNTER = ("minute", "queue", "task", "outcome", "slot")
COUNTED = (
    *("ended", "removed"),
    *("duration", *(f"h{n}" for n in _NUMBERS)),
    *("waited", *(f"w{n}" for n in _NUMBERS)),
)
ROLLUP = (*COUNTER, *COUNTED)
RUN, WAIT = COUNTED.index("duration"), COUNTED.index("waited")
