"""Over Streamable HTTP under a real server: who is answered, and as whom."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import mcp_types as mcp
import pytest
from mcp import Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

from tests.agent.client import MODES, call
from tests.agent.conftest import ALL
from tests.dashboard.serving import Served
from towline import Towline, agent
from towline.agent import Viewer

TOKEN = "a token of enough length"
ASK = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


@contextmanager
def served(app: Towline, **settings: Any) -> Iterator[str]:
    """Mounted, as an application does it."""
    site = Starlette(routes=[Mount("/mcp", agent.asgi(app, **settings))])
    server = Served(site)
    try:
        yield f"{server.url}/mcp/"
    finally:
        server.stop()


@pytest.mark.parametrize("mode", MODES)
def test_A6_over_http_the_history_has_client_and_viewer(app: Towline, mode: str) -> None:
    """And a person is asked by who can ask: over HTTP the newer protocol can."""
    asked: list[str] = []

    async def agree(context: Any, params: Any) -> mcp.ElicitResult:
        asked.append(params.message)
        return mcp.ElicitResult(action="accept", content={"confirm": True})

    async def visit(url: str) -> None:
        who = mcp.Implementation(name="inspector", version="1")
        async with Client(url, mode=mode, client_info=who, elicitation_callback=agree) as client:
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert "enqueue" in names
            assert "pause_queue" not in names  # which this viewer may not
            given = {"task": "add", "arguments": {"a": 1}, "request_id": "r"}
            job = (await call(client, "enqueue", **given)).data["id"]
            assert (await call(client, "pause_queue", queue="mail")).refused
            waited = await call(client, "wait", id=job, seconds=0.01)
            assert waited.data["ended"] is False
            filter = {"task": "add"}
            token = (await call(client, "cancel_jobs", filter=filter)).data["confirm"]
            done = await call(client, "cancel_jobs", filter=filter, confirm=token)
            assert done.data == {"changed": 1}

    def authorize(request: Request) -> Viewer:
        return Viewer("ada", frozenset({"enqueue", "cancel", "delete"}))

    with served(app, authorize=authorize, allow=ALL) as url:
        asyncio.run(visit(url))
    name = "inspector" if mode == MODES[0] else "python-httpx2"
    assert {line.by for line in app.audit()} == {f"mcp:{name} (ada)"}
    assert app.paused() == []
    assert len(asked) == (mode == MODES[0])


def test_X2_without_a_token_only_this_machine_is_answered_under_its_own_name(app: Towline) -> None:
    with served(app, allow=ALL) as url, httpx.Client(headers=HEADERS) as client:
        assert client.post(url, json=ASK).status_code == 200
        for headers in (
            {"host": "evil.example"},
            {"origin": "http://evil.example"},
            {"sec-fetch-site": "cross-site"},
            {"x-forwarded-for": "1.2.3.4"},
        ):
            answer = client.post(url, json=ASK, headers=headers)
            assert answer.status_code == 403, headers
            assert "tools" not in answer.text
        plain = client.post(url, content=b"{}", headers={"content-type": "text/plain"})
        assert plain.status_code == 403
        for method in ("GET", "DELETE", "PUT"):
            assert client.request(method, url).status_code == 405
        assert client.post(url, content=b"x" * 2_000_000).status_code == 413


def test_X2_with_a_token_or_authorize_nobody_else_is_answered(app: Towline) -> None:
    with served(app, token=TOKEN) as url, httpx.Client(headers=HEADERS) as client:
        assert client.post(url, json=ASK).status_code == 401
        wrong = {"authorization": f"Bearer {TOKEN}x"}
        assert client.post(url, json=ASK, headers=wrong).status_code == 401
        right = {"authorization": f"Bearer {TOKEN}"}
        assert client.post(url, json=ASK, headers=right).status_code == 200
    with served(app, authorize=lambda _: None) as url, httpx.Client(headers=HEADERS) as client:
        assert client.post(url, json=ASK).status_code == 403
    with served(app, hosts=["jobs.example"]) as url, httpx.Client(headers=HEADERS) as client:
        assert client.post(url, json=ASK).status_code == 421
        named = {"host": "jobs.example"}
        assert client.post(url, json=ASK, headers=named).status_code == 200


def test_it_can_be_served_on_its_own(app: Towline) -> None:
    """With the begin and end of a server, which a mounted one is not told of."""
    said: list[str] = []

    async def live() -> None:
        events = iter(("lifespan.startup", "lifespan.shutdown"))

        async def receive() -> Any:
            return {"type": next(events)}

        async def send(message: Any) -> None:
            said.append(message["type"])

        await agent.asgi(app)({"type": "lifespan"}, receive, send)

    asyncio.run(live())
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
