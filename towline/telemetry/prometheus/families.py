"""Numbers by labels, and what prometheus-client makes a page of."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.utils import floatToGoString

from .catalogue import SECONDS, Metric

Values = tuple[str, ...]  # of the labels of a metric


class Histogram:
    """How many took how long, by labels: one thread adds, others read."""

    def __init__(self) -> None:
        self._rows: dict[Values, list[float]] = {}  # a number for each bucket, and the sum

    def add(self, values: Values, seconds: float) -> None:
        row = self.row(values)
        row[bisect_left(SECONDS, seconds)] += 1
        row[-1] += seconds

    def row(self, values: Values) -> list[float]:
        """To add to: a number for each bucket, and the sum."""
        found = self._rows.get(values)
        if found is None:
            found = self._rows[values] = [0.0] * (len(SECONDS) + 2)
        return found

    def rows(self) -> Iterable[tuple[Values, Sequence[float], float]]:
        for values, row in self._rows.copy().items():
            *numbers, total = row.copy()
            yield values, numbers, total


def numbers(metric: Metric, found: Mapping[Values, float]) -> Family:
    """The family of a counter or a gauge."""
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for values, number in found.items():
        family.add_metric(values, number)
    return family


def histogram(
    metric: Metric,
    bounds: Sequence[float],
    rows: Iterable[tuple[Values, Sequence[float], float]],
) -> Family:
    """The family of a histogram; a row has a number for each bucket, the last without a bound."""
    words = [*map(floatToGoString, bounds), "+Inf"]
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    for values, counts, total in rows:
        below, buckets = 0.0, list[tuple[str, float]]()
        for word, number in zip(words, counts, strict=True):
            below += number
            buckets.append((word, below))
        family.add_metric(values, buckets, total)
    return family


def described(metrics: Iterable[Metric]) -> list[Family]:
    """Without numbers: a registry asks what there will be."""
    return [
        histogram(metric, (), ()) if metric.kind == "histogram" else numbers(metric, {})
        for metric in metrics
    ]
