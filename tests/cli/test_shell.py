"""`towline shell`: a prompt with the app, where await works and a task may be defined again."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import ROOT

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
SHOP = """
from towline import Towline

app = Towline("sqlite:///shop.db")

@app.task(name="mail.send_receipt")
def send_receipt(order: int) -> str:
    return f"receipt {order}"
"""
# Cells of a notebook, or what somebody types: each ends with an empty line.
CELLS = """
job = await send_receipt.aenqueue(1)

@app.task
def again(n: int) -> int:
    return n

@app.task
def again(n: int) -> int:
    return n + 1

later = again.enqueue(1)

with app.worker():
    print("answers:", job.result(30), later.result(30))

@app.task(run_in="process")
def apart() -> None: ...

@app.task(name="mail.send_receipt")
def other(order: int) -> None: ...

print("rows:", app.jobs()._repr_html_().count("<tr>"))

"""


def typed(folder: Path, *command: str) -> str:
    """What comes of typing the cells: both streams, in their order."""
    (folder / "shop.py").write_text(SHOP)
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "IPYTHONDIR": str(folder), "TERM": "dumb"},
        input=CELLS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return COLOURS.sub("", done.stdout)


@pytest.mark.parametrize("option", ["--plain", "--traceback"], ids=["Python", "IPython"])
def test_I13_a_task_is_defined_again_at_a_prompt(tmp_path: Path, option: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    towline = [sys.executable, "-m", "towline", "migrate", "shop:app"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(towline, cwd=tmp_path, env=env, check=True, capture_output=True)
    shown = typed(tmp_path, "-m", "towline", "shell", "shop:app", option)
    assert "shop.db: app, send_receipt" in shown
    assert ("In [" in shown) is (option != "--plain")
    assert "answers: receipt 1 2" in shown
    assert 'apart cannot have run_in="process" at a prompt' in shown
    assert "there is a task named mail.send_receipt already" in shown, "that is a module's"
    assert "rows: 3" in shown
    assert shown.count("InvalidTask: ") == 2


def test_I13_a_task_is_defined_once_in_a_script_and_in_c(tmp_path: Path) -> None:
    twice = (
        "from towline import Towline\n"
        "app = Towline('sqlite:///x.db')\n"
        "def again() -> None: ...\n"
        "app.task(again)\n"
        "app.task(again)\n"
    )
    (tmp_path / "script.py").write_text(twice)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for command in (["script.py"], ["-c", twice]):
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "there is a task named again already" in done.stderr
