"""An agent: the SDK's own client, connected in memory, asking one thing after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, TypeVar

import mcp_types as mcp
from mcp import Client
from mcp.server import Server

T = TypeVar("T")

MODES = ("2026-07-28", "legacy")
Elicit = Callable[[Any, Any], Awaitable[mcp.ElicitResult]]


class Answer(NamedTuple):
    """What a tool said."""

    data: dict[str, Any]
    text: str
    refused: bool


async def call(client: Client, tool: str, **arguments: Any) -> Answer:
    found = await client.call_tool(tool, arguments)
    (content,) = found.content
    assert isinstance(content, mcp.TextContent)
    return Answer(found.structured_content or {}, content.text, found.is_error)


class Visitor:
    """A client that comes anew for each call: what must be remembered, the server remembers."""

    def __init__(
        self,
        server: Server[Any],
        mode: str = "auto",
        name: str = "tester",
        answers: Elicit | None = None,
    ) -> None:
        self._server = server
        self._settings: dict[str, Any] = {
            "mode": mode,
            "client_info": mcp.Implementation(name=name, version="1"),
            "elicitation_callback": answers,
        }

    def together(self, visit: Callable[[Client], Awaitable[T]]) -> T:
        """What one connection is used for."""

        async def visited() -> T:
            async with Client(self._server, **self._settings) as client:
                return await visit(client)

        return asyncio.run(visited())

    def ask(self, tool: str, **arguments: Any) -> Answer:
        return self.together(lambda client: call(client, tool, **arguments))

    def get(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The data of an answer that is no refusal."""
        answer = self.ask(tool, **arguments)
        assert not answer.refused, answer.text
        return answer.data

    def refusal(self, tool: str, **arguments: Any) -> str:
        answer = self.ask(tool, **arguments)
        assert answer.refused, answer.text
        assert "\n" not in answer.text
        return answer.text

    def tools(self) -> list[mcp.Tool]:
        async def listed(client: Client) -> list[mcp.Tool]:
            return (await client.list_tools()).tools

        return self.together(listed)
