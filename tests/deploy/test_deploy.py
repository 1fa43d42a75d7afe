"""Every file in `deploy/` passes its own tool, and its command starts."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import httpx
import kubernetes_validate
import pytest

from tests.cluster import free_port
from tests.deploy.files import (
    COMPOSE,
    DEPLOY,
    DOCKERFILE,
    KUBERNETES,
    UNIT,
    Start,
    compose,
    instructions,
    manifests,
    pods,
    starts,
    unit,
)
from tests.kit import ROOT
from tests.until import until
from towline import Towline
from towline.cli.commands import group
from towline.cli.worker import worker

OPTIONS = {word for parameter in worker.params for word in parameter.opts}
HEALTH = "--health" in OPTIONS and "health" in group.commands
OVERRUN = 15  # seconds beyond the grace, in which the last is written and exported
SHOP = """
from towline import Towline

app = Towline()

@app.task
def add(a: int, b: int) -> int:
    return a + b
"""


def known(words: tuple[str, ...]) -> list[str]:
    """The words of a start, as far as this release has them."""
    found = list(words)
    if not HEALTH and "--health" in found:
        at = found.index("--health")
        del found[at : at + 2]
    return found


def all_starts() -> list[Start]:
    return [start for start in starts() if HEALTH or start.words[0] != "health"]


# ---- each by its own tool


def test_I11_the_unit_is_one_that_systemd_takes(tmp_path: Path) -> None:
    service = unit()
    assert service["Type"] == "notify"
    assert service["KillMode"] == "mixed"
    assert service["WatchdogSec"] == "60"
    assert service["User"] != "root"
    tool = shutil.which("systemd-analyze")
    if tool is None:  # a machine without systemd: it has been read, and that is all
        return
    program = service["ExecStart"].split()[0]
    real = tmp_path / UNIT.name
    real.write_text(UNIT.read_text().replace(program, sys.executable))
    done = subprocess.run([tool, "verify", real], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    real.write_text(real.read_text().replace("WatchdogSec=60", "WatchdogSec=often"))
    done = subprocess.run([tool, "verify", real], capture_output=True, text=True, check=False)
    assert "often" in done.stderr, "it does look"


def test_I11_the_container_is_not_root_and_gets_its_signals() -> None:
    found = instructions()
    assert found[0][0] == "FROM"
    assert [text for name, text in found if name == "USER"] == ["shop"]
    place = [name for name, _ in found]
    assert place.index("USER") < place.index("CMD")
    assert dict(found)["STOPSIGNAL"] == "SIGTERM"
    assert dict(found)["CMD"].startswith("["), "the exec form"


def test_I11_compose_waits_for_the_database_and_for_the_migration() -> None:
    found = compose()
    assert set(found) == {"name", "x-shop", "services", "volumes"}
    services = found["services"]
    assert services["worker"]["depends_on"]["migrate"]["condition"].endswith("successfully")
    assert services["migrate"]["depends_on"]["database"]["condition"] == "service_healthy"
    for service in services.values():
        if "build" in service:
            dockerfile = (
                COMPOSE.parent / service["build"]["context"] / service["build"]["dockerfile"]
            )
            assert dockerfile.resolve() == DOCKERFILE


@pytest.mark.parametrize("path", KUBERNETES, ids=lambda path: path.stem)
def test_I11_kubernetes_takes_the_manifests(path: Path) -> None:
    for manifest in manifests(path):
        for release in ("1.30", kubernetes_validate.latest_version()):
            kubernetes_validate.validate(manifest, release, strict=True)
        wrong = {**manifest, "spec": {**manifest["spec"], "replica": 1}}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, "1.30", strict=True)
    for pod in pods(path):
        for container in pod["containers"]:
            assert container["securityContext"]["runAsNonRoot"]
            for probe, page in (("livenessProbe", "/livez"), ("readinessProbe", "/readyz")):
                if probe in container:
                    found = container[probe]
                    assert found["httpGet"]["path"] == page
                    times = ("periodSeconds", "timeoutSeconds", "failureThreshold")
                    assert [found[name] for name in times] == [10, 5, 6]


def test_I11_a_file_of_sqlite_has_one_worker_and_a_volume() -> None:
    (manifest,) = manifests(KUBERNETES[1])
    assert (manifest["kind"], manifest["spec"]["replicas"]) == ("StatefulSet", 1)
    (claim,) = manifest["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["accessModes"] == ["ReadWriteOnce"]


# ---- the commands


def test_I11_whoever_stops_a_worker_leaves_it_its_grace_and_more() -> None:
    workers = [start for start in starts() if start.words[0] == "worker"]
    assert {start.file for start in workers} == {path.name for path in SHIPPED}
    for start in workers:
        if start.file != DOCKERFILE.name:
            assert start.killed_after == start.grace + OVERRUN, start
    assert f"--stop-timeout {workers[0].grace + OVERRUN} " in DOCKERFILE.read_text()


SHIPPED = (UNIT, DOCKERFILE, COMPOSE, *KUBERNETES)


def test_I11_every_file_is_looked_at_here() -> None:
    other = {".json", ".yml"}  # dashboards and rules of others
    assert {path for path in DEPLOY.iterdir() if path.suffix not in other} == set(SHIPPED)


@pytest.mark.parametrize("start", all_starts(), ids=lambda start: f"{start.file} {start.words[0]}")
def test_I11_every_command_is_one_of_ours(start: Start) -> None:
    name, *words = known(start.words)
    with click.Context(group, info_name="towline") as parent:
        command = group.get_command(parent, name)
        assert command is not None
        command.make_context(name, words, parent=parent)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Towline]:
    (tmp_path / "shop.py").write_text(SHOP)
    app = Towline(f"sqlite:///{tmp_path}/shop.db", migrate=False)
    yield app
    app.close()


def run(*words: str, shop: Towline, folder: Path, **more: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "towline", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TOWLINE_URL": shop.url,
             "TOWLINE_APP": "shop:app", **more},
    )  # fmt: skip


def test_I11_migrate_and_worker_start_as_the_files_say_and_stop_by_their_signal(
    shop: Towline, tmp_path: Path
) -> None:
    (migrating,) = {start.words for start in starts() if start.words[0] == "migrate"}
    assert run(*migrating, shop=shop, folder=tmp_path).wait(60) == 0
    working = {tuple(known(start.words)) for start in starts() if start.words[0] == "worker"}
    address = f"127.0.0.1:{free_port()}"
    ours = {tuple(address if ":9464" in word else word for word in words) for words in working}
    (words,) = ours
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(60)
        process = run(*words, shop=shop, folder=tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify"))
        try:
            until(lambda: shop.workers(), "it registers")
            assert shop.named("add").enqueue(a=1, b=2).result(60) == 3
            if HEALTH:
                until(lambda: b"READY=1" in notified.recv(4096), "it says that it is ready")
                for page in ("livez", "readyz"):
                    assert httpx.get(f"http://{address}/{page}").status_code == 200
                assert run("health", address, shop=shop, folder=tmp_path).wait(60) == 0
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()
    assert list(shop.workers()) == []
    if HEALTH:
        assert run("health", address, shop=shop, folder=tmp_path).wait(60) == 1
