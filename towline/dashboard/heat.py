"""Heat maps: how long jobs ran, or waited, over time.

A column is a stretch of time, a row one of the histogram's buckets, and a cell says which share of
the column's jobs took so long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .. import views
from ..app.rollups import BOUNDS, EndedJobs, Times, together
from .page import Data
from .periods import Step

COLUMNS = 61  # at most, as an hour has minutes, the first and the last in part
_WORDS = [f"{bound:g} s" if bound >= 1 else f"{1000 * bound:g} ms" for bound in BOUNDS]
ROWS = [*(f"below {words}" for words in _WORDS), f"{_WORDS[-1]} and more"]


def heat_data(steps: Sequence[Step], times: Callable[[EndedJobs], Times]) -> Data:
    """The cells that have jobs; rows are counted from the fastest."""
    wide = -(-len(steps) // COLUMNS)
    columns = [steps[first : first + wide] for first in range(0, len(steps), wide)]
    cells: list[Data] = []
    for number, column in enumerate(columns):
        jobs = together(times(jobs) for step in column for jobs in step.ended).histogram
        cells += [
            {
                "at": views.time_text(column[0].at),
                "column": number,
                "row": row,
                "jobs": in_it,
                "share": in_it / sum(jobs),
            }
            for row, in_it in enumerate(jobs)
            if in_it
        ]
    return {"columns": len(columns), "rows": ROWS, "cells": cells}
