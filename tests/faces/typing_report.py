"""What mypy strict and pyright say about the files in `typing/`, line by line.

`python -m tests.faces.typing_report` prints a table of the lines that both must reject.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "typing"
ROOT = Path(__file__).parents[2]
MARK = "  # no"

Line = tuple[str, int]
Said = dict[Line, str]


def files() -> list[Path]:
    return sorted(FOLDER.glob("*.py"))


def marked() -> Said:
    """The lines that must be rejected, with their text."""
    return {
        (path.name, number): line.removesuffix(MARK).strip()
        for path in files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if line.endswith(MARK)
    }


def mypy() -> Said:
    """Every line that mypy reports, with the first thing it says there."""
    answer = _run("mypy", "--strict", "--output=json", *map(str, files()))
    said: Said = {}
    for found in map(json.loads, answer.splitlines()):
        if found["severity"] == "error":
            line = Path(found["file"]).name, found["line"]
            said.setdefault(line, f"{found['message']} [{found['code']}]")
    return said


def pyright() -> Said:
    """Every line that pyright reports, with the first thing it says there.

    The folder is a project of its own: the main one leaves out what is wrong on purpose.
    """
    answer = json.loads(
        _run("pyright", "--outputjson", "-p", str(FOLDER), "--pythonpath", sys.executable)
    )
    assert answer["summary"]["filesAnalyzed"] == len(files())
    said: Said = {}
    for found in answer["generalDiagnostics"]:
        if found["severity"] == "error":
            line = Path(found["file"]).name, found["range"]["start"]["line"] + 1
            first, *_ = found["message"].splitlines()
            said.setdefault(line, f"{first} [{found.get('rule', 'syntax')}]")
    return said


def _run(tool: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", tool, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


def table() -> str:
    """The marked lines with what each checker says about them, as Markdown."""
    lines, by_mypy, by_pyright = marked(), mypy(), pyright()
    rows = ["| file | line | mypy | pyright |", "|---|---|---|---|"]
    for line, text in lines.items():
        cells = (line[0], f"`{text}`", by_mypy.get(line, "–"), by_pyright.get(line, "–"))
        rows.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
