"""The dashboard: one ASGI application, on its own (`towline dashboard`) or mounted anywhere.

    from towline import dashboard
    api.mount("/jobs", dashboard.asgi(app, authorize=staff_only))

A page is a file in `pages/` with its template beside it: a view that makes plain data of a request,
and HTML made of that. `/api` gives the same data as JSON.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from ..access import ALL, Access, Authorize, Permission, Viewer
from .site import Site

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from ..app import Towline

__all__ = ["ALL", "TOKEN_VARIABLE", "Permission", "Viewer", "asgi"]

TOKEN_VARIABLE = "TOWLINE_DASHBOARD_TOKEN"


def asgi(
    app: Towline,
    *,
    token: str | None = None,
    authorize: Authorize | None = None,
    read_only: bool = False,
    hosts: Collection[str] = (),
) -> ASGIApp:
    """The dashboard of an app, for an ASGI server or to be mounted.

    Without a token and without `authorize` it answers this machine only. `authorize(request)`
    answers True or a `Viewer` with a name and permissions, False or None to refuse; it may await.
    With `read_only` there are no actions. `hosts` are the only names it answers under, if given.
    """
    if token is None:
        token = os.environ.get(TOKEN_VARIABLE) or None
    if token is not None and not token.strip():  # meant as one, it must not open the dashboard
        raise ValueError(
            "the token of a dashboard is empty: give it at least 16 characters, or None for none"
        )
    return Site(app, Access(token, authorize, hosts, read_only=read_only)).asgi()
