"""What people did, newest first."""

from __future__ import annotations

from ... import views
from ..page import Ask, Data, Page, Param, number_of

LIMIT, MOST = 50, 500


def view(ask: Ask) -> Data:
    job = ask.text("job")
    page = ask.app.audit(
        job=None if job is None else number_of(job, "job"),
        queue=ask.text("queue"),
        limit=ask.number("limit", LIMIT, MOST),
        cursor=ask.text("cursor"),
    )
    return {"lines": views.audit_data(page), "cursor": page.cursor}


PAGE = Page(
    "audit",
    "/audit",
    "Audit",
    view,
    "What people did to jobs and queues, and to how many, newest first.",
    shows={"lines": ["audit_line"], "cursor": "text?"},
    key="a",
    params=(
        Param("job", "Only what was done to this job."),
        Param("queue", "Only what was done to this queue."),
        Param("cursor", "Go on after an earlier page."),
        Param("limit", f"How many, {LIMIT} if not said, at most {MOST}."),
    ),
)
