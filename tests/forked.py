"""Processes of a test's own, forked from one that has imported what they need and opened nothing:
to start Python and to import us takes each a third of a second of a core."""

from __future__ import annotations

import multiprocessing

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [
        "pytest",
        "psycopg",
        "tests.faults.fresh",
        "tests.races.fan_in",
        "towline.postgres.engine",
        "towline.sqlite.engine",
        "towline.worker",
        "towline.worker.slots.loop",
    ]
)
