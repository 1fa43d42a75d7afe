"""What is wrong, and what to do about it: the same as `towline doctor`."""

from __future__ import annotations

from msgspec.structs import asdict

from ...doctor import examine
from ..page import Ask, Data, Page

LEVELS = ("problem", "note", "ok")  # what is wrong comes first


def view(ask: Ask) -> Data:
    findings = sorted(examine(ask.app), key=lambda found: LEVELS.index(found.level))
    return {"findings": [asdict(found) for found in findings]}


PAGE = Page(
    "doctor",
    "/doctor",
    "Doctor",
    view,
    "What is wrong, and what to do.",
    shows={"findings": [{"level": "text", "about": "text", "text": "text", "advice": "text?"}]},
    key="d",
)
