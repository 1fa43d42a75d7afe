"""docs/commands.md: the help of every command. `python -m tests.docs.commands` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from towline.cli.commands import SECTIONS, group

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"
WIDTH = 100
HEAD = """# Every command

What `towline --help` and `towline COMMAND --help` print; what it means is in
[command-line.md](command-line.md). This page is written by `python -m tests.docs.commands`.
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


if __name__ == "__main__":
    PAGE.write_text(page())
