"""The whole way: `opentelemetry-instrument towline worker`, with children and process slots, to a
receiver that decodes OTLP. T2, T4, T5 where processes are in between, and T9 of every byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import ROOT
from tests.speed import by_speed
from tests.telemetry.receiver import Receiver, receiving
from tests.until import LIMIT, until
from towline import Towline

BIN = Path(sys.executable).parent
COMMAND = (BIN / "opentelemetry-instrument", BIN / "towline")
CANARY = "canary-4711"
SHOP = """
import os, time
from pathlib import Path
from opentelemetry import trace
from towline import INJECTED, Context, Next, Towline

app = Towline(os.environ["TOWLINE_URL"])
tracer = trace.get_tracer("shop")


@app.task
def leaf(word: str) -> str:
    return word


@app.task
def second(word: str) -> str:
    return word


@app.task(run_in="process")
def crunch(word: str, ctx: Context = INJECTED) -> Next[str]:
    ctx.progress(0.5, word)
    with tracer.start_as_current_span("inside") as span:
        span.set_attribute("pid", os.getpid())
        leaf.using(label=word).enqueue(word)
    return second.then(word)


@app.task(run_in="process")
async def acrunch(word: str) -> str:
    with tracer.start_as_current_span("inside async"):
        return word


@app.task(run_in="process")
def hangs(word: str) -> None:
    time.sleep(600)


@app.task(run_in="process")
def fails(word: str) -> None:
    raise ValueError(word)


@app.task
def stuck(path: str) -> None:
    if not Path(path).exists():
        Path(path).write_text(str(os.getpid()))
        time.sleep(600)
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def environment(receiver: Receiver, url: str) -> dict[str, str]:
    return {
        **os.environ,
        "TOWLINE_URL": url,
        "PYTHONPATH": str(ROOT),
        "OTEL_SERVICE_NAME": "shop",
        "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.address,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_METRIC_EXPORT_INTERVAL": "1000",
    }


def test_T2_T4_T5_T9_spans_come_from_every_process(
    tmp_path: Path, url: str, app: Towline, receiver: Receiver
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    meeting = tmp_path / "meeting"
    names = {"crunch": None, "acrunch": None, "hangs": 0.3, "fails": None}
    trace = f"00-{7:032x}-{9:016x}-01"
    jobs = {
        name: app.named(name)
        .using(trace=trace, key=f"{CANARY}-{name}", max_attempts=1, timeout=timeout)
        .enqueue(word=CANARY)
        for name, timeout in names.items()
    }
    running = subprocess.Popen(
        [*COMMAND, "worker", "shop:app", "--processes", "2", "--concurrency", "1"],
        cwd=tmp_path, env=environment(receiver, url), stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        for name in names:
            (span,) = receiver.wait_for(f"run {name}")
            assert span.links == [(f"{7:032x}", f"{9:016x}")]
            assert span.attributes["messaging.message.id"] == str(jobs[name].id)
            assert span.resource["service.name"] == "shop"
        (ran,), (inside,) = receiver.wait_for("run crunch"), receiver.wait_for("inside")
        assert (inside.trace, inside.parent) == (ran.trace, ran.id)
        assert ran.start <= inside.start
        assert inside.end <= ran.end
        (stored,) = receiver.wait_for("enqueue leaf")
        assert stored.parent == inside.id
        (leaf,) = receiver.wait_for("run leaf")
        assert leaf.links == [(stored.trace, stored.id)]
        (second,) = receiver.wait_for("run second")
        assert (second.trace, second.parent) == (ran.trace, ran.id)
        (inside,) = receiver.wait_for("inside async")
        assert inside.parent == receiver.named("run acrunch")[0].id
        (hung,), (failed,) = receiver.named("run hangs"), receiver.named("run fails")
        assert hung.attributes["towline.outcome"] == hung.attributes["error.type"] == "timeout"
        assert failed.attributes["error.type"] == "builtins.ValueError"
        # A worker that is killed tells nothing; who takes the job over does.
        app.named("stuck").enqueue(path=str(meeting))
        until(meeting.exists)
        pid = int(until(meeting.read_text))
        os.kill(pid, signal.SIGKILL)
        lost = receiver.wait_for("run stuck")[0]
        assert lost.attributes["towline.outcome"] == "lost"
        until(lambda: "messaging.process.duration" in receiver.metrics)
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(LIMIT)
    assert running.returncode == 0
    assert len(receiver.named("run crunch")) == 1
    assert CANARY.encode() not in b"".join(receiver.bodies)


def test_T4_what_a_process_has_not_sent_is_sent_when_it_ends(
    tmp_path: Path, url: str, app: Towline, receiver: Receiver
) -> None:
    """Though its exporter would have waited for an hour."""
    (tmp_path / "shop.py").write_text(SHOP)
    number = by_speed(1, 5)
    for _ in range(number):
        app.named("acrunch").enqueue(word="x")
    env = {**environment(receiver, url), "OTEL_BSP_SCHEDULE_DELAY": "3600000"}
    began = time.time_ns()
    done = subprocess.run(
        [*COMMAND, "worker", "shop:app", "--drain"],
        cwd=tmp_path, env=env, capture_output=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    inside = receiver.wait_for("inside async", number)
    runs = {span.id for span in receiver.wait_for("run acrunch", number)}
    assert {span.parent for span in inside} == runs
    assert all(began < span.start <= span.end for span in inside)
