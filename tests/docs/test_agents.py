"""docs/guides/with/agents.md names all tools."""

from __future__ import annotations

import re

from tests.docs.blocks import ROOT
from towline.agent.server import TOOLS

PAGE = ROOT / "docs" / "guides" / "with" / "agents.md"


def test_the_page_lists_the_tools_and_what_allows_them() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (?:`(\w+)`)? ?\|", PAGE.read_text("utf-8"), re.MULTILINE)
    assert rows == [(tool.name, tool.needs or "") for tool in TOOLS.values()]
