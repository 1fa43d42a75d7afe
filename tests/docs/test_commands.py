"""What the documents say of the command line is what it says itself."""

from __future__ import annotations

from tests.docs.commands import PAGE, page
from towline.cli.commands import SECTIONS

GOES_ON = ("worker", "dev", "top", "dashboard")


def test_the_help_of_every_command_is_in_the_documents() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.docs.commands` and commit the page"


def test_every_command_is_explained() -> None:
    text = (PAGE.parent / "command-line.md").read_text()
    names = [command.name for commands in SECTIONS.values() for command in commands]
    assert [name for name in names if f"`towline {name}" not in text] == []


def test_every_command_says_what_it_does_and_has_json() -> None:
    """All but those that go on until they are stopped."""
    for commands in SECTIONS.values():
        for command in commands:
            assert command.help, command.name
            options = {word for parameter in command.params for word in parameter.opts}
            assert "--json" in options or command.name in GOES_ON, command.name
