"""An application in a folder of its own, and the real command run beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.cli import warm
from tests.kit import HOUR, new
from tests.until import until
from towline import Towline
from towline.records import NewJob

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
APP = "shop:app"
LIMIT = 60  # seconds after which what a test waits for will not come


class Shop:
    """The folder, the database, and commands run there."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.app = Towline(url)
        self.started: list[Running] = []
        shutil.copyfile(HERE / "application.py", folder / "shop.py")

    def environment(self, **more: str) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("TOWLINE")}
        kept.pop("COLUMNS", None)
        return {**kept, "SHOP_URL": self.url, "PYTHONPATH": str(ROOT), **more}

    def run(
        self, *words: str, code: int = 0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run `towline WORDS` to its end, which must have that exit code."""
        done = warm.run(words, self.folder, self.environment(**(env or {})))
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def text(self, *words: str, code: int = 0) -> str:
        return self.run(*words, code=code).stdout

    def data(self, *words: str, code: int = 0) -> Any:
        return json.loads(self.text(*words, "--json", code=code))

    def refused(self, *words: str, code: int, env: dict[str, str] | None = None) -> str:
        """What it says when it does not work: one line on stderr, nothing else."""
        done = self.run(*words, code=code, env=env)
        assert done.stdout == ""
        assert done.stderr.startswith("towline: ")
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr.strip()

    def start(self, *words: str) -> Running:
        running = Running(self, [sys.executable, "-W", "error", "-m", "towline", *words])
        self.started.append(running)
        return running

    def put(self, task: str, **arguments: Any) -> int:
        """Store a job of a task."""
        return self.store(new(task, arguments=json.dumps(arguments)))

    def store(self, job: NewJob) -> int:
        (stored,) = self.app.runner.run(self.app.runner.store.enqueue([job]))
        return stored.record.id

    def store_later(self) -> int:
        """A job that is due in an hour."""
        return self.store(new("add", arguments='{"a": 1, "b": 1}', delay=HOUR))

    def state(self, id: int) -> str:
        return str(self.app.job(id).state)

    def began(self, name: str, attempt: int = 1) -> None:
        until((self.folder / f"{name}.began-{attempt}").exists, f"the begin of {name}")

    def go(self, name: str) -> None:
        (self.folder / f"{name}.go").touch()

    def close(self) -> None:
        for running in self.started:
            running.kill()
        self.app.close()


class Running:
    """A command that goes on; its log is kept in a file."""

    def __init__(self, shop: Shop, command: list[str]) -> None:
        self._path = shop.folder / f"log-{len(shop.started)}"
        with self._path.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=shop.folder, env=shop.environment(), stderr=log, start_new_session=True
            )

    @property
    def log(self) -> str:
        return self._path.read_text()

    def told(self, text: str, times: int = 1) -> None:
        until(lambda: self.log.count(text) >= times, f"{text!r} in the log")

    def signal(self, number: int = signal.SIGTERM) -> None:
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait for its end; the exit code."""
        return self.process.wait(LIMIT)

    def children(self) -> list[int]:
        return children(self.process.pid)

    def kill(self) -> None:
        """Nothing may be left behind by a test that failed."""
        for pid in [*self.children(), self.process.pid]:
            if self.process.poll() is None or pid != self.process.pid:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait()


def children(pid: int) -> list[int]:
    """Processes whose parent is this one."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
