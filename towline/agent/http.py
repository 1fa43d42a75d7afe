"""Agents over Streamable HTTP: an ASGI application to be mounted, behind the rules of access that
the dashboard has. No session is kept: any process of a site may answer any request."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse

from ..access import Access
from .server import VIEWER

if TYPE_CHECKING:
    from mcp.server import Server
    from starlette.types import Receive, Scope, Send

LARGEST = 1024 * 1024  # bytes of a request


class Site:
    """The ASGI application of an agent's server."""

    def __init__(self, server: Server[Any], access: Access) -> None:
        self._server = server
        self._access = access
        self._loop: asyncio.AbstractEventLoop | None = None
        self._holder: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        request = Request(scope, receive)
        try:
            if request.method != "POST":
                raise HTTPException(405, "agents POST here", {"allow": "POST"})
            scope[VIEWER] = await self._access.viewer(request)
        except HTTPException as error:
            answer = JSONResponse({"error": error.detail}, error.status_code, error.headers)
            await answer(scope, receive, send)
            return
        await (await self._sessions()).handle_request(scope, receive, send)

    async def _sessions(self) -> StreamableHTTPSessionManager:
        """What speaks the protocol, one for a loop: a mounted application is told neither of the
        begin nor of the end of its server, so it begins with the first request, and ends with the
        loop."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            self._ready: asyncio.Future[StreamableHTTPSessionManager] = loop.create_future()
            self._holder = loop.create_task(self._hold(self._ready))
        return await asyncio.shield(self._ready)

    async def _hold(self, ready: asyncio.Future[Any]) -> None:
        sessions = StreamableHTTPSessionManager(
            self._server, stateless=True, json_response=True, max_request_body_size=LARGEST
        )
        async with sessions.run():
            ready.set_result(sessions)
            await asyncio.Event().wait()


async def _live(receive: Receive, send: Send) -> None:
    """The server's begin and end, where it is served on its own."""
    while True:
        happened = (await receive())["type"]
        await send({"type": f"{happened}.complete"})
        if happened == "lifespan.shutdown":
            return
