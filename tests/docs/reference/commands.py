"""reference/commands.md: the help of every command."""

from __future__ import annotations

from collections.abc import Iterator

import click

from towline.cli.commands import SECTIONS, group

WIDTH = 100
HEAD = """# Every command

What `towline --help` and `towline COMMAND --help` print; what it means is in
[the command line](command-line.md).
"""


def page() -> str:
    return "\n".join(_parts())


def _parts() -> Iterator[str]:
    settings = {**group.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    whole = click.Context(group, info_name="towline", **settings)
    yield HEAD
    yield _block(group.get_help(whole))
    for title, commands in SECTIONS.items():
        yield f"## {title}\n"
        for command in commands:
            context = click.Context(command, info_name=command.name, parent=whole)
            yield f"### {command.name}\n"
            yield _block(command.get_help(context))


def _block(text: str) -> str:
    lines = "\n".join(line.rstrip() for line in text.splitlines())
    return f"```text\n{lines}\n```\n"
