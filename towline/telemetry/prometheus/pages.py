"""Pages of several processes as one: each number says of which it is."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client.core import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.parser import text_string_to_metric_families

LABEL = "process"


class Merged:
    """What a registry is to the client: it can be collected."""

    def __init__(self, pages: Mapping[int, bytes]) -> None:
        self._families: dict[str, Family] = {}
        for number, page in sorted(pages.items()):
            for family in text_string_to_metric_families(page.decode()):
                self._add(family, str(number))

    def _add(self, family: Family, number: str) -> None:
        found = self._families.setdefault(
            family.name, Family(family.name, family.documentation, family.type)
        )
        for sample in family.samples:
            labels = dict(sample.labels)
            if LABEL in labels:  # the application's own
                labels[f"exported_{LABEL}"] = labels.pop(LABEL)
            found.samples.append(sample._replace(labels={**labels, LABEL: number}))

    def collect(self) -> list[Family]:
        return list(self._families.values())


def merged(pages: Mapping[int, bytes]) -> tuple[bytes, str]:
    """One page of those of these processes, and its kind."""
    return generate_latest(Merged(pages)), CONTENT_TYPE_PLAIN_0_0_4
