"""A client that speaks line by line, and looks at every byte that a server writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": {"name": "by hand", "version": "1"},
    },
}  # fmt: skip
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
OVERVIEW = {
    "jsonrpc": "2.0", "id": 2, "method": "tools/call",
    "params": {"name": "overview", "arguments": {}},
}  # fmt: skip


class Visited(NamedTuple):
    """What a server said, and how it ended."""

    messages: list[dict[str, Any]]  # every line of stdout
    errors: str  # all of stderr
    code: int


def say(pipe: IO[bytes] | None, *lines: Any) -> None:
    assert pipe is not None
    for line in lines:
        pipe.write(json.dumps(line).encode() + b"\n")
    pipe.flush()


def visit(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Visited:
    """Start a server, ask it for an overview, and go away."""
    with (cwd / "errors").open("wb") as errors:
        server = subprocess.Popen(
            command, cwd=cwd, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=errors,
        )  # fmt: skip
    assert server.stdout is not None
    said = b""
    try:
        for lines in ((HELLO, READY), (OVERVIEW,)):
            say(server.stdin, *lines)
            said += server.stdout.readline()
        rest, _ = server.communicate(timeout=60)
    finally:
        server.kill()
    messages = [json.loads(line) for line in (said + rest).decode().splitlines()]
    return Visited(messages, (cwd / "errors").read_text(), server.returncode)
