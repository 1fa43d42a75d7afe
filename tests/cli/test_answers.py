"""Answers that people can use: why a job waits, which prefix there is, whose line is wrong."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from tests.cli.shop import APP, Shop
from tests.kit import new


def test_M13_why_a_pending_job_does_not_start(any_shop: Shop) -> None:
    """Finding M13: its queue is paused, or nobody works on it; for people and with --json."""
    job = any_shop.store(new("fetch", queue="mail", arguments='{"n": 1}'))
    reason = any_shop.data("job", APP, str(job))["reason"]
    assert reason == "no worker serves queue mail"
    worker = any_shop.start("worker", APP, "--queues", "default")
    worker.told("begins")
    other = any_shop.put("hold", name="one")
    any_shop.began("one")
    assert "no worker serves queue mail" in any_shop.text("job", APP, str(job))
    assert "no worker serves queue mail" in any_shop.text("jobs", APP)
    assert any_shop.data("job", APP, str(other))["reason"] is None
    assert any_shop.data("job", APP, str(other))["why"].startswith("it runs on ")
    any_shop.app.pause("mail")
    assert any_shop.data("jobs", APP, "--queue", "mail")["jobs"][0]["reason"] == (
        "queue mail is paused"
    )
    assert "queue mail is paused" in any_shop.text("job", APP, str(job))


def test_M12_a_wrong_prefix_names_those_there_are(any_shop: Shop) -> None:
    """Finding M12: `towline migrate` would make a second set of tables."""
    any_shop.app.migrate()
    any_shop.run("migrate", "--url", any_shop.url, "--prefix", "mine_")
    line = any_shop.refused("jobs", "--url", any_shop.url, "--prefix", "our_", code=4)
    assert "no Towline tables with prefix our_" in line
    assert "there are tables with prefix mine_, towline_" in line
    found = any_shop.data("doctor", "--url", any_shop.url, "--prefix", "our_", code=1)
    assert "with prefix mine_, towline_" in found["findings"][0]["text"]


def test_M12_an_empty_database_names_none(shop: Shop) -> None:
    url = f"sqlite:///{shop.folder}/new.db"
    with closing(sqlite3.connect(shop.folder / "new.db")) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    line = shop.refused("jobs", "--url", url, code=4)
    assert "no Towline tables: run `towline migrate`" in line


def test_M11_an_import_error_shows_the_users_own_line_first(shop: Shop) -> None:
    """Finding M11: not the line of a library that raised; --traceback shows the rest."""
    (shop.folder / "settings.py").write_text("import json\n\n\nVALUE = json.loads('{')\n")
    (shop.folder / "works.py").write_text("import settings\n")
    for command in ("stats", "worker"):
        line = shop.refused(command, "works:app", code=2)
        assert "JSONDecodeError" in line
        own, raised = line.index("(settings.py, line 4"), line.index("json/decoder.py, line ")
        assert own < raised
        assert "--traceback" in line
        done = shop.run(command, "works:app", "--traceback", code=2)
        assert done.stdout == ""
        first = done.stderr.splitlines()[1]
        assert first.endswith('works.py", line 1, in <module>'), "not how Python came there"
        assert "json/decoder.py" in done.stderr
        assert done.stderr.splitlines()[-1].startswith("towline: works cannot be imported")


def test_M11_a_module_that_ends_the_program(shop: Shop) -> None:
    (shop.folder / "script.py").write_text("import sys\nsys.exit()\n")
    assert "script.py, line 2" in shop.refused("stats", "script:app", code=2)


def test_resume_says_what_it_did(any_shop: Shop) -> None:
    """Whether it was paused at all, too."""
    any_shop.app.pause("mail")
    assert any_shop.text("resume", APP, "mail") == "queue mail goes on\n"
    assert any_shop.text("resume", APP, "mail") == "queue mail was not paused\n"


def test_a_filter_given_twice_is_refused(any_shop: Shop) -> None:
    """The last one would win, silently."""
    for option, value in (("--task", "add"), ("--queue", "mail")):
        for command in ("jobs", "cancel", "retry"):
            line = any_shop.refused(command, APP, option, value, option, value, code=2)
            assert f"{option} was given twice" in line


def test_D2_all_jobs_are_meant_by_a_word_only(any_shop: Shop) -> None:
    """Findings B1, D2: without a filter it is refused, and says how; --all means all."""
    jobs = [any_shop.put("add", a=n, b=n) for n in range(3)]
    for command in ("cancel", "retry"):
        assert "--all" in any_shop.refused(command, APP, code=2)
        assert "not both" in any_shop.refused(command, APP, "--all", "--task", "add", code=2)
        assert "not both" in any_shop.refused(command, APP, "--all", "1", code=2)
    assert any_shop.text("cancel", APP, "--all", "--preview") == "3 jobs would be cancelled\n"
    assert any_shop.text("cancel", APP, "--all") == "3 jobs cancelled\n"
    assert any_shop.text("retry", APP, "--all", "--preview") == "0 jobs would be retried\n"
    assert any_shop.text("retry", APP, "--state", "cancelled") == "3 jobs retried\n"
    assert {any_shop.state(job) for job in jobs} == {"pending"}


def test_the_reason_of_a_cancel_is_no_error(any_shop: Shop) -> None:
    job = any_shop.put("add", a=1, b=1)
    any_shop.run("cancel", APP, str(job), "--reason", "not wanted")
    shown = any_shop.text("job", APP, str(job))
    assert "last error" not in shown
    assert "why it was cancelled\nnot wanted\n" in shown


def test_the_list_of_commands_is_whole(shop: Shop) -> None:
    """No line of it is cut."""
    for width in ("60", "80", "120"):
        shown = shop.run("--help", env={"COLUMNS": width}).stdout
        listed = " ".join(shown.partition("\nWork:")[2].split())
        assert "..." not in listed
        assert "with VALUE, which is JSON, as its output" in listed


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "1e400"])
def test_a_demo_of_no_length(shop: Shop, value: str) -> None:
    assert "--seconds" in shop.refused("demo", "--seconds", value, code=2)
