"""What a tool is: a name, what it takes, what it does, who may call it, and what hosts are told of
it. The hints are words for the host; the guard is in `server` and `writing`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import mcp_types as mcp
from msgspec import Struct

from ..task.schema import schema_of
from .rules import Allow, Caller, Rules

if TYPE_CHECKING:
    from ..app import Towline  # noqa: TC004 (msgspec never looks at the types)
    from .previews import Previews  # noqa: TC004

Data = dict[str, Any]


class Refused(Exception):
    """What an agent asked for is not done; says why in one sentence, for the model to read."""


class Desk(Struct, frozen=True):
    """One call as a tool sees it: the app, the rules of the server, who asks."""

    app: Towline
    rules: Rules
    previews: Previews
    caller: Caller


class Tool(Struct, frozen=True):
    """One tool. Without `needs` it reads; `run` may wait for the database: it has a thread."""

    name: str
    text: str
    takes: type[Struct]
    run: Callable[[Desk, Any], Data | Awaitable[Data]]
    needs: Allow | None = None
    destroys: bool = False
    repeatable: bool = True  # a second call like the first changes nothing more
    reaches_out: bool = False  # handlers run because of it, and may do anything
    asks: bool = False  # the person at the client is asked before it is done

    def definition(self) -> mcp.Tool:
        return mcp.Tool(
            name=self.name,
            description=self.text,
            input_schema=schema_of(self.takes),
            annotations=mcp.ToolAnnotations(
                read_only_hint=self.needs is None,
                destructive_hint=self.destroys,
                idempotent_hint=self.repeatable,
                open_world_hint=self.reaches_out,
            ),
        )
