"""An app whose task runs in a process, at module level where that finds it. It is not instrumented
here, so the process knows nothing of spans."""

from __future__ import annotations

import logging

from towline import Next, Towline

app = Towline()


@app.task
def follows() -> int:
    return 2


@app.task(run_in="process")
def logs() -> Next[int]:
    logging.getLogger("shop").warning("from the process")
    return follows.then()


@app.task(run_in="process")
def quick() -> None: ...
