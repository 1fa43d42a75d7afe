"""The pages on OpenTelemetry and Sentry run (opentelemetry.md, sentry.md)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, program_of, run

PAGES = ROOT / "docs" / "guides" / "see"


@pytest.mark.parametrize("name", ["opentelemetry", "sentry"])
def test_the_page_runs(tmp_path: Path, name: str) -> None:
    run(program_of(PAGES / f"{name}.md"), tmp_path)
