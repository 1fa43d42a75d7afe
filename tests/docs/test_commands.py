"""What is done with the commands of a page: see tests/docs/commands.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs import commands, stage

SAYS = (
    "python -c \"print('begins on …', flush=True); import signal; signal.pause()\" towline worker"
)


def test_a_command_says_whether_it_goes_on() -> None:
    assert commands.begun("flask --app shop towline worker --queues a  # for ever") == "begins on"
    assert commands.begun("towline worker shop:app --drain") is None
    assert commands.begun("towline jobs worker") is None
    assert commands.begun("towline") is None
    assert commands.begun("echo worker") is None


@pytest.mark.parametrize("command", ["pip install x", "make format", "sudo pip install -U pip"])
def test_U1_what_would_install_something_is_refused(command: str) -> None:
    with pytest.raises(AssertionError, match="why not"):
        commands.is_run(command)


def test_U1_one_that_goes_on_is_stopped_and_must_end_well() -> None:
    with pytest.raises(
        AssertionError, match=r"\$ python -c"
    ):  # it does not heed SIGTERM as ours do
        stage.console(f"$ {SAYS}\n")


def test_U1_one_that_does_not_begin_is_told() -> None:
    with pytest.raises(AssertionError, match="no database"):
        stage.console("$ towline dashboard --url sqlite:///none.db\n")


def test_U1_what_is_typed_at_a_prompt_is_no_part_of_what_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = "In [1]: 20 + 3\nOut[1]: 23\n"
    stage.console(f"$ cat > typed; echo 'In [1]: Out[1]: 23'\n{shown}")
    assert (tmp_path / "typed").read_text() == "20 + 3\n"
    with pytest.raises(AssertionError, match="printed"):
        stage.console(f"$ echo 'In [1]: Out[1]: 24'\n{shown}")


def test_ports_of_the_pages_may_be_taken() -> None:
    worker = commands.at_free_ports("towline worker a:b --health 127.0.0.1:9464")
    assert worker == commands.at_free_ports("towline worker a:b --health 127.0.0.1:9464")
    assert not worker.endswith(":9464")
    assert (
        commands.at_free_ports("towline dashboard a:b  # :8383") == "towline dashboard a:b --port 0"
    )
