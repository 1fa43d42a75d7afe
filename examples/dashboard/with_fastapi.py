"""The dashboard in a FastAPI application, for its own people.

uvicorn examples.dashboard.with_fastapi:api
"""

from __future__ import annotations

import secrets

from fastapi import FastAPI
from starlette.requests import Request

from towline import Towline, dashboard

app = Towline()
api = FastAPI()
STAFF = {"ann": secrets.token_hex()}  # your sessions, in a real application


def staff_only(request: Request) -> dashboard.Viewer | None:
    """Who asks, by the application's own cookie; None refuses."""
    session = request.cookies.get("session", "")
    for name, known in STAFF.items():
        if secrets.compare_digest(session, known):
            return dashboard.Viewer(name, dashboard.ALL - {"delete"})
    return None


@app.task
def greet(name: str) -> str:
    """Say hello."""
    return f"Hello {name}"


@api.post("/greet/{name}")
def later(name: str) -> dict[str, int]:
    return {"job": greet.enqueue(name).id}


api.mount("/admin/jobs", dashboard.asgi(app, authorize=staff_only))
