"""T13: what deploy/ has for Prometheus and Grafana names metrics and labels that exist."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.docs.blocks import ROOT
from towline.telemetry.prometheus.catalogue import METRICS

LABELS = {name: set(metric.labels) for metric in METRICS for name in metric.series}
for name in LABELS:
    if name.endswith("_bucket"):
        LABELS[name].add("le")
KNOWN_LABELS = {"process", "instance", "job"}.union(*LABELS.values())

_SELECTOR = re.compile(r"(towline_\w+)(?:\{([^}]*)\})?")
_GROUPING = re.compile(r"\b(?:by|without|on)\s*\(([^)]*)\)")


def check(expression: str) -> int:
    """Complain about a metric or a label there is not; how many metrics it names."""
    assert expression.count("(") == expression.count(")"), expression
    found = _SELECTOR.findall(expression)
    for name, selectors in found:
        assert name in LABELS, f"{name} in {expression}"
        used = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", selectors))
        assert used <= LABELS[name], f"{used} of {name} in {expression}"
    for names in _GROUPING.findall(expression):
        grouped = {label.strip() for label in names.split(",") if label.strip()}
        assert grouped <= KNOWN_LABELS, f"{grouped} in {expression}"
    return len(found)


def rules() -> list[Any]:
    groups: list[Any] = yaml.safe_load((ROOT / "deploy/alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def test_T13_alerts_name_metrics_that_exist() -> None:
    for rule in rules():
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert check(rule["expr"]) > 0
        assert re.fullmatch(r"\d+m", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        for label in re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]):
            assert label in rule["expr"] or label == "queue", rule
    assert len({rule["alert"] for rule in rules()}) == len(rules()) >= 8


def test_T13_the_dashboard_of_grafana_names_metrics_that_exist() -> None:
    board = json.loads((ROOT / "deploy/grafana.json").read_text())
    shown = 0
    for panel in board["panels"]:
        for target in panel["targets"]:
            expression = target["expr"]
            assert check(expression) > 0, expression
            for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                assert label in expression or label == "queue", expression
            shown += 1
    (queues,) = [v for v in board["templating"]["list"] if v["name"] == "queue"]
    assert check(queues["query"]["query"]) == 1
    every = json.dumps(board) + (ROOT / "deploy/alerts.yml").read_text()
    left = [metric.name for metric in METRICS if metric.name not in every]
    assert left == ["towline_build_info"]
    assert shown >= len(board["panels"])


@pytest.mark.parametrize(
    "wrong",
    ["towline_jobs_ended", 'towline_up{queue="a"}', "sum by (host) (towline_workers)"],
)
def test_the_check_can_fail(wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(wrong)
