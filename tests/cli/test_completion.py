"""completion: the scripts, and what they are told."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from tests.cli.shop import APP, ROOT, Shop

VARIABLE = "_TOWLINE_COMPLETE"


def completed(shop: Shop, *words: str, **more: str) -> list[str]:
    """What bash is told for a line whose last word is being typed."""
    line = ["towline", *words]
    env = {VARIABLE: "bash_complete", "COMP_WORDS": " ".join(line), **more}
    done = shop.run(env={**env, "COMP_CWORD": str(len(line) - 1)})
    assert done.stderr == ""
    return [item.partition(",")[2] for item in done.stdout.split("\n") if item]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_command(shop: Shop, shell: str) -> None:
    script = shop.text("completion", shell)
    assert f"{VARIABLE}={shell}_complete" in script
    assert shop.data("completion", shell) == {"shell": shell, "script": script}
    if path := shutil.which(shell):
        subprocess.run([path, "-n", "-c", script], check=True)
    assert "'sh' is not one of" in shop.refused("completion", "sh", code=2)


def test_commands_and_options(shop: Shop) -> None:
    assert completed(shop, "re") == ["rerun", "resume", "retry"]
    assert "--state" in completed(shop, "jobs", APP, "--st")
    assert completed(shop, "jobs", APP, "--state", "pen") == ["pending"]


def test_names_of_the_app(shop: Shop) -> None:
    """Bash takes shop:app apart."""
    apart = ("shop", ":", "app")
    for app in ((APP,), apart, ("--app", *apart)):
        assert completed(shop, "enqueue", *app, "f") == ["fetch"]
        assert completed(shop, "jobs", *app, "--task", "jo") == ["join"]
        assert completed(shop, "pause", *app, "''") == ["default", "mail"]
    assert completed(shop, "errors", "--queue", "ma", TOWLINE_APP=APP) == ["mail"]


def test_it_says_nothing_when_it_cannot_know(shop: Shop) -> None:
    """An application that cannot be imported, or that prints, or ends the program."""
    (shop.folder / "loud.py").write_text("print('hello')\nraise SystemExit('broken')\n")
    for line in (("loud:app", "f"), ("none:app", "f"), ("f",), ("--url", shop.url, "f")):
        assert completed(shop, "enqueue", *line) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_in_a_real_bash(shop: Shop) -> None:
    """The script, the variables that bash sets, and the words it takes apart."""
    (shop.folder / "towline").write_text(f'#!/bin/sh\nexec {sys.executable} -m towline "$@"\n')
    (shop.folder / "towline").chmod(0o755)
    script = (
        f'PATH="{shop.folder}:$PATH"; eval "$(towline completion bash)"\n'
        "COMP_WORDS=(towline enqueue shop : app fe); COMP_CWORD=5\n"
        '_towline_completion towline; echo "${COMPREPLY[@]}"\n'
    )
    env = {**shop.environment(), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["bash", "--norc", "-c", script], cwd=shop.folder, env=env, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("fetch\n", "")
