"""The reference is what the code says, and has a place for everything that users meet."""

from __future__ import annotations

import inspect

import pytest

import towline
import towline.testing
from tests.docs.reference import api, errors, written
from tests.docs.stage import GOES_ON
from towline.cli.commands import SECTIONS
from towline.task.options import Using
from towline.worker.settings import WorkerSettings

FOLDER = written.FOLDER


@pytest.mark.parametrize("name", written.PAGES)
def test_U3_the_reference_equals_the_code(name: str) -> None:
    said = (FOLDER / name).read_text("utf-8")
    assert said == written.PAGES[name](), "run `make docs` and commit the page"


def test_U5_every_public_name_has_its_place() -> None:
    wrong = {each.__name__ for each in errors.every()}
    assert set(towline.__all__) <= api.names() | wrong
    assert set(towline.testing.__all__) <= api.names()


def test_U5_every_setting_and_option_has_its_place() -> None:
    text = (FOLDER / "settings.md").read_text("utf-8")
    told = [
        *inspect.signature(towline.Towline).parameters,
        *(towline.Task.__init__.__kwdefaults__ or ()),
        *Using.__annotations__,
        *WorkerSettings.__annotations__,
        *towline.Backoff.__struct_fields__,
        *towline.Cron.__struct_fields__,
    ]
    assert [name for name in told if f"| `{name}` |" not in text] == []


def test_U5_every_error_is_in_the_tree_and_in_the_table() -> None:
    text = (FOLDER / "errors.md").read_text("utf-8")
    for each in errors.every():
        assert f"| `{each.__name__}`" in text
        assert f"\n{'    ' * _depth(each)}{each.__name__}\n" in text


def _depth(error: type[BaseException]) -> int:
    """How many of its bases are errors of ours."""
    return sum(base.__module__ == "towline.errors" for base in error.__mro__) - 1


def test_every_command_is_explained() -> None:
    text = (FOLDER / "command-line.md").read_text("utf-8")
    names = [command.name for commands in SECTIONS.values() for command in commands]
    assert [name for name in names if f"`towline {name}" not in text] == []


def test_every_command_says_what_it_does_and_has_json() -> None:
    """All but those that go on until they are stopped."""
    for commands in SECTIONS.values():
        for command in commands:
            assert command.help, command.name
            options = {word for parameter in command.params for word in parameter.opts}
            assert "--json" in options or command.name in GOES_ON, command.name
