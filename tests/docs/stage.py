"""What the program of a page does besides its Python: it saves files, runs commands and SQL, and
compares what was printed with what the page shows, in which `…` stands for anything."""

from __future__ import annotations

import io
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import TextIO

ROOT = Path(__file__).parents[2]

# They go on until they are stopped, or ask one that does, so their words are checked and they are
# not run.
GOES_ON = frozenset({"worker", "dev", "top", "dashboard", "mcp", "metrics", "health", "shell"})
ENDS = frozenset({"--drain", "--once", "--max-jobs", "--help"})


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
    for command, shown in commands(text):
        if checked(command):
            continue
        done = subprocess.run(
            ["bash", "-c", command],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, f"$ {command}\n{done.stdout}"
        if shown:
            compare(shown, done.stdout, f"$ {command}")


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.replace("\\\n", "").splitlines(keepends=True)
        yield lines[0].strip(), "".join(lines[1:])


def checked(command: str) -> bool:
    """Whether it installs something or goes on until it is stopped: then its words are checked."""
    words = shlex.split(command, comments=True)
    if "towline" in words:  # also behind another program: python manage.py towline worker
        return _goes_on(words[words.index("towline") + 1 :])
    match words:
        case ["make"]:
            pass
        case ["make", target, *_]:
            makefile = (ROOT / "Makefile").read_text("utf-8")
            assert re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE), command
        case [*_, "pip", "install", "-e", what]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
            extras = re.fullmatch(r"\.(?:\[([\w,]+)\])?", what)
            assert extras, command
            given = set((extras[1] or "").split(",")) - {""}
            assert given <= set(project["optional-dependencies"]), command
        case _:
            return False
    return True


def _goes_on(words: list[str]) -> bool:
    if not words or words[0] not in GOES_ON or ENDS & set(words):
        return False
    import click

    from towline.cli.commands import group

    whole = click.Context(group, info_name="towline", **group.context_settings)
    group.commands[words[0]].make_context(words[0], words[1:], parent=whole)
    return True


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


def _environment() -> dict[str, str]:
    kept = {
        name: text
        for name, text in os.environ.items()
        if name not in ("TOWLINE_APP", "TOWLINE_URL")
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": path, "COLUMNS": "110", "PYTHONWARNINGS": "error", "NO_COLOR": "1"}
