"""A command at a terminal of its own, with somebody who types."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys

from tests.cli.shop import LIMIT, Shop
from tests.until import until


class Terminal:
    """What a command shows there; stdout may go elsewhere."""

    def __init__(self, shop: Shop, *words: str, stdout: int | None = None) -> None:
        self._ours, theirs = pty.openpty()
        env = {**shop.environment(), "TERM": "xterm-256color", "COLUMNS": "100"}
        env.pop("NO_COLOR", None)
        self.shown = ""
        self.process = subprocess.Popen(
            [sys.executable, "-W", "error", "-m", "towline", *words],
            cwd=shop.folder, env=env, stdin=theirs, stderr=theirs,
            stdout=theirs if stdout is None else stdout, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)

    def sees(self, text: str) -> None:
        """Read on until this has been shown."""
        until(lambda: text in self._read(), f"{text!r} at the terminal")

    def types(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def ends(self) -> int:
        """Read on to its end; the exit code."""

        def ended() -> bool:
            self._read()  # else it waits for room
            return self.process.poll() is not None

        until(ended, "the end")
        self._read()
        return self.process.wait(LIMIT)

    def _read(self) -> str:
        """All that was shown so far; at its end the other side is closed."""
        while select.select([self._ours], [], [], 0.05)[0]:
            try:
                part = os.read(self._ours, 65536)
            except OSError:
                break
            if not part:
                break
            self.shown += part.decode(errors="replace")
        return self.shown

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._ours)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
