"""The pages on OpenTelemetry and Sentry run (opentelemetry.md, sentry.md), and name all that
there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, program_of, run
from towline.telemetry.otel import conventions

PAGES = ROOT / "docs" / "guides" / "see"


@pytest.mark.parametrize("name", ["opentelemetry", "sentry"])
def test_the_page_runs(tmp_path: Path, name: str) -> None:
    run(program_of(PAGES / f"{name}.md"), tmp_path)


def test_the_page_names_every_attribute_and_instrument() -> None:
    page = (PAGES / "opentelemetry.md").read_text("utf-8")
    names = {value for name, value in vars(conventions).items() if name.isupper()}
    attributes = {name for name in names if isinstance(name, str) and re.match(r"\w+\.\w", name)}
    source = (ROOT / "towline/telemetry/otel/instruments.py").read_text("utf-8")
    instruments = set(re.findall(r'"((?:messaging|towline)\.[\w.]+)"', source))
    assert len(attributes) > 10
    assert len(instruments) >= 13
    for name in sorted(attributes | instruments):
        short = f"`.{name.rpartition('.')[2]}`"  # behind another of its kind
        assert f"`{name}`" in page or short in page, name
