"""Health and metrics as commands: a supervisor answers for its children, and to systemd."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.shop import APP, LIMIT, Running, Shop
from tests.speed import by_speed
from tests.until import until
from towline.model import OUTCOMES
from towline.prometheus import Metrics


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return f"127.0.0.1:{listener.getsockname()[1]}"


def asked(address: str, path: str) -> tuple[int, str] | None:
    connection = http.client.HTTPConnection(address, timeout=LIMIT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except OSError:  # it does not listen yet
        return None
    finally:
        connection.close()


def says(address: str, path: str) -> Any:
    answer = asked(address, path)
    return None if answer is None else json.loads(answer[1])


def births(address: str) -> dict[str, float]:
    """Which processes a page is of, and when each began."""
    answer = asked(address, "/metrics")
    assert answer is not None
    families = {family.name: family for family in text_string_to_metric_families(answer[1])}
    found = families["process_start_time_seconds"].samples
    slots = {sample.labels["process"] for sample in families["towline_slots"].samples}
    assert slots == {sample.labels["process"] for sample in found}
    return {sample.labels["process"]: sample.value for sample in found}


def test_T13_W7_a_supervisor_answers_for_its_children(shop: Shop) -> None:
    """One page of all; a child that was killed is gone from the next one; one that is silent makes
    the whole not live."""
    address = free_address()
    supervisor = shop.start("worker", APP, "--processes", "2", "--health", address)
    until(lambda: says(address, "/readyz") == {"ready": True})
    assert says(address, "/livez") == {"live": True}
    before = births(address)
    assert set(before) == {"1", "2"}
    assert says(address, "/livez") == {"live": True}  # a question in between takes no page away
    assert births(address) == before
    assert shop.data("health", address, "--ready") == {"ready": True, "why": None}
    frozen, victim = supervisor.children()
    os.kill(victim, signal.SIGKILL)
    supervisor.told(f"worker process {victim} was ended by signal 9")
    assert {*before.items()} - {*births(address).items()} != set()
    until(lambda: says(address, "/readyz") == {"ready": True})
    os.kill(frozen, signal.SIGSTOP)
    said: Any = until(lambda: (s := says(address, "/livez")) and not s["live"] and s)
    assert re.fullmatch(r"worker process \d: does not answer", said["why"])
    assert shop.text("health", address, code=1).startswith("not live: worker process")
    os.kill(frozen, signal.SIGCONT)
    until(lambda: says(address, "/livez") == {"live": True})
    supervisor.signal()
    assert supervisor.ends() == 0
    assert "no answer from" in shop.data("health", address, code=1)["why"]


def test_an_address_in_use_ends_it_with_2(shop: Shop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        for more in ([], ["--processes", "2"]):
            said = shop.refused("worker", APP, "--health", place, *more, code=2)
            assert f"health cannot be served at {place}" in said
    assert "HOST:PORT" in shop.refused("worker", APP, "--health", "here", code=2)


def test_W9_systemd_hears_of_children(shop: Shop) -> None:
    """READY when all are registered, signs while all pumps come round, STOPPING at the end."""
    path = str(shop.folder / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path)
        manager.settimeout(LIMIT)
        os.environ.update(NOTIFY_SOCKET=path, WATCHDOG_USEC="400000")
        try:
            supervisor = shop.start("worker", APP, "--processes", "2")
        finally:
            del os.environ["NOTIFY_SOCKET"], os.environ["WATCHDOG_USEC"]
        heard: list[str] = []

        def hear(notice: str) -> None:
            while notice not in heard:
                heard.append(manager.recv(1000).decode())
            heard.clear()

        hear("READY=1")
        assert len(shop.app.workers()) == 2
        hear("WATCHDOG=1")
        child = supervisor.children()[0]
        os.kill(child, signal.SIGSTOP)
        hear("STATUS=1 of 2 worker processes are ready")
        manager.settimeout(1.0)
        try:
            heard.append(manager.recv(1000).decode())
        except TimeoutError:
            pass
        assert heard == []
        manager.settimeout(LIMIT)
        os.kill(child, signal.SIGCONT)
        hear("WATCHDOG=1")
        supervisor.signal()
        hear("STOPPING=1")
        assert supervisor.ends() == 0


def test_T12_the_counters_of_the_cluster_equal_the_rows_after_kills(any_shop: Shop) -> None:
    """Each worker that takes `die` is killed by it; its jobs are run by others."""
    shop, number = any_shop, by_speed(30, 300)
    for n in range(number):
        shop.put("add", a=n, b=n)
        if n % 5 == 0:
            shop.put("bad", secret="x")
    for _ in range(by_speed(1, 5)):
        shop.put("die")
    supervisor = shop.start("worker", APP, "--processes", "2", "--concurrency", "4")

    def over() -> bool:
        shop.app.run_now_many(everything=True)  # what was lost need not wait for its pause
        return not any(job.state.open for job in shop.app.jobs(limit=1000))

    until(over)
    supervisor.signal()
    supervisor.ends()
    rows = Counter(
        (str(shop.app.job(job.id).queue), job.task, str(attempt.outcome))
        for job in shop.app.jobs(limit=1000)
        for attempt in shop.app.attempts(job.id)[-1:]
    )
    metrics = Metrics(shop.app, registry=CollectorRegistry(), process=False, cluster=True)
    families = {
        family.name: family for family in text_string_to_metric_families(metrics.page()[0].decode())
    }
    counted = {
        (sample.labels["queue"], sample.labels["task"], sample.labels["outcome"]): sample.value
        for sample in families["towline_jobs_ended"].samples
    }
    assert counted == rows
    assert sum(counted.values()) == len(shop.app.jobs(limit=1000))
    assert {outcome for _, _, outcome in counted} <= set(map(str, OUTCOMES))


def test_metrics_serves_the_database_until_it_is_stopped(any_shop: Shop) -> None:
    any_shop.put("add", a=1, b=2)
    address = free_address()
    running = any_shop.start("metrics", "--url", any_shop.url, "--health", address)
    page = until(lambda: asked(address, "/metrics"))[1]
    assert 'towline_queue_jobs{queue="default",state="pending"} 1.0' in page
    assert "towline_attempts_total" not in page
    assert says(address, "/readyz") == {"ready": True}
    running.signal()
    assert running.ends() == 0


WITHOUT = """
import sys
sys.modules["prometheus_client"] = None
from towline.cli import main
main(sys.argv[1:])
"""


def test_without_the_client_there_is_health_and_no_metrics(shop: Shop) -> None:
    address = free_address()
    command = [sys.executable, "-c", WITHOUT]
    running = Running(shop, [*command, "worker", APP, "--health", address])
    shop.started.append(running)
    until(lambda: says(address, "/readyz") == {"ready": True})
    found = asked(address, "/metrics")
    assert found is not None
    assert found[0] == 404
    done = subprocess.run(
        [*command, "metrics", "--url", shop.url], cwd=shop.folder, env=shop.environment(),
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "pip install -e '.[prometheus]'" in done.stderr
