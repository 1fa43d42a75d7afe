"""A2, A5, A8 against the installed command: over stdin and stdout, with an app that prints."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters, stdio_client

from tests import database as databases
from tests.agent.by_hand import HELLO, READY, say
from tests.agent.client import MODES, call
from tests.until import until
from towline import Towline

COMMAND = Path(sys.executable).with_name("towline")
SHOP = Path(__file__).with_name("shop.py")


class Folder:
    """Where the application is, and how its server is started."""

    def __init__(self, path: Path, url: str) -> None:
        self.path = path
        self.app = Towline(url)
        self.environment = {**os.environ, "SHOP_URL": url, "PYTHONWARNINGS": "error"}
        shutil.copyfile(SHOP, path / "shop.py")

    def server(self, *words: str) -> StdioServerParameters:
        return StdioServerParameters(
            command=str(COMMAND),
            args=["mcp", "shop:app", *words],
            cwd=self.path,
            env=self.environment,
        )

    def start(self, *words: str, **settings: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen[bytes](
            [COMMAND, "mcp", *words],
            cwd=self.path, env=self.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, **settings,
        )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with databases.opened(databases.SQLITE, tmp_path) as database:
        folder = Folder(tmp_path, database.url)
        yield folder
        folder.app.close()


@pytest.mark.parametrize("mode", MODES)
def test_A5_stdout_carries_the_protocol_only(folder: Folder, mode: str) -> None:
    """The SDK's client gives up at what is no message; a second server knows the request again."""

    async def visit() -> dict[str, Any]:
        with (folder.path / "log").open("a") as log:
            transport = stdio_client(folder.server("--allow", "enqueue", "--tasks", "add"), log)
            async with Client(transport, mode=mode) as client:
                assert "enqueue" in [tool.name for tool in (await client.list_tools()).tools]
                given = {"task": "add", "arguments": {"a": 1}, "request_id": "r"}
                answer = await call(client, "enqueue", **given)
                assert not answer.refused
                return answer.data

    first = asyncio.run(visit())
    assert first["created"]
    if mode == MODES[0]:  # A2: after a restart
        again = asyncio.run(visit())
        assert (again["id"], again["created"]) == (first["id"], False)
    log = (folder.path / "log").read_text()
    for text in ("hello from the import", "below Python", "a child", "chatter", "goodbye"):
        assert text in log
    assert [line.by for line in folder.app.audit()] == ["mcp:mcp"]


def test_A5_every_line_is_a_message_whatever_the_client_sends(folder: Folder) -> None:
    """And A8: with the end of stdin it ends, though a call still waits."""
    job = folder.app.named("add").enqueue(a=1)
    waiting = {"name": "wait", "arguments": {"id": str(job.id), "seconds": 30}}
    server = folder.start("shop:app")
    assert server.stdin is not None
    server.stdin.write(b"no json\n\xff\xfe\n")
    say(server.stdin, HELLO, READY)
    say(server.stdin, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": waiting})
    assert server.stdout is not None
    lines = [json.loads(server.stdout.readline())]
    while lines[-1].get("id") != 1:
        lines.append(json.loads(server.stdout.readline()))
    rest, _ = server.communicate(timeout=20)  # less than the call would wait
    assert server.returncode == 0
    lines += [json.loads(line) for line in rest.splitlines()]
    assert {line["jsonrpc"] for line in lines} == {"2.0"}
    assert lines[0].get("result", {}).get("serverInfo", {}).get("name") in ("towline", None)


CLIENT = """
import subprocess, sys, time
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(server.pid, flush=True)
server.stdin.write(sys.stdin.buffer.read())
server.stdin.flush()
print(server.stdout.readline().decode(), flush=True)
time.sleep(600)
"""


def test_A8_the_server_ends_with_a_client_that_is_killed(folder: Folder) -> None:
    """No process is left, and no lock: the next writer need not wait."""
    job = folder.app.named("add").enqueue(a=1)
    client = subprocess.Popen(
        [sys.executable, "-c", CLIENT, COMMAND, "mcp", "shop:app", "--allow", "enqueue,cancel"],
        cwd=folder.path, env=folder.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert client.stdout is not None
    pid = int(client.stdout.readline())
    enqueue = {"name": "enqueue", "arguments": {"task": "add", "arguments": {"a": 1}}}
    enqueue["arguments"]["request_id"] = "r"  # type: ignore[index]
    waiting = {"name": "wait", "arguments": {"id": str(job.id), "seconds": 30}}
    say(client.stdin, HELLO, READY)
    for number, params in enumerate((enqueue, waiting)):
        call = {"jsonrpc": "2.0", "id": f"c{number}", "method": "tools/call", "params": params}
        say(client.stdin, call)
    assert client.stdin is not None
    client.stdin.close()
    assert b"serverInfo" in client.stdout.readline()
    until(lambda: len(folder.app.jobs()) == 2, "the job of the agent")
    client.send_signal(signal.SIGKILL)
    client.wait()
    client.stdout.close()
    until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the server", limit=20)
    folder.app.cancel(job.id)


STUBBORN = """
import os, threading
from towline import Towline
app = Towline(os.environ["SHOP_URL"])
threading.Thread(target=threading.Event().wait).start()
"""


def test_A8_nothing_of_the_application_keeps_the_server(folder: Folder) -> None:
    """Neither a thread that goes on, nor a client that stops to listen and keeps stdin open."""
    (folder.path / "stubborn.py").write_text(STUBBORN)
    left, deaf = folder.start("stubborn:app"), folder.start("shop:app")
    assert deaf.stdout is not None
    say(deaf.stdin, HELLO)
    deaf.stdout.readline()
    deaf.stdout.close()
    say(deaf.stdin, READY, {"jsonrpc": "2.0", "id": 2, "method": "ping"})
    left.communicate(timeout=60)
    assert left.returncode == 0
    assert deaf.wait(60) == 0
    assert deaf.stderr is not None
    assert b"Traceback" not in deaf.stderr.read()
    for pipe in (deaf.stdin, deaf.stderr):
        assert pipe is not None
        pipe.close()


def test_without_an_app_nothing_is_said_on_stdout(folder: Folder) -> None:
    done = folder.start("nowhere:app")
    out, err = done.communicate(timeout=60)
    assert (out, done.returncode) == (b"", 2)
    assert b"there is no module nowhere" in err
    done = folder.start("shop:app", "--allow", "everything")
    out, err = done.communicate(timeout=60)
    assert (out, done.returncode) == (b"", 2)
    assert b"allow= takes enqueue, retry, cancel, run, pause" in err
