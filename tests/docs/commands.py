"""The commands of a page: each is run as it stands. One that goes on until it is stopped is begun,
goes on beside those after it, and is stopped when its block ends. What is not run says why here."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from socket import create_server
from threading import Timer
from urllib.request import urlopen

ROOT = Path(__file__).parents[2]
LIMIT = 60.0  # seconds for a command, or until one that goes on has begun

_INSTALLS = "fetches from a package index; test_tutorial.py runs from the wheel that it builds"
_TESTS = "runs all tests, this one among them"
_BENCH = "measures for many minutes; figures of a busy machine are none"
# Commands that are not run, and why. Their words are checked.
NOT_RUN = {
    "python3 -m venv .venv && . .venv/bin/activate && pip install -e '.[dashboard]'": _INSTALLS,
    "make demo": "installs what it needs; tests/demo runs what it starts",
    "make test": _TESTS,
    "make": _TESTS,
    "make proof": f"{_TESTS}, on every server and Python",
    "make bench": _BENCH,
    'make bench ARGS="--engine sqlite --scenario drain --system towline --system huey"': _BENCH,
    "make docs": "writes into the folder that tests read; test_site.py builds the same elsewhere",
}

# What the commands that go on say when they have begun, and with which words they do not go on.
BEGUN = {
    "worker": "begins on",
    "dev": "begins on",
    "dashboard": "dashboard: http",
    "metrics": "metrics: http",
}
ENDS = frozenset({"--drain", "--once", "--max-jobs", "--help"})
_PORT = re.compile(r"(?<=:)9464\b")
_EXTRAS = re.compile(r"pip install -e '?\.(?:\[([\w,]+)\])?'?")
_PROMPT = re.compile(r"^(In \[\d+\]: )(.*)$", re.MULTILINE)


def each(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a block, each with what is shown below it."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.replace("\\\n", "").splitlines(keepends=True)
        yield lines[0].strip(), "".join(lines[1:])


def bare(command: str) -> str:
    """Without its comment."""
    return re.sub(r"\s+# .*$", "", command)


def is_run(command: str) -> bool:
    """Whether it is; else its words are checked."""
    if bare(command) in NOT_RUN:
        check(command)
        return False
    words = shlex.split(command, comments=True)
    assert not {"pip", "make"} & set(words), f"commands.NOT_RUN: why not {command}"
    return True


def check(command: str) -> None:
    """What `make` and `pip` are asked for is there."""
    if target := re.match(r"make (\w[\w-]*)", command):
        makefile = (ROOT / "Makefile").read_text("utf-8")
        assert re.search(rf"^{target[1]}:", makefile, re.MULTILINE), command
    assert extras_in(command) <= known_extras(), command


def extras_in(text: str) -> set[str]:
    """The extras of the package that a text says to install."""
    return {word for found in _EXTRAS.findall(text) for word in found.split(",") if word}


def known_extras() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return set(project["optional-dependencies"])


# ---- running


def run(command: str, shown: str) -> str:
    """Run it to its end, with what is typed at its prompts; what it printed."""
    done = subprocess.run(
        ["bash", "-c", at_free_ports(command)],
        env=_environment(),
        input="".join(f"{typed}\n" for _, typed in _PROMPT.findall(shown)),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, f"$ {command}\n{done.stdout}"
    return done.stdout


def without_typed(shown: str) -> str | None:
    """What a program shows at its prompts when nobody sees what is typed; None without prompts."""
    return _PROMPT.sub(r"\1", shown) if _PROMPT.search(shown) else None


def begun(command: str) -> str | None:
    """What it says when it has begun, if it goes on; it may stand behind another program."""
    words = shlex.split(command, comments=True)
    if "towline" not in words or ENDS & set(words):
        return None
    (name, *_) = [*words[words.index("towline") + 1 :], ""]
    return BEGUN.get(name)


class Going:
    """A command that goes on, from its first words to the end of this block."""

    def __init__(self, command: str, sign: str) -> None:
        self._command = command
        self._sign = sign

    def __enter__(self) -> Going:
        words = shlex.split(at_free_ports(self._command), comments=True)
        self._process = subprocess.Popen(
            words,
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        late = Timer(LIMIT, self._process.kill)
        late.start()
        try:
            sign = self._wait_for_the_sign()
            if place := re.search(r"http://\S+", sign):  # it answers there
                urlopen(place[0], timeout=LIMIT).close()
        finally:
            late.cancel()
        return self

    def _wait_for_the_sign(self) -> str:
        assert self._process.stdout is not None
        said = ""
        for line in self._process.stdout:
            said += line
            if self._sign in line:
                return line
        self._process.communicate()
        raise AssertionError(f"$ {self._command}\n{said}")

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            said = self._process.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise
        assert self._process.returncode == 0, f"$ {self._command}\n{said}"


def at_free_ports(command: str) -> str:
    """The ports of the pages may be taken: a free one in their place."""
    if re.search(r"\btowline (?:dashboard|dev)\b", command):
        return f"{bare(command)} --port 0"
    return _PORT.sub(lambda _: str(_free_port()), command)


@cache
def _free_port() -> int:
    with create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
    return port


def _environment() -> dict[str, str]:
    kept = {
        name: text
        for name, text in os.environ.items()
        if name not in ("TOWLINE_APP", "TOWLINE_URL")
    }
    path = os.pathsep.join([str(Path(sys.executable).parent), kept.get("PATH", "")])
    return {**kept, "PATH": path, "COLUMNS": "110", "PYTHONWARNINGS": "error", "NO_COLOR": "1"}
