"""docs/guides/with/agents.md names all tools; docs/reference/mcp-tools.md is made of them."""

from __future__ import annotations

from tests.docs.blocks import ROOT
from towline.agent.server import TOOLS

PAGE = ROOT / "docs" / "guides" / "with" / "agents.md"


def test_the_page_names_the_tools() -> None:
    text = PAGE.read_text("utf-8")
    assert [name for name in TOOLS if f"`{name}`" not in text] == []
