"""One job: its state and why, what went in and came out, every attempt."""

from __future__ import annotations

import json

from ... import views
from ...model import State
from ...secret import HIDDEN
from ..page import Ask, Data, Page


def view(ask: Ask) -> Data:
    app = ask.app
    job = app.job(ask.id)
    data = views.full_job_data(app, job)
    state = job.state
    actions = {
        "retry": state in (State.FAILED, State.CANCELLED),
        "cancel": state.open,
        "run": state is State.SCHEDULED,
        "delete": True,
    }
    return {
        "job": data,
        "hides": HIDDEN in json.dumps([data["arguments"], data["output"]]),
        "dependents": [views.dependent_data(found) for found in app.dependents(job.chain_id)],
        "actions": [name for name, fits in actions.items() if fits and name in ask.viewer.may],
    }


PAGE = Page("job", "/jobs/{id:int}", "Job", view, "Everything about one job.")
