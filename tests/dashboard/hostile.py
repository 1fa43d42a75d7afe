"""Jobs whose every text tries what stored text may try: markup, another direction of writing,
control characters. Stored past the checks of the library, as another hand could."""

from __future__ import annotations

import json
from typing import Any

from tests.dashboard.conftest import HOSTILE
from tests.kit import claim, new, register
from towline import Towline
from towline.model import Outcome, Policy
from towline.operation import Op, Steps
from towline.records import Ending, NewBlocker, NewJob

ARGUMENTS = json.dumps({HOSTILE: [HOSTILE], "api_token": HOSTILE})


def job(**fields: Any) -> NewJob:
    texts: dict[str, Any] = {"queue": HOSTILE, "label": HOSTILE, "arguments": ARGUMENTS}
    return new(HOSTILE, **{**texts, **fields})


def store_hostile(app: Towline) -> dict[str, int]:
    """One that failed, one that completed, one that runs, one that waits for all of them."""
    store = app.runner.store

    def script() -> Steps[dict[str, int]]:
        jobs = [job(max_attempts=1), job(), job(key=HOSTILE)]
        bad, good, runs = [record.id for record, _ in (yield from store.enqueue(jobs))]
        blockers = [NewBlocker(chain_id=id, name=f"{HOSTILE}{id}") for id in (bad, good, runs)]
        waits, *_ = yield from store.enqueue([job(blockers=blockers, policy=Policy.WAIT)])
        worker = yield from register(store, HOSTILE)
        held = yield from claim(store, 3, worker, [HOSTILE])
        error = f"Traceback\n{HOSTILE}"
        yield from store.finish(
            [
                Ending(held[0], Outcome.FAILED, error=error, error_type=HOSTILE),
                Ending(held[1], Outcome.COMPLETED, output=json.dumps({HOSTILE: HOSTILE})),
            ],
            HOSTILE,
        )
        yield from store.progress([(held[2], 0.5, HOSTILE)])
        yield from store.pause(HOSTILE, HOSTILE)
        return {"bad": bad, "good": good, "runs": runs, "waits": waits.record.id}

    return app.runner.run(Op("hostile", script))
