"""`towline mcp`: the app for agents, over stdin and stdout."""

from __future__ import annotations

from typing import Any

import click

from ..app import Towline
from .ending import CommandError
from .target import Command


class Wired(Command):
    """A command whose stdin and stdout carry a protocol, before the app is imported."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            from ..agent.stdio import Wire
        except ModuleNotFoundError as error:
            raise CommandError(f"agents need {error.name}: pip install -e '.[mcp]'") from error
        ctx.params["wire"] = Wire()
        return super().invoke(ctx)


def words_of(_: click.Context, __: click.Parameter, given: str | None) -> list[str] | None:
    """Words with commas between them."""
    return None if given is None else [word.strip() for word in given.split(",") if word.strip()]


@click.command(cls=Wired)
@click.option(
    "--allow",
    metavar="WORDS",
    callback=words_of,
    help="What may be changed: enqueue, retry, cancel, run, pause, with commas; else nothing.",
)
@click.option(
    "--tasks",
    metavar="NAMES",
    callback=words_of,
    help="The only tasks whose jobs may be stored or changed.",
)
@click.option(
    "--show",
    metavar="WORDS",
    callback=words_of,
    help="Texts that are given out: payloads, errors; else none.",
)
def mcp(
    app: Towline,
    wire: Any,
    allow: list[str] | None,
    tasks: list[str] | None,
    show: list[str] | None,
) -> None:
    """Serve an agent over stdin and stdout (MCP), reading only unless more is allowed.

    An agent's client starts this. It ends when the client closes stdin.
    """
    from .. import agent

    wire.serve(agent.server(app, allow=allow or (), tasks=tasks, show=show or ()))
