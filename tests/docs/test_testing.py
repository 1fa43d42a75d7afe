"""The page on testing names everything there is; tests/docs/test_pages.py runs it."""

from __future__ import annotations

import towline.testing
from tests.docs.blocks import ROOT
from tests.docs.reference import api

PAGE = ROOT / "docs" / "guides" / "write" / "testing.md"


def test_the_page_names_everything_there_is() -> None:
    text = PAGE.read_text("utf-8")
    missing = [name for name in towline.testing.__all__ if f"{name}(" not in text]
    assert missing == ["Crash"]  # which nobody needs to catch
    assert [name for name in api.fixtures() if f"| `{name}` |" not in text] == []
