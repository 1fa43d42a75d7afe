"""A process that has imported the command line and forks for each command: the real command, in a
process of its own, without the second that its imports take."""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
HEAVY = ("towline.app", "towline.cli.commands", "towline.postgres.engine", "rich.table")


@functools.cache
def _server() -> subprocess.Popen[str]:
    server = subprocess.Popen(
        [sys.executable, "-W", "error", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    atexit.register(_end, server)
    return server


def _end(server: subprocess.Popen[str]) -> None:
    server.kill()
    server.communicate()  # closes its pipes and waits for it


def run(
    words: Sequence[str], folder: Path, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run `towline WORDS` in a folder and an environment to its end."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    out, err = folder / ".out", folder / ".err"
    ask = {"words": words, "folder": str(folder), "env": dict(env), "to": [str(out), str(err)]}
    server.stdin.write(json.dumps(ask) + "\n")
    server.stdin.flush()
    code = int(server.stdout.readline())
    return subprocess.CompletedProcess(words, code, out.read_text(), err.read_text())


def serve() -> None:
    for name in HEAVY:
        __import__(name)
    for line in sys.stdin:
        ask = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _become(ask)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


def _become(ask: dict[str, Any]) -> None:
    """In the child: be the command, as if it had just been started."""
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, path in enumerate(ask["to"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    os.chdir(ask["folder"])
    os.environ.clear()
    os.environ.update(ask["env"])
    sys.path[0] = ask["folder"]
    sys.argv = ["towline", *ask["words"]]
    from towline.cli import main

    code: Any = 1
    try:
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        traceback.print_exc()
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


if __name__ == "__main__":
    serve()
