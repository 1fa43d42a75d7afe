"""Agents: an MCP server for an app, over stdio (`towline mcp`) or mounted in an ASGI application.

    from towline import agent
    api.mount("/mcp", agent.asgi(app, authorize=staff_only, allow={"retry"}))

A tool is a function in `reading` or `writing`; what an agent may do is said by who starts the
server (`rules`), and checked in the transaction that does it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from ..access import Access, Authorize, Viewer
from .http import Site
from .rules import Allow, Show, rules_of
from .server import Agent

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.types import ASGIApp

    from ..app import Towline

__all__ = ["Allow", "Show", "Viewer", "asgi", "server"]


def server(
    app: Towline,
    *,
    allow: Iterable[str] = (),
    tasks: Iterable[str] | None = None,
    show: Iterable[str] = (),
) -> Server[Any]:
    """The server of an app, as the SDK has it; without `allow` it reads only.

    `allow`: enqueue, retry, cancel, run, pause. `tasks`: the only ones whose jobs may be stored or
    changed. `show`: payloads, errors; texts of the database, which are hidden otherwise.
    """
    return Agent(app, rules_of(app, allow, tasks, show)).server


def asgi(
    app: Towline,
    *,
    token: str | None = None,
    authorize: Authorize | None = None,
    allow: Iterable[str] = (),
    tasks: Iterable[str] | None = None,
    show: Iterable[str] = (),
    hosts: Collection[str] = (),
) -> ASGIApp:
    """The same over Streamable HTTP, for an ASGI server or to be mounted.

    Without a token and without `authorize` it answers this machine only, as the dashboard does. Of
    a `Viewer` that `authorize` answers with, the permissions bound what is allowed.
    """
    access = Access(token, authorize, hosts, read_only=False, name="agent server")
    return Site(server(app, allow=allow, tasks=tasks, show=show), access)
