"""Health of a worker: its port, and what systemd is told."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT, Gate
from tests.worker.outage import away
from towline import Towline
from towline.errors import InvalidSetting
from towline.prometheus import Metrics
from towline.telemetry import cluster
from towline.worker import Worker, health
from towline.worker.health import port as ports
from towline.worker.health.systemd import Notices

HERE = "127.0.0.1:0"


def asked(
    worker: Worker, path: str, timeout: float = LIMIT, method: str = "GET"
) -> tuple[int, str]:
    connection = http.client.HTTPConnection(worker.health_address or "", timeout=timeout)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def says(worker: Worker, path: str) -> tuple[int, Any]:
    status, text = asked(worker, path)
    return status, json.loads(text)


def stick(worker: Worker) -> threading.Event:
    """Hold the pump where it is, until the event is set."""
    stuck, gate = threading.Event(), threading.Event()

    def hold() -> None:
        stuck.set()
        gate.wait(LIMIT)

    before, worker.pump._tick = worker.pump._tick, hold  # type: ignore[method-assign]
    worker.pump._bell.set()
    assert stuck.wait(LIMIT)
    worker.pump._tick = before  # type: ignore[method-assign]
    return gate


@pytest.mark.each_engine
def test_W7_a_database_that_is_away_turns_readyz_not_livez(
    app: Towline, database: Database, trouble: list[logging.LogRecord]
) -> None:
    with app.worker(health=HERE, lease=1) as worker:
        until(lambda: asked(worker, "/readyz")[0] == 200)
        with away(database):
            until(lambda: asked(worker, "/readyz")[0] == 503)
            _, said = says(worker, "/readyz")
            assert said["ready"] is False
            assert "the database has not answered for" in said["why"]
            assert says(worker, "/livez") == (200, {"live": True})
        until(lambda: says(worker, "/readyz") == (200, {"ready": True}))


def test_W7_a_stuck_pump_turns_livez_and_both_recover(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "LEAST_SILENCE", 0.0)
    with app.worker(health=HERE, lease=1) as worker:
        until(lambda: asked(worker, "/readyz")[0] == 200)
        gate = stick(worker)
        until(lambda: asked(worker, "/livez")[0] == 503)
        assert "the pump has not come round" in asked(worker, "/livez")[1]
        gate.set()
        until(lambda: asked(worker, "/livez")[0] == asked(worker, "/readyz")[0] == 200)


def test_W7_a_worker_that_stops_is_live_and_not_ready(app: Towline) -> None:
    inside = Gate()

    @app.task
    def hold() -> None:
        inside.enter()

    hold.enqueue()
    worker = app.worker(health=HERE).start()
    inside.wait_inside()
    worker.stop(wait=False)
    assert says(worker, "/readyz") == (503, {"ready": False, "why": "stopping"})
    assert says(worker, "/livez") == (200, {"live": True})
    inside.open()
    worker.stop()
    assert worker.health_address is None


def test_W8_a_probe_answers_while_handlers_compute(app: Towline) -> None:
    over = threading.Event()

    @app.task
    def compute() -> int:
        number = 0
        while not over.is_set():
            number += 1
        return number

    with app.worker(health=HERE, concurrency=8) as worker:
        app.enqueue_many([compute.call() for _ in range(8)])
        until(lambda: worker.busy == 8)
        answers = []
        try:
            for _ in range(5):
                try:
                    answers.append(asked(worker, "/livez", timeout=2.0)[0])
                except TimeoutError:
                    pass  # other programs of this machine may have its cores
        finally:
            over.set()
        assert 200 in answers


def dribble(client: socket.socket) -> None:
    """Send a request byte by byte, until one is cut off: nothing is awaited for long, and it has no
    end."""
    try:
        while True:
            client.sendall(b"x")
            time.sleep(0.05)
    except OSError:
        pass


def test_W10_slow_huge_and_many_requests_delay_no_turn(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are cut off, jobs run meanwhile, and a probe is answered again."""
    monkeypatch.setattr(ports, "TIME", 0.5)

    @app.task
    def double(n: int) -> int:
        return 2 * n

    def connected() -> socket.socket:
        host, _, number = (worker.health_address or "").rpartition(":")
        return socket.create_connection((host, int(number)), timeout=LIMIT)

    with app.worker(health=HERE) as worker:
        silent = [connected() for _ in range(30)]
        slow, huge = silent[0], silent[1]
        dribbling = threading.Thread(target=dribble, args=(slow,), daemon=True)
        dribbling.start()
        try:
            huge.sendall(b"GET /" + b"x" * 200_000)
        except OSError:
            pass
        jobs = app.enqueue_many([double.call(n) for n in range(100)])
        assert [job.result(timeout=LIMIT) for job in jobs] == [2 * n for n in range(100)]

        def answers() -> bool:
            try:
                return asked(worker, "/livez")[0] == 200
            except (OSError, http.client.HTTPException):  # no place is free yet
                return False

        until(answers)
        dribbling.join(LIMIT)
        assert not dribbling.is_alive()
        for each in silent:
            with each:
                try:
                    while each.recv(4096):
                        pass  # until it is cut off
                except ConnectionError:
                    pass


def test_it_answers_little(app: Towline) -> None:
    with app.worker(health=HERE) as worker:
        assert asked(worker, "/livez", method="POST")[0] == 405
        assert asked(worker, "/livez?x=1")[0] == 200
        assert asked(worker, "/")[0] == 404
        status, page = asked(worker, "/metrics")
        assert (status, "towline_slots" in page) == (200, True)


def test_metrics_of_a_database_that_is_away_show_nothing_old(
    app: Towline, database: Database, postgres: Database
) -> None:
    metrics = Metrics(app, registry=CollectorRegistry(), process=False, cluster=True)

    def page() -> str:
        assert metrics._cluster is not None
        metrics._cluster.cluster._looked_at = -cluster.KEEP  # as if it had been some seconds ago
        return metrics.page()[0].decode()

    app.pause("mail")
    until(lambda: 'towline_queue_paused{queue="mail"} 1.0' in page())
    with away(database):
        until(lambda: "towline_up 0.0" in page())
        assert "towline_queue" not in page()
        assert "towline_build_info" in page()
    until(lambda: 'towline_queue_paused{queue="mail"} 1.0' in page())


@pytest.mark.parametrize("text", ["", "9464", ":9464", "here", "here:", "::1:80", "a:99999", 5])
def test_an_address_that_is_none_is_refused(app: Towline, text: Any) -> None:
    with pytest.raises(InvalidSetting, match="HOST:PORT"):
        app.worker(health=text)


def test_an_address_in_use_is_refused_at_the_start(app: Towline) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        worker = app.worker(health=place)
        with pytest.raises(InvalidSetting, match=f"health cannot be served at {place}"):
            worker.start()
    assert not worker.running
    with worker:  # it is free now
        assert asked(worker, "/livez")[0] == 200


class Manager:
    """Stands where systemd does: it listens at a socket."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)

    def hear(self, timeout: float = LIMIT) -> str | None:
        self.socket.settimeout(timeout)
        try:
            return self.socket.recv(4096).decode()
        except TimeoutError:
            return None

    def hear_all(self) -> list[str]:
        """What is there already."""
        found = []
        while (heard := self.hear(0.001)) is not None:
            found.append(heard)
        return found


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path / "notify")
    yield manager
    manager.socket.close()


def test_W9_ready_after_registering_and_no_sign_of_a_stuck_pump(
    app: Towline, systemd: Manager
) -> None:
    worker = app.worker()
    worker.notices = Notices(systemd.path, watchdog=0.2)
    worker.start()
    heard: list[str | None] = []
    while "READY=1" not in heard:
        heard.append(systemd.hear())
    assert [each.name for each in app.workers()] == [worker.name]
    until(lambda: "WATCHDOG=1" in systemd.hear_all())
    gate = stick(worker)
    systemd.hear_all()
    assert systemd.hear(1.0) is None
    gate.set()
    until(lambda: "WATCHDOG=1" in systemd.hear_all())
    worker.stop()
    assert "STOPPING=1" in systemd.hear_all()


def test_W9_children_and_handlers_do_not_see_the_socket(systemd: Manager) -> None:
    environment = {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "60000000", "HOME": "/"}
    notices = Notices.asked_for(environment)
    assert notices is not None
    assert notices.interval == 30
    assert environment == {"HOME": "/"}
    assert Notices.asked_for(environment) is None
    other = {"NOTIFY_SOCKET": systemd.path, "WATCHDOG_USEC": "60000000", "WATCHDOG_PID": "1"}
    notices = Notices.asked_for(other)
    assert notices is not None
    assert notices.interval is None


QUIET = """
import os, sys, threading
os.environ["NOTIFY_SOCKET"] = sys.argv[2]

def refuse(event, arguments):
    assert event not in ("socket.bind", "socket.connect", "socket.sendto"), (event, arguments)

sys.addaudithook(refuse)
import towline.logs, towline.prometheus
from towline import Towline
app = Towline(sys.argv[1])
towline.prometheus.Metrics(app, cluster=True)
towline.logs.InAttempt()

@app.task
def double(n: int) -> int:
    return 2 * n

assert {each.name for each in threading.enumerate()} == {"MainThread"}
with app.worker():
    assert double.enqueue(2).result(timeout=60) == 4
    assert not [t.name for t in threading.enumerate() if "health" in t.name or "metrics" in t.name]
app.close()
"""


def test_X6_nothing_listens_or_sends_unless_asked_by_name(tmp_path: Path, systemd: Manager) -> None:
    """Imports, metrics and a worker: no port, no thread of theirs, no word to systemd."""
    url = f"sqlite:///{tmp_path}/x.db"
    subprocess.run([sys.executable, "-c", QUIET, url, systemd.path], check=True, timeout=LIMIT)
    assert systemd.hear_all() == []
