"""`towline worker`: how it starts, stops and logs, in real processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from tests.cli.shop import APP, LIMIT, ROOT, Shop
from tests.kit import new
from tests.until import until
from towline.version import VERSION

SCRIPT = """
import os
from towline import Towline

app = Towline(os.environ["SHOP_URL"])


@app.task
def double(n: int) -> int:
    return 2 * n


if __name__ == "__main__":
    job = double.enqueue(21)
    code = app.worker(drain=True).run()
    assert job.result(timeout=0) == 42
    raise SystemExit(code)
"""


def test_drain_ends_by_itself_when_nothing_is_left(any_shop: Shop) -> None:
    """W1: exit code 0; the current directory can be imported from."""
    first, second = any_shop.put("add", a=1, b=2), any_shop.put("fetch", n=4)
    any_shop.run("worker", APP, "--drain", "--queues", "default,mail")
    assert any_shop.app.job(first).output == 3
    assert any_shop.app.chain(second).output == 5
    assert any_shop.app.workers() == []


def test_once_runs_the_next_job_if_there_is_one(any_shop: Shop) -> None:
    any_shop.run("worker", APP, "--once")
    jobs = [any_shop.put("add", a=1, b=2) for _ in range(3)]
    any_shop.run("worker", APP, "--once")
    states = [str(any_shop.app.job(job).state) for job in jobs]
    assert states == ["completed", "pending", "pending"]
    assert "--max-jobs" in any_shop.refused("worker", APP, "--once", "--max-jobs", "2", code=2)


@pytest.mark.parametrize("more", [(), ("--processes", "2")])
def test_a_worker_stops_after_so_many_jobs(shop: Shop, more: tuple[str, ...]) -> None:
    jobs = [shop.put("add", a=1, b=2) for _ in range(10)]
    shop.run("worker", APP, "--max-jobs", "3", *more)
    ended = sum(shop.app.job(job).state == "completed" for job in jobs)
    assert ended == (6 if more else 3)
    assert shop.app.workers() == []
    assert "--max-jobs" in shop.refused("worker", APP, "--max-jobs", "0", code=2)


@pytest.mark.parametrize("queues", ["*", "-slow", "mail,*", "mail=1,*=2"])
def test_queues_by_words_and_slots(shop: Shop, queues: str) -> None:
    jobs = [shop.put("add", a=1, b=2), shop.put("fetch", n=4)]
    shop.run("worker", APP, "--drain", "--queues", queues)
    assert [str(shop.app.chain(job).state) for job in jobs] == ["completed", "completed"]


def test_the_first_signal_lets_handlers_end(any_shop: Shop) -> None:
    """W1"""
    job = any_shop.put("hold", name="one")
    worker = any_shop.start("worker", APP)
    any_shop.began("one")
    later = any_shop.store_later()
    worker.signal(signal.SIGTERM)
    any_shop.go("one")
    assert worker.ends() == 0
    assert any_shop.state(job) == "completed"
    assert any_shop.state(later) == "scheduled"
    assert any_shop.app.workers() == []


def test_what_outlives_the_grace_time_is_handed_back(any_shop: Shop) -> None:
    """W1: exit code 0, and no failure is counted."""
    jobs = [any_shop.put("hold", name=f"j{n}") for n in range(3)]
    worker = any_shop.start("worker", APP, "--grace", "0.2")
    for n in range(3):
        any_shop.began(f"j{n}")
    worker.signal(signal.SIGINT)
    assert worker.ends() == 0
    assert [any_shop.state(job) for job in jobs] == ["pending"] * 3
    assert [any_shop.app.job(job).record.used for job in jobs] == [0] * 3
    assert [a.outcome for a in any_shop.app.attempts(jobs[0])] == ["released"]


def test_a_second_signal_stops_at_once(shop: Shop) -> None:
    """W1: exit code 3, also when a handler does not care; it is handed back."""
    job = shop.put("cling", name="stubborn")
    worker = shop.start("worker", APP, "--grace", "600")
    shop.began("stubborn")
    worker.signal()
    while worker.process.poll() is None:
        worker.signal()
        try:
            worker.process.wait(0.2)
        except subprocess.TimeoutExpired:
            pass
    assert worker.ends() == 3
    assert shop.state(job) == "pending"


def test_log_lines_are_for_people(shop: Shop) -> None:
    """Time, level, text; the job in front; no colours in a file; X3: no arguments, no results."""
    shop.put("say", text="4111-1111")
    shop.put("bad", secret="hunter2")
    done = shop.run("worker", APP, "--drain", "--log-level", "debug")
    lines = [line for line in done.stderr.splitlines() if "speaking" in line]
    assert lines, done.stderr
    assert " INFO    [say 1/1] speaking" in lines[0]
    assert "\x1b" not in done.stderr
    assert "4111" not in done.stderr
    assert "hunter2" not in done.stderr


def test_json_logs_are_one_object_per_line(shop: Shop) -> None:
    """With the job, attempt and task, and what the handler added; X3."""
    id = shop.put("say", text="4111-1111")
    done = shop.run("worker", APP, "--drain", "--json-logs", "--name", "w7")
    objects = [json.loads(line) for line in done.stderr.splitlines()]
    assert {"time", "level", "logger", "pid", "text"} <= set.intersection(*map(set, objects))
    (spoken,) = (found for found in objects if "speaking" in found["text"])
    wanted = {"job": id, "attempt": 1, "task": "say", "order": 7, "level": "info"}
    assert wanted.items() <= spoken.items()
    assert any("w7" in found["text"] for found in objects)
    assert "4111" not in done.stderr


def test_a_worker_says_when_it_begins_and_what_it_has_done(shop: Shop) -> None:
    """Version, database, queues, slots and tasks; how many ended, and how many of them badly."""
    shop.put("add", a=1, b=1)
    shop.store(new("bad", arguments='{"secret": "x"}', max_attempts=1))
    log = shop.run("worker", APP, "--drain", "--name", "w1", "--concurrency", "3").stderr
    number = len(shop.data("tasks", APP)["tasks"])
    assert (
        f"worker w1 of Towline {VERSION} begins on {shop.url}: queues default, mail, 3 at a time, "
        f"{number} tasks\n"
    ) in log
    assert "worker w1 has stopped: 2 attempts ended, 1 of them badly\n" in log
    assert "begins (" not in log


def test_a_failure_is_said_with_its_first_line(shop: Shop) -> None:
    """In threads and processes; when it comes again; X11: as plain text."""
    shop.put("refuse", text="no \x1b[2J")
    shop.store(new("refuse_there", arguments='{"text": "not there"}', max_attempts=1))
    log = shop.run("worker", APP, "--drain").stderr
    assert r"attempt 1 of job 1 (refuse): LookupError: no \x1b[2J; again in" in log
    assert "(refuse_there): LookupError: not there; the job has failed" in log
    for text in ("and more", "Traceback", "\x1b"):
        assert text not in log


def test_errors_can_be_kept_out_of_the_log(shop: Shop) -> None:
    """Also from the children of a supervisor."""
    for more in ((), ("--processes", "2")):
        for task in ("refuse", "refuse_there"):
            shop.store(new(task, arguments='{"text": "hunter2"}', max_attempts=1))
        words = ("worker", APP, "--drain", "--no-error-text", "--log-level", "debug", *more)
        log = shop.run(*words).stderr
        assert log.count("LookupError; the job has failed") == 2
        assert "hunter2" not in log


@pytest.mark.parametrize("json_logs", [False, True])
def test_debug_has_each_attempt(shop: Shop, json_logs: bool) -> None:
    """Its begin, its end with the duration, the traceback of its error; in processes too."""
    shop.put("add", a=1, b=1)
    for task in ("refuse", "refuse_there"):
        shop.store(new(task, arguments='{"text": "no"}', max_attempts=1))
    words = ("worker", APP, "--drain", "--log-level", "debug")
    log = shop.run(*words, *(["--json-logs"] if json_logs else [])).stderr
    texts = [log]
    if json_logs:
        lines = [json.loads(line) for line in log.splitlines()]
        texts = [line["text"] for line in lines if line.get("job") is not None]
        failed = [line for line in lines if line.get("error_type")]
        assert {line["error_type"] for line in failed} == {"builtins.LookupError"}
        assert {(line["job"], line["task"]) for line in failed} == {
            (2, "refuse"),
            (3, "refuse_there"),
        }
    for parts in (
        ("attempt 1 of job 1 (add) begins (thread)",),
        ("attempt 1 of job 1 (add): completed after 0.",),
        ("attempt 1 of job 3 (refuse_there) begins (process)",),
        ("attempt 1 of job 2 (refuse):", "Traceback", "LookupError: no", "and more"),
    ):
        assert any(all(part in text for part in parts) for text in texts), (parts, log)


def test_the_log_level_is_kept_to(shop: Shop) -> None:
    shop.put("say", text="x")
    assert shop.run("worker", APP, "--drain", "--log-level", "error").stderr == ""


def test_settings_that_make_no_sense_are_refused(shop: Shop) -> None:
    """W5"""
    assert "concurrency" in shop.refused("worker", APP, "--concurrency", "0", code=2)
    assert "lease" in shop.refused("worker", APP, "--lease", "0.1", code=2)
    assert "--processes" in shop.refused("worker", APP, "--processes", "0", code=2)
    assert "512M" in shop.refused("worker", APP, "--memory-limit", "much", code=2)
    assert "queues" in shop.refused("worker", APP, "--queues", ",", code=2)
    assert "mail=2,*=6" in shop.refused("worker", APP, "--queues", "mail=2,default", code=2)


def test_a_worker_needs_the_tasks(shop: Shop) -> None:
    assert "MODULE:APP" in shop.refused("worker", code=2)
    assert "MODULE:APP" in shop.refused("worker", "shop", code=2)
    assert "not both" in shop.refused("worker", APP, "--app", APP, code=2)
    shop.run("worker", "--drain", "--app", APP)
    shop.run("worker", "--drain", env={"TOWLINE_APP": APP})


def test_reload_needs_watchfiles(shop: Shop) -> None:
    (shop.folder / "watchfiles.py").write_text("raise ImportError('not installed')")
    line = shop.refused("worker", APP, "--reload", code=2)
    assert "pip install -e '.[reload]'" in line


GREETER = """
import os
from towline import Towline

app = Towline(os.environ["SHOP_URL"])

@app.task
def greet() -> str:
    return {!r}
"""


def test_reload_runs_the_code_as_it_is_now(shop: Shop) -> None:
    module = shop.folder / "greeter.py"
    module.write_text(GREETER.format("as it was"))
    worker = shop.start("worker", "greeter:app", "--reload")

    def greeting() -> Any:
        id = shop.put("greet")
        until(lambda: shop.state(id) == "completed", "a greeting")
        return shop.app.job(id).output

    assert greeting() == "as it was"
    module.write_text(GREETER.format("as it is"))
    until(lambda: greeting() == "as it is", "the new greeting")
    worker.signal()
    assert worker.ends() == 0


def test_tasks_of_the_script_that_is_run(shop: Shop) -> None:
    """Issue 5, item 5: tasks defined in __main__ work."""
    script = shop.folder / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=shop.folder, env={**os.environ, "SHOP_URL": shop.url, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_times_that_are_none_are_refused_before_anything_starts(shop: Shop) -> None:
    """Finding A23"""
    for word in ("nan", "1e400", "-1", "soon"):
        said = shop.refused("worker", APP, "--processes", "2", "--grace", word, code=2)
        assert "is not a number of seconds" in said


def test_prefetch_can_be_said(shop: Shop) -> None:
    """Finding A4: the command line has it too, and hands it to children."""
    job = shop.put("add", a=1, b=2)
    shop.run("worker", APP, "--drain", "--prefetch", "0", "--processes", "2")
    assert shop.app.job(job).output == 3


def test_it_works_without_stderr(shop: Shop) -> None:
    """Finding A25: and nothing is opened in its place."""
    job = shop.put("tell", text="hello")
    command = [sys.executable, "-m", "towline", "worker", APP, "--drain"]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command],
        cwd=shop.folder, env=shop.environment(), check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert shop.state(job) == "completed"


def test_lines_of_processes_are_json_too(shop: Shop) -> None:
    """Finding B5, and A24: nothing that a terminal obeys."""
    job = shop.put("tell", text="x \x1b[2J \u009b \u202e y")
    done = shop.run("worker", APP, "--drain", "--json-logs")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    (line,) = (line for line in lines if line["logger"] == "towline.job")
    assert (line["job"], line["attempt"], line["task"]) == (job, 1, "tell")
    assert done.stderr.isascii()
    assert "\x1b" not in done.stderr


def test_what_a_terminal_obeys_is_shown_as_text(shop: Shop) -> None:
    """Finding A24: and a second line does not look like one of ours."""
    shop.put("tell", text="x \x1b[2J \u009b \u202e y\n2026-01-01 00:00:00 INFO forged")
    log = shop.run("worker", APP, "--drain").stderr
    assert r"x \x1b[2J \x9b \u202e y" in log
    assert "\n2026-01-01" not in log
    assert "\n    2026-01-01 00:00:00 INFO forged" in log
