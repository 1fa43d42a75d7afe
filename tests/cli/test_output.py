"""What reaches a terminal, a pipe or a program: no control character, valid JSON, whatever the
encoding; and an output that cannot be written (X11, findings A21, A23, A24)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shop import APP, Shop
from tests.kit import new
from tests.speed import by_speed
from towline.operation import Op, Query, Steps

EVIL = "\x1b]0;owned\x07\x1b[2J \x9b31m \u202eevil\u2066 \u2028 \r\x7f \u200f"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def alter(shop: Shop, text: str) -> None:
    """What a hand at a database prompt may do."""

    def steps() -> Steps[None]:
        yield Query("alter", text)()

    shop.app.runner.engine.run(Op("alter", steps))


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def command(
    shop: Shop, *words: str, code: int = 0, **settings: Any
) -> subprocess.CompletedProcess[bytes]:
    """The command in a process of its own, whose output is what it is told to be."""
    env = {**shop.environment(), **settings.pop("env", {})}
    settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "towline", *words],
        cwd=shop.folder, env=env, timeout=60, check=False, **settings,
    )  # fmt: skip
    said = (done.stderr or b"").decode("utf-8", "replace")
    assert done.returncode == code, f"exit code {done.returncode}\n{said}"
    assert "Traceback" not in said
    assert "Exception ignored" not in said
    return done


@pytest.fixture
def evil(any_shop: Shop) -> Shop:
    """A job every text of which was written by somebody hostile."""
    shop = any_shop
    job = shop.put("add", a=1, b=1)
    shop.app.fail(job, "boom")
    job = shop.put("add", a=1, b=1)
    for column in ("task", "queue", "label", "key"):
        alter(shop, f"UPDATE towline_job SET {column} = {quoted(f'{column} {EVIL}')}")
    alter(shop, f"UPDATE towline_live SET queue = {quoted(f'queue {EVIL}')}")
    alter(shop, f"UPDATE towline_attempt SET error = {quoted(f'error {EVIL}')}")
    shop.app.runner.run(shop.app.runner.store.pause(f"paused {EVIL}", EVIL))
    return shop


def test_X11_nothing_stored_reaches_a_terminal_raw(evil: Shop) -> None:
    """Finding A20, A24: escaped, in every command, in doctor and in errors."""
    for words in (
        ("jobs",), ("job", "1"), ("job", "2"), ("chain", "1"), ("stats",), ("doctor",),
        ("fail", "1", "x"), ("retry", "1", "1"), ("cancel", "--queue", "default", "--preview"),
    ):  # fmt: skip
        bad = words[0] in ("doctor", "fail", "retry")
        done = evil.run(words[0], APP, *words[1:], code=1 if bad else 0)
        shown = done.stdout + done.stderr
        assert not HARMFUL.findall(shown), (words, shown)
    shown = evil.text("job", APP, "1")
    assert r"\x1b]0;owned\x07\x1b[2J" in shown
    assert r"\x9b31m \u202eevil\u2066" in shown


def test_X11_one_row_is_one_line(evil: Shop) -> None:
    """A name with a line break forges no row."""
    alter(evil, "UPDATE towline_job SET task = 'add\n 3  completed  forged'")
    assert len(evil.text("jobs", APP).splitlines()) == 3


def test_X11_an_error_of_usage_shows_what_was_typed_escaped(shop: Shop) -> None:
    for words in (("jobs", APP, "--since", EVIL[:9]), ("jobs", APP, f"x{EVIL[:9]}"), (EVIL[:9],)):
        assert not HARMFUL.findall(shop.refused(*words, code=2))
    (shop.folder / "colours.py").write_text("raise ValueError('\\x1b[2J\\x9b1m')\n")
    assert not HARMFUL.findall(shop.refused("jobs", "colours:app", code=2))


def test_json_is_ascii_and_valid(evil: Shop) -> None:
    """Finding A24: no control character in it, no NaN, no half of a character."""
    sqlite = evil.url.startswith("sqlite")
    alter(evil, """UPDATE towline_job SET arguments = '{"a": NaN, "b": [-Infinity, 1e999]}'""")
    alter(evil, "UPDATE towline_attempt SET output = '\"\\ud800\"', outcome = 1, progress = "
          + ("9e999" if sqlite else "'NaN'"))  # fmt: skip
    for words in (("jobs",), ("job", "1"), ("job", "2"), ("chain", "1"), ("stats",)):
        text = evil.text(words[0], APP, *words[1:], "--json")
        assert text.isascii()
        json.loads(text, parse_constant=pytest.fail)
    found = evil.data("job", APP, "1")
    assert found["arguments"] == {"a": "NaN", "b": ["-Infinity", "1e999"]}
    assert found["output"] == "\ud800"
    assert not HARMFUL.findall(evil.text("job", APP, "1"))


def test_json_is_all_that_stdout_gets_though_the_application_prints(shop: Shop) -> None:
    (shop.folder / "noisy.py").write_text("print('hello')\nfrom shop import app\n")
    done = shop.run("stats", "noisy:app", "--json")
    assert json.loads(done.stdout)["queues"] == {}
    assert done.stderr == "hello\n"
    assert shop.run("stats", "noisy:app").stdout.startswith("hello\n")


def test_what_is_stored_and_no_json_is_shown_as_text(any_shop: Shop) -> None:
    """A page of jobs never fails because of one of them."""
    deep = "[" * 5000 + "]" * 5000
    for n, text in enumerate(("{oops", deep, "[" + "9" * 6000 + "]"), 1):
        any_shop.put("add", a=1, b=1)
        alter(any_shop, f"UPDATE towline_job SET arguments = '{text}' WHERE id = {n}")
        assert any_shop.data("job", APP, str(n))["arguments"] == text
        assert text[:50] in any_shop.text("job", APP, str(n))


def test_A21_a_time_beyond_the_calendar_is_shown_as_its_end(any_shop: Shop) -> None:
    """Finding A21: listing never raises."""
    job = any_shop.store_later()
    alter(any_shop, "UPDATE towline_live SET run_at = 253402318000000000")  # in the year 10000
    for zone in ("UTC", "Asia/Tokyo", "America/Los_Angeles"):
        for words in (("jobs",), ("job", str(job)), ("chain", str(job)), ("doctor",)):
            any_shop.run(words[0], APP, *words[1:], env={"TZ": zone})
    assert any_shop.data("jobs", APP)["jobs"][0]["run_at"].startswith("9999-12-3")


def test_A10_a_progress_that_is_no_number_is_shown(shop: Shop) -> None:
    """Finding A10: rows of an earlier release, or written by hand."""
    job = shop.put("hold", name="one")
    shop.app.complete(job, "x")
    alter(shop, "UPDATE towline_attempt SET progress = x'0000003f'")
    assert "hold" in shop.text("jobs", APP)
    assert "hold" in shop.text("job", APP, str(job))
    assert shop.data("jobs", APP)["jobs"][0]["id"] == job


@pytest.mark.parametrize("encoding", by_speed(["ascii"], ["ascii", "latin-1", "utf-8"]))
def test_A24_any_encoding_will_do(shop: Shop, encoding: str) -> None:
    """Finding A24: what it cannot show is escaped; columns stay in line."""
    shop.store(new("größer", label="大, → …"))
    shop.put("bad", secret="x")
    shop.app.fail(2, "→ ß 大")
    env = {"PYTHONIOENCODING": encoding, "COLUMNS": "70"}
    for words in (("jobs",), ("job", "2"), ("stats",), ("--help",)):
        app = () if words[0] == "--help" else (APP,)
        command(shop, words[0], *app, *words[1:], env=env).stdout.decode(encoding)
    jobs = command(shop, "jobs", APP, env=env).stdout.decode(encoding)
    assert {"ascii": r"gr\xf6\xdfer", "latin-1": "größer", "utf-8": "größer"}[encoding] in jobs
    header, second, first = jobs.splitlines()
    assert header.index("queue") == first.index("default") == second.index("default")
    doctor = command(shop, "doctor", APP, env=env, code=1).stdout.decode(encoding)
    assert ("→ " if encoding == "utf-8" else "> ") in doctor
    shown = command(shop, "complete", APP, "2", "大", env=env, code=2).stderr.decode(encoding)
    assert "is not JSON" in shown
    json.loads(command(shop, "jobs", APP, "--json", env=env).stdout.decode("ascii"))


def test_A24_the_c_locale_will_do(shop: Shop) -> None:
    """As in cron and in small containers, without Python's own remedies."""
    shop.store(new("größer", label="大"))
    env = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert rb"gr\xf6\xdfer" in command(shop, "jobs", APP, env=env).stdout
    command(shop, "doctor", APP, env=env, code=1)


def test_A23_a_reader_that_went_away_is_no_error(shop: Shop) -> None:
    """Finding A23: as in `towline jobs | head -1`: quiet, and the exit code says it."""
    for n in range(300):
        shop.store(new("add", label=f"{n} {'long ' * 100}"))
    for words in (("jobs", "--limit", "1000"), ("jobs", "--json"), ("stats",)):
        read, write = os.pipe()
        os.close(read)
        done = command(shop, words[0], APP, *words[1:], stdout=write, code=1)
        os.close(write)
        assert done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_A23_an_output_that_cannot_be_written_is_told_in_a_line(shop: Shop) -> None:
    """Finding A23: a full disk, a closed descriptor; exit code 1."""
    shop.put("add", a=1, b=1)
    for words in (("jobs", APP), ("jobs", APP, "--json"), ("sql", APP), ("doctor", APP)):
        with open("/dev/full", "w") as full:
            done = command(shop, *words, stdout=full, code=1)
        assert done.stderr.startswith(b"towline: the output could not be written: No space left")
        assert done.stderr.count(b"\n") == 1
        script = [sys.executable, "-W", "error", "-m", "towline", *words]
        closed = subprocess.run(
            ["sh", "-c", 'exec "$@" >&-', "sh", *script],
            cwd=shop.folder, env=shop.environment(), stderr=subprocess.PIPE, check=False,
        )  # fmt: skip
        assert closed.returncode == 1, closed.stderr
        assert closed.stderr.startswith(b"towline: the output could not be written: ")
        assert closed.stderr.count(b"\n") == 1


def test_A23_a_complaint_that_nobody_hears_keeps_its_exit_code(shop: Shop) -> None:
    """Finding A23: stderr closed or full; nothing of it goes to stdout."""
    script = [sys.executable, "-m", "towline", "job", APP, "99"]
    for closing in ("2>&-", "2>/dev/full"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {closing}', "sh", *script],
            cwd=shop.folder, env=shop.environment(), stdout=subprocess.PIPE, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (1, b"")


def test_A23_what_is_far_too_large_is_refused_in_a_line(shop: Shop) -> None:
    """Finding A23: exit code 2, and a line that people can read."""
    shop.put("add", a=1, b=1)
    many = "9" * 5000
    for words in (
        ("job", many),
        ("job", "9" * 19),
        ("chain", many),
        ("retry", many),
        ("cancel", "1", many),
        ("jobs", "--cursor", many),
        ("jobs", "--cursor", "9" * 19, "--oldest"),
        ("jobs", "--limit", many),
        ("jobs", "--since", "99999999999999999d"),
        ("jobs", "--since", f"{many}s"),
        ("jobs", "--until", "0001-01-01T00:00+14:00"),
        ("complete", "1", "[" * 100_000),
        ("complete", "1", "[" * 100_000 + "]" * 100_000),
        ("complete", "1", many),
        ("complete", "1", "NaN"),
        ("vacuum", "--pages", many),
        ("vacuum", "--pages", "-1"),
    ):
        line = shop.refused(words[0], APP, *words[1:], code=2)
        assert len(line) < 400, (words[0], line)
    assert shop.state(1) == "pending"
