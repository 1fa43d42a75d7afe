"""reference/changelog.md: CHANGELOG.md, with its links as they are from there."""

from __future__ import annotations

from tests.docs.blocks import ROOT


def page() -> str:
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    return text.replace("](docs/", "](../")
