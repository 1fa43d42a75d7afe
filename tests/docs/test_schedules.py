"""The page on schedules names every setting of a Cron; tests/docs/test_pages.py runs it."""

from __future__ import annotations

import pytest

from tests.docs.blocks import ROOT
from towline.cron import Cron

PAGE = ROOT / "docs" / "guides" / "write" / "schedules.md"


@pytest.mark.parametrize("name", [*Cron.__struct_fields__[2:]])
def test_the_page_names_every_setting(name: str) -> None:
    assert f"`{name}`" in PAGE.read_text("utf-8")
