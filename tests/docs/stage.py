"""What the program of a page does besides its Python: it saves files, runs commands and SQL, and
compares what was printed with what the page shows, in which `…` stands for anything."""

from __future__ import annotations

import io
import re
import sqlite3
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TextIO

from tests.docs import commands


class _Tee(io.TextIOBase):
    """Standard output that remembers what was printed since the last look."""

    def __init__(self, under: TextIO) -> None:
        self.under = under
        self.since = ""

    def write(self, text: str) -> int:
        self.since += text
        return self.under.write(text)

    def flush(self) -> None:
        self.under.flush()


_printed = _Tee(sys.stdout)


def begin() -> None:
    """A page begins: nothing is printed yet."""
    _printed.since = ""
    sys.stdout = _printed


def save(name: str, text: str) -> None:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def output(shown: str) -> None:
    """What Python printed since the last such block is what the page shows."""
    since, _printed.since = _printed.since, ""
    compare(shown, since, "this Python")


def sql(text: str, admin: str = "") -> None:
    """A statement in the only SQLite file of the page's folder, or by a superuser."""
    if admin:
        import psycopg

        with psycopg.connect(admin, autocommit=True) as connection:
            connection.execute(text.encode())
        return
    (file,) = Path().glob("*.db")
    with closing(sqlite3.connect(file)) as connection:
        connection.executescript(text)


def console(text: str) -> None:
    """Each command in its turn; what is shown below it is compared."""
    with ExitStack() as going:
        for command, shown in commands.each(text):
            if not commands.is_run(command):
                continue
            if sign := commands.begun(command):
                going.enter_context(commands.Going(command, sign))
                continue
            said = commands.run(command, shown)
            if prompts := commands.without_typed(shown):
                shown, said = f"{_on_one_line(prompts)}…", _on_one_line(said)
            if shown:
                compare(shown, said, f"$ {command}")


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def compare(shown: str, said: str, what: str) -> None:
    assert re.fullmatch(_pattern(shown), _plain(said)), f"{what} printed\n{said}\nnot\n{shown}"


def _plain(text: str) -> str:
    """Columns may be wider than they are shown."""
    return "".join(re.sub(r" +", " ", line).strip() + "\n" for line in text.splitlines())


def _pattern(shown: str) -> str:
    lines = (
        r"(?:.*\n)*?" if line == "…\n" else re.escape(line).replace("…", ".*?")
        for line in _plain(shown).splitlines(keepends=True)
    )
    return "".join(lines)
