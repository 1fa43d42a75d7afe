"""reference/metrics.md: what Prometheus scrapes and OpenTelemetry collects; names, labels and what
they say are the code's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tests.docs.reference import shown
from tests.docs.reference.told import Told, names_of_cluster, told
from towline.telemetry.labels import MOST_ERROR_TYPES, MOST_QUEUES, MOST_TASKS, OTHER
from towline.telemetry.otel import conventions
from towline.telemetry.prometheus import catalogue
from towline.telemetry.prometheus.cluster import BOUNDS

HEAD = f"""# Metrics

Counted after the commit of what they tell of. A process keeps the first {MOST_QUEUES} queues,
{MOST_TASKS} tasks and {MOST_ERROR_TYPES} error types as values; further ones, and tasks it does
not know, are `{OTHER}`. Workers, hosts, ids, arguments and texts are never in one. How to switch
them on: [Prometheus](../guides/see/prometheus.md), [OpenTelemetry](../guides/see/opentelemetry.md).
"""
PROCESS = """## Prometheus: a process

`Metrics(app)`, and `/metrics` of a worker with `--health`. They begin at 0 with each process. With
`--processes N` each has the label `process` besides.
"""
CLUSTER = """## Prometheus: the database

`Metrics(app, cluster=True)`, in one process of an installation, and `towline metrics`: what the
database knows of all workers. Without an answer of the database there is `towline_up 0` alone.
"""
COLLECTED = """## OpenTelemetry: a process

`instrument(app)`. Each has `messaging.system`; [what attributes say](spans.md#attributes).
"""
COLLECTED_CLUSTER = """## OpenTelemetry: the database

`instrument(app, cluster=True)`, in one process of an installation.
"""


def page() -> str:
    return "\n".join([HEAD, *_scraped(), *_collected()])


def _scraped() -> Iterator[str]:
    yield PROCESS
    yield from _scraped_table([*catalogue.PROCESS, catalogue.BUILD])
    yield CLUSTER
    yield from _scraped_table(catalogue.CLUSTER)
    yield "## Buckets\n"
    yield (
        "A histogram is scraped as `…_bucket`, `…_count` and `…_sum`. Upper bounds in seconds, of "
        f"those of a process and of OpenTelemetry's: {_numbers(catalogue.SECONDS)}. Of "
        f"`{catalogue.JOB_RUN.name}`: {_numbers(BOUNDS)}.\n"
    )


def _scraped_table(metrics: Iterable[catalogue.Metric]) -> Iterator[str]:
    yield "| metric | kind | labels | |\n|---|---|---|---|"
    for metric in metrics:
        name = metric.name if metric.kind == "histogram" else metric.series[0]
        yield f"| `{name}` | {metric.kind} | {shown.words(metric.labels)} | {metric.help} |"
    yield ""


def _collected() -> Iterator[str]:
    _, instruments = told()
    of_cluster = names_of_cluster()
    bounds = {each.bounds for each in instruments if each.bounds}
    assert bounds == {catalogue.SECONDS}, "say the buckets of OpenTelemetry, too"
    yield COLLECTED
    yield from _collected_table(each for each in instruments if each.name not in of_cluster)
    yield COLLECTED_CLUSTER
    yield from _collected_table(each for each in instruments if each.name in of_cluster)


def _collected_table(instruments: Iterable[Told]) -> Iterator[str]:
    yield "| instrument | kind | unit | attributes | at times also | |\n|---|---|---|---|---|---|"
    for each in instruments:
        always = [name for name in each.always if name != conventions.SYSTEM]
        cells = [
            f"`{each.name}`",
            each.kind,
            each.unit,
            shown.words(always),
            shown.words(each.other),
        ]
        yield f"| {' | '.join([*cells, each.text])} |"
    yield ""


def _numbers(found: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in found)
