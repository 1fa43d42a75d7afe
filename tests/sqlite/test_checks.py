"""The SQLite part of `towline doctor`, whatever version of the library is here."""

from __future__ import annotations

import sqlite3

import pytest

from towline.engine import NOTE, OK
from towline.sqlite.checks import MANY_PAGES, examine


@pytest.mark.parametrize(
    ("version", "level"), [((3, 51, 2), NOTE), ((3, 51, 3), OK), ((4, 0, 0), OK)]
)
def test_a_release_that_can_damage_a_file_is_a_note(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], level: str
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", version)
    (found,) = (each for each in examine((0,)) if each.about == "sqlite")
    assert found.level == level


@pytest.mark.parametrize(("free", "level"), [(0, OK), (MANY_PAGES, NOTE)])
def test_a_file_with_many_free_pages_is_a_note(free: int, level: str) -> None:
    (found,) = (each for each in examine((free,)) if each.about == "size")
    assert found.level == level
    assert found.text.startswith(f"free pages: {free}")
