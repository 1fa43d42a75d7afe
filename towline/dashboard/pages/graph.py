"""A chain with all that it waits for and all that needs it, as a drawing and as a table."""

from __future__ import annotations

from ..collapsed import graph_data
from ..page import Ask, Data, Page


def view(ask: Ask) -> Data:
    return {"id": ask.id, "graph": graph_data(ask.app, ask.id)}


PAGE = Page(
    "graph",
    "/chains/{id:int}/graph",
    "Graph",
    view,
    "A chain, what it waits for and what needs it, as nodes and edges; alike ones are one node.",
    shows={
        "id": "id",
        "graph": {
            "nodes": [{
                "id": "id", "task": "text", "tasks": "number", "state": "text", "chains": "number",
                "waits_for": ["id"], "needed_by": ["id"],
            }],
            "edges": [["id"]], "chains": "number", "complete": "flag",
        },
    },
)  # fmt: skip
