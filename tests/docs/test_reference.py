"""The reference is what the code says, and has a place for everything that users meet."""

from __future__ import annotations

import inspect
from pkgutil import iter_modules

import pytest

import towline
from tests.docs.commands import BEGUN
from tests.docs.reference import api, errors, settings, shown, written
from towline.cli.commands import SECTIONS
from towline.otel import instrument
from towline.prometheus import Metrics
from towline.task.options import Using
from towline.worker.settings import WorkerSettings

FOLDER = written.FOLDER
# Commands that print no data: they go on until they are stopped, or talk with somebody.
WITHOUT_DATA = {*BEGUN, "top", "mcp", "shell"}
# Modules below `towline` that are no doors: those with a page, and those for its own use.
PAGES = {"cli", "errors", "events", "pytest_plugin"}
OURS = {
    "__main__", "access", "app", "brief", "connections", "cron", "doctor", "engine", "executor",
    "exit_codes", "migrate", "model", "naming", "operation", "postgres", "records",
    "runner", "schedule", "secret", "sql", "sqlite", "store", "task", "telemetry", "text", "ticks",
    "times", "version", "views", "wakes", "worker",
}  # fmt: skip


@pytest.mark.parametrize("name", written.PAGES)
def test_U3_the_reference_equals_the_code(name: str) -> None:
    said = (FOLDER / name).read_text("utf-8")
    assert said == written.PAGES[name](), "run `make docs` and commit the page"


def test_U5_every_public_name_has_its_place() -> None:
    wrong = {each.__name__ for each in errors.every()}
    assert set(towline.__all__) <= {name for _, name in api.names()} | wrong
    for door in api.DOORS:
        offered = {(door, name) for name in shown.public(door)}
        assert offered <= api.names() | api.OURS_ALONE, f"no place for {offered - api.names()}"


def test_U5_there_are_no_other_doors() -> None:
    """A module below `towline` itself is one, has a page, or is for the package's own use."""
    doors = {door.partition(".")[0] for door in api.DOORS}
    assert doors | PAGES | OURS == {found.name for found in iter_modules(towline.__path__)}


def test_U5_every_fixture_and_setting_of_pytest_has_its_place() -> None:
    assert len(api.fixtures()) == (FOLDER / "api.md").read_text("utf-8").count("\n- `towline_")
    text = (FOLDER / "settings.md").read_text("utf-8")
    assert list(settings.of_pytest()) == ["towline_app", "towline_url"]
    assert [name for name in settings.of_pytest() if f"| `{name}` |" not in text] == []


def test_U5_names_without_a_list_of_them_are_found_too() -> None:
    assert shown.public("integrations.asgi") == {"lifespan"}
    assert shown.public("integrations.sentry") == {"report", "Reporter"}
    assert shown.public("otel") == {"FollowLinks", "instrument", "uninstrument"}


def test_U5_every_setting_and_option_has_its_place() -> None:
    text = (FOLDER / "settings.md").read_text("utf-8")
    told = [
        *inspect.signature(towline.Towline).parameters,
        *(towline.Task.__init__.__kwdefaults__ or ()),
        *Using.__annotations__,
        *WorkerSettings.__annotations__,
        *towline.Backoff.__struct_fields__,
        *towline.Cron.__struct_fields__,
        *(instrument.__kwdefaults__ or ()),
        *(Metrics.__init__.__kwdefaults__ or ()),
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
            assert "--json" in options or command.name in WITHOUT_DATA, command.name
