"""What is wrong, and what to do about it: the same as `towline doctor`."""

from __future__ import annotations

from msgspec.structs import asdict

from ...doctor import examine
from ..page import Ask, Data, Page


def view(ask: Ask) -> Data:
    return {"findings": [asdict(found) for found in examine(ask.app)]}


PAGE = Page("doctor", "/doctor", "Doctor", view, "What is wrong, and what to do.", key="d")
