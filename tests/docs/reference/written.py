"""Which pages are written from code, and by which module."""

from __future__ import annotations

from collections.abc import Callable

from tests.docs.blocks import ROOT
from tests.docs.reference import (
    api,
    changelog,
    commands,
    errors,
    events,
    log_fields,
    mcp_tools,
    metrics,
    settings,
    spans,
    tables,
)

FOLDER = ROOT / "docs" / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "api.md": api.page,
    "changelog.md": changelog.page,
    "commands.md": commands.page,
    "errors.md": errors.page,
    "events.md": events.page,
    "log-fields.md": log_fields.page,
    "mcp-tools.md": mcp_tools.page,
    "metrics.md": metrics.page,
    "settings.md": settings.page,
    "spans.md": spans.page,
    "tables.md": tables.page,
}


def write() -> None:
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")
            print(f"docs/reference/{name} is written anew")
