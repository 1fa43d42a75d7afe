"""The page on deploying names every file of deploy/; what it says of metrics is on another page."""

from __future__ import annotations

from tests.docs.blocks import ROOT

PAGE = ROOT / "docs" / "guides" / "run" / "deploy.md"
OF_METRICS = {"alerts.yml", "grafana.json"}  # guides/see/prometheus.md


def test_U1_the_page_on_deploying_names_every_file() -> None:
    text = PAGE.read_text("utf-8")
    names = {path.name for path in (ROOT / "deploy").iterdir()} - OF_METRICS
    assert [name for name in sorted(names) if f"`deploy/{name}`" not in text] == []
