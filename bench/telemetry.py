"""What telemetry costs a worker: its drain rate of jobs that do nothing, by that with none of it.

    python -m bench.telemetry [--engine sqlite] [--rounds 5] [--jobs 20000]

off          nothing
api          instrument(app), and no SDK
prometheus   Metrics(app), where towline.prometheus can be imported
one percent  spans, one in a hundred sampled
spans        every span
all          every span, and metrics

sdk alone    what the SDK takes for one span, and for two numbers, without any job

Exporters throw away what they get: what they cost is theirs. Each run is a process of its own on a
fresh database; in a round all kinds take turns, and a ratio is of one round.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench.rounds import rotated
from bench.servers import usual_server
from towline import Towline

KINDS = ("off", "api", "prometheus", "one percent", "spans", "all")
LEAST = {"api": 0.95, "prometheus": 0.93, "one percent": 0.82, "spans": 0.5, "all": 0.42}
BATCH = 1000  # jobs of one enqueue
CONCURRENCY = 8


def watched(kind: str, app: Towline) -> None:
    """Set up what is measured."""
    if kind == "prometheus":
        from towline.prometheus import Metrics  # type: ignore[import-not-found,unused-ignore]

        Metrics(app)
    elif kind != "off":
        from towline.otel import instrument

        settings = {} if kind == "api" else sdk(kind)
        instrument(app, metrics=kind in ("api", "all"), **settings)


def sdk(kind: str) -> dict[str, Any]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased, TraceIdRatioBased

    class Nowhere(SpanExporter):
        def export(self, spans: Sequence[Any]) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    root = TraceIdRatioBased(0.01) if kind == "one percent" else ALWAYS_ON
    tracers = TracerProvider(ParentBased(root), shutdown_on_exit=False)
    tracers.add_span_processor(BatchSpanProcessor(Nowhere()))
    meters = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    return {"tracer_provider": tracers, "meter_provider": meters}


def drain(kind: str, url: str, jobs: int) -> None:
    """Store so many, run them, print how many a second and what each took of the processor."""
    app = Towline(url, durable=False)
    watched(kind, app)
    ran, over = itertools.count(1), threading.Event()

    @app.task
    def nothing(number: int) -> None:
        if next(ran) == jobs:
            over.set()

    for first in range(0, jobs, BATCH):
        app.enqueue_many([nothing.call(n) for n in range(first, min(first + BATCH, jobs))])
    began, used = time.perf_counter(), time.process_time()
    with app.worker(concurrency=CONCURRENCY):
        over.wait()
    took, used = time.perf_counter() - began, time.process_time() - used
    print(json.dumps({"rate": jobs / took, "processor": used / jobs * 1e6}), flush=True)
    app.close()


def alone(jobs: int) -> None:
    """What the SDK takes for a span as an attempt has one, and for the two numbers of one."""
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags

    providers = sdk("all")
    tracer = providers["tracer_provider"].get_tracer("bench")
    meter = providers["meter_provider"].get_meter("bench")
    numbers = [meter.create_histogram(name, "s") for name in ("waited", "ran")]
    creator = SpanContext(7, 9, True, TraceFlags(1))
    place = {"messaging.system": "towline", "messaging.destination.name": "default",
             "towline.task": "nothing"}  # fmt: skip

    def span() -> None:
        attributes = {
            **place, "messaging.operation.name": "run", "messaging.operation.type": "process",
            "messaging.message.id": "1", "messaging.message.conversation_id": "1",
            "towline.attempt": 1, "towline.position": 0, "towline.worker": "w",
            "towline.waited": 0.5,
        }  # fmt: skip
        begun = tracer.start_span(
            "run nothing", Context(), SpanKind.CONSUMER, attributes, [Link(creator)]
        )
        begun.set_attribute("towline.outcome", "completed")
        begun.set_attribute("towline.accepted", True)
        begun.end()

    def record() -> None:
        for number in numbers:
            number.record(0.001, place)

    took: dict[str, float] = {}
    for name, call in (("span", span), ("numbers", record)):
        used = time.process_time()
        for _ in range(jobs):
            call()
        took[name] = (time.process_time() - used) / jobs * 1e6
    print(json.dumps(took), flush=True)


def run(kind: str, url: str, jobs: int) -> dict[str, float]:
    command = [sys.executable, "-m", "bench.telemetry", "--inside", kind, url, "--jobs", str(jobs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


@contextmanager
def databases(engine: str) -> Iterator[Callable[[], str]]:
    """A way to fresh databases."""
    if engine == "sqlite":
        with tempfile.TemporaryDirectory(prefix="towline-bench-") as folder:
            numbers = itertools.count()
            yield lambda: f"sqlite:///{Path(folder)}/{next(numbers)}.db"
        return
    with usual_server() as server:
        yield server.create


def compare(engine: str, rounds: int, jobs: int) -> None:
    kinds = [kind for kind in KINDS if kind != "prometheus" or find_spec("towline.prometheus")]
    ratios: dict[str, list[float]] = {kind: [] for kind in kinds}
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    of_sdk: list[dict[str, float]] = []
    with databases(engine) as fresh:
        for number in range(rounds):
            here = {kind: run(kind, fresh(), jobs) for kind in rotated(kinds, number)}
            of_sdk.append(run("alone", "none", jobs))
            for kind, figures in here.items():
                found[kind].append(figures)
                ratios[kind].append(figures["rate"] / here["off"]["rate"])
    print(f"\n{engine}, {jobs:,} jobs, {rounds} rounds: medians")
    for kind in kinds:
        rate = statistics.median(each["rate"] for each in found[kind])
        used = statistics.median(each["processor"] for each in found[kind])
        goal = f"   at least {LEAST[kind]}" if kind in LEAST else ""
        ratio = statistics.median(ratios[kind])
        cost = statistics.median(
            each["processor"] - off["processor"]
            for each, off in zip(found[kind], found["off"], strict=True)
        )
        print(
            f"{kind:12} {rate:8,.0f}/s {used:7.1f} µs each {cost:+6.1f}   ratio {ratio:.3f}{goal}",
            flush=True,
        )
    _say_alone(of_sdk)


def _say_alone(of_sdk: Sequence[dict[str, float]]) -> None:
    span, numbers = (statistics.median(each[n] for each in of_sdk) for n in ("span", "numbers"))
    print(f"sdk alone: a span {span:.1f} µs, the two numbers of an attempt {numbers:.1f} µs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--engine", choices=["sqlite", "postgres"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--inside", nargs=2, metavar=("KIND", "URL"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        kind, url = given.inside
        if kind == "alone":
            alone(given.jobs)
            return
        drain(kind, url, given.jobs)
        return
    for engine in [given.engine] if given.engine else ["sqlite", "postgres"]:
        compare(engine, given.rounds, given.jobs)


if __name__ == "__main__":
    main()
