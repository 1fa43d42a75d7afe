"""Run the tests on the other Pythons of this machine: `make pythons`.

Each version that pyproject.toml names and that is found, by PYTHON312 and the like, on the PATH or
with pyenv, gets an environment of its own, .venv-3.12, made as `make` makes .venv; one that is not
found is named. Of the tests those run that meet the interpreter: connections, threads, processes,
its end. Random search and SQL are the same on every version, so they run at the speed of
`make test`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from tests import speed

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("conformance", "worker", "sqlite", "faces", "testing", "unit", "cli", "docs", "wakes")


def promised() -> list[str]:
    """The versions that the project says it runs on, such as "3.12"."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    words = (re.fullmatch(r".* :: (3\.\d+)", each) for each in project["classifiers"])
    return [word[1] for word in words if word]


def find(version: str) -> Path | None:
    """A program of this version that starts; what pyenv puts on the PATH may only complain."""
    said = os.environ.get(f"PYTHON{version.replace('.', '')}")
    found = [Path(path)] if (path := said or shutil.which(f"python{version}")) else []
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    installed = pyenv.glob(f"{version}.*/bin/python")
    found += sorted(installed, key=lambda path: [*map(int, re.findall(r"\d+", str(path)))])[::-1]
    for program in found:
        asked = [
            str(program),
            "-c",
            "import sys, venv, sqlite3; print('%d.%d' % sys.version_info[:2])",
        ]
        if subprocess.run(asked, capture_output=True, text=True).stdout.strip() == version:
            return program
    return None


def run(version: str, program: Path, arguments: list[str]) -> bool:
    """Make its environment if need be, and run the tests there."""
    print(f"---- Python {version}: {program}", flush=True)
    stamp = f".venv-{version}/.installed"
    made = subprocess.run(["make", stamp, f"PYTHON={program}", "EXTRAS=[dev]"], cwd=ROOT)
    workers = str(min(8, 2 * (os.cpu_count() or 1)))
    tests = [f"tests/{folder}" for folder in FOLDERS]
    command = [
        str(ROOT / f".venv-{version}/bin/python"), "-m", "pytest", "-q", "-ra",
        "-n", workers, "--maxschedchunk=2", "-p", "no:cacheprovider",
        *([] if any("tests/" in word for word in arguments) else tests), *arguments,
    ]  # fmt: skip
    environment = {name: text for name, text in os.environ.items() if name != speed.VARIABLE}
    return (
        made.returncode == 0 and subprocess.run(command, cwd=ROOT, env=environment).returncode == 0
    )


def main(arguments: list[str]) -> int:
    own = "{}.{}".format(*sys.version_info)
    said = {}
    for version in promised():
        if version == own:
            said[version] = "`make test` runs on it"
        elif (program := find(version)) is None:
            said[version] = "not found, nothing was run"
        else:
            said[version] = "passed" if run(version, program, arguments) else "FAILED"
    for version, word in said.items():
        print(f"Python {version}: {word}")
    return int("FAILED" in said.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
