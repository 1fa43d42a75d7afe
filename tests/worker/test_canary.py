"""T9: what an application stores is in no event, log line, metric or health page of ours."""

from __future__ import annotations

import http.client
import logging
import socket
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.until import until
from tests.worker.gate import LIMIT
from towline import INJECTED, Cancel, Context, Fail, Towline
from towline.prometheus import Metrics

CANARY = "kanarienvogel"


def asked(address: str, path: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=LIMIT)
    connection.request("GET", path)
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_T9_the_canary_is_found_nowhere(
    make_app: Any, caplog: pytest.LogCaptureFixture, trouble: list[logging.LogRecord]
) -> None:
    """Arguments, outputs, errors, keys, labels, progress, lanes, reasons, passwords in URLs."""
    app: Towline = make_app(wake=f"redis://:{CANARY}@127.0.0.1:{closed_port()}/0")
    registry = CollectorRegistry()
    Metrics(app, registry=registry, cluster=True)
    told: list[str] = []
    app.on(lambda event: told.append(repr(event)))

    class Odd:
        def __repr__(self) -> str:
            return CANARY

    @app.task
    def fine(text: str, ctx: Context = INJECTED) -> str:
        ctx.progress(0.5, CANARY)
        return text

    @app.task(max_attempts=1)
    def bad(text: str) -> Any:
        raise {"error": ValueError, "fail": Fail, "cancel": Cancel}[text.split()[0]](CANARY)

    @app.task(max_attempts=1)
    async def odd(text: str) -> Any:
        return Odd()

    with caplog.at_level(logging.DEBUG, "towline"):
        with app.worker(health="127.0.0.1:0") as worker:
            assert worker.health_address is not None
            said: Any = {"label": CANARY, "key": CANARY, "lane": CANARY}
            assert fine.using(**said).enqueue(CANARY).result(timeout=LIMIT) == CANARY
            for how in ("error", "fail", "cancel"):
                bad.using(label=CANARY).enqueue(f"{how} {CANARY}")
            odd.enqueue(CANARY)
            app.cancel(fine.using(delay=600).enqueue(CANARY).id, reason=CANARY)
            with pytest.raises(TypeError):
                fine.enqueue(CANARY, more=CANARY)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
            until(lambda: not any(job.state.open for job in app.jobs(limit=50)))
            until(lambda: any("WakeChanged" in line for line in told))
            assert app.runner.events.flush(LIMIT)
            paths = ("/livez", "/readyz", "/metrics")
            told += [asked(worker.health_address, path) for path in paths]
        assert app.runner.events.flush(LIMIT)
    told += [f"{record.getMessage()} {record.exc_text} {vars(record)}" for record in caplog.records]
    assert len(told) > 50
    assert any('towline_jobs_ended_total{outcome="failed"' in text for text in told)
    assert [text for text in told if CANARY in text] == []
