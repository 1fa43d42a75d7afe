"""One job: its state and why, what went in and came out, every attempt over time."""

from __future__ import annotations

import json

from ... import views
from ...model import State
from ...secret import HIDDEN
from .. import values
from ..page import Ask, Data, Page
from ..timeline import timeline

MOST = 100  # attempts that are drawn


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
        "most": MOST,
        "typed": values.typed(app, data),
        "copies": values.copies(app, data),
        "timeline": timeline([data], str(views.time_text(app.now()))),
        "hides": HIDDEN in json.dumps([data["arguments"], data["output"]]),
        "dependents": [views.dependent_data(found) for found in app.dependents(job.chain_id)],
        "actions": [name for name, fits in actions.items() if fits and name in ask.viewer.may],
    }


PAGE = Page(
    "job", "/jobs/{id:int}", "Job", view, "Everything about one job.",
    shows={
        "job": "full_job", "most": "number",
        "typed": {"arguments": ["value"], "output": "value"}, "copies": "object",
        "timeline": "timeline", "hides": "flag", "dependents": ["dependent"], "actions": ["text"],
    },
)  # fmt: skip
