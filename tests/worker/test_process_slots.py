"""`run_in="process"`: handlers in spawned processes, which are killed, die, and are replaced."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.database import Database
from tests.until import LIMIT, until
from tests.worker.gate import outcomes
from towline import ChainCancelled, ChainFailed, State, Towline
from towline.app.handles import Job
from towline.errors import InvalidTask
from towline.worker.claimed_ahead import ClaimedAhead
from towline.worker.slots.process import ProcessSlots
from towline.worker.slots.process_slot import ProcessSlot

MODULE = "tests.worker.tasks_process"


@pytest.fixture
def tasks(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of tasks, its app on this test's database here and in every process."""
    monkeypatch.setenv("TOWLINE_URL", url)
    monkeypatch.delitem(sys.modules, MODULE, raising=False)
    module = importlib.import_module(MODULE)
    yield module
    module.app.close()


@pytest.fixture
def app(tasks: Any) -> Towline:
    app: Towline = tasks.app
    return app


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file at which a handler and its test meet."""
    return tmp_path / "meeting"


def inside(path: Path) -> int:
    """Wait until the handler is there; the number it wrote."""
    until(path.exists)
    return int(path.read_text() or 0)


def is_gone(pid: int) -> bool:
    """Not running, and waited for: a zombie is still there."""
    return not Path(f"/proc/{pid}").exists()


def run_to_the_end(app: Towline, job: Job[Any]) -> None:
    """Let a job run at once whenever it comes back."""
    while until(lambda: job.refresh().state is not State.RUNNING) and job.state.open:
        if job.state is State.SCHEDULED:
            app.run_now(job.id)
        time.sleep(0.01)


# ---- what comes of them


def test_all_three_kinds_run_in_one_worker(tasks: Any, app: Towline) -> None:
    """W2: threads and the loop here, the third in a process that is kept for the next."""
    with app.worker():
        assert tasks.thread_process.enqueue().result(LIMIT) == os.getpid()
        assert tasks.loop_process.enqueue().result(LIMIT) == os.getpid()
        first = tasks.own_process.enqueue().result(LIMIT)
        assert first != os.getpid()
        assert tasks.own_process.enqueue().result(LIMIT) == first


def test_process_slots_become_more_and_fewer(tasks: Any, app: Towline, tmp_path: Path) -> None:
    with app.worker(concurrency=1, prefetch=0) as worker:
        paths = [tmp_path / str(number) for number in range(3)]
        jobs = [tasks.halt.enqueue(str(path)) for path in paths]
        inside(paths[0])
        worker.resize(3)
        for path in paths[1:]:
            inside(path)
        worker.resize(1)
        for path in paths:
            path.unlink()
        app.wait(jobs, timeout=LIMIT)
        slots = worker._slots["process"]
        assert isinstance(slots, ProcessSlots)
        until(lambda: len(slots._slots) == 1)
        assert tasks.own_process.enqueue().result(LIMIT) != os.getpid()


def test_results_continuations_and_blockers_travel(tasks: Any, app: Towline) -> None:
    """W2, O1: blocking and awaiting handlers; the label of the continuation travels too."""
    with app.worker(concurrency=2):
        assert tasks.aadd.enqueue(2, 3).result(LIMIT) == 5
        chain = tasks.add_then.enqueue(4, 5)
        assert chain.result(LIMIT) == 9
        following = app.job(app.job(chain.id).continued_by or 0)
        assert following.label == "second"
        after = [tasks.add.enqueue(1, 1), chain]
        assert tasks.total.using(after=after).enqueue().result(LIMIT) == 11


def test_a_handler_knows_its_attempt_and_middleware_is_around_it(tasks: Any, sqlite: Any) -> None:
    """W2: the context, and what middleware put into context variables."""
    with tasks.app.worker():
        job = tasks.seen.enqueue()
        around, task, attempt, token = job.result(LIMIT)
    assert (around, task, attempt) == ("around seen", "seen", 1)
    assert token[:2] == [job.id, 1]


def test_Y1_what_comes_too_late_is_not_begun_in_a_process_either(
    tasks: Any, app: Towline, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ClaimedAhead, "waiting_too_long", lambda self, now: ())
    with app.worker(concurrency=1, prefetch=4):
        tasks.own_process.enqueue().result(LIMIT)  # the process is there
        slow = tasks.halt.enqueue(str(path))
        late = tasks.own_process.using(expires=1.0).enqueue()
        inside(path)
        until(lambda: time.time() > late.created_at.timestamp() + 1.01)
        path.unlink()
        slow.result(LIMIT)
        with pytest.raises(ChainCancelled, match="not started before"):
            late.result(LIMIT)
    assert outcomes(app, late.id) == ["cancelled"]
    assert app.attempts(late.id)[0].started_at is None


def test_progress_is_seen_while_the_handler_runs(tasks: Any, app: Towline, path: Path) -> None:
    """O9: the last of many, also with text that no database takes."""
    with app.worker():
        job = tasks.half.enqueue(str(path))

        def is_half() -> bool:
            progress = job.refresh().progress
            return progress is not None and (progress.fraction, progress.text) == (0.5, "half")

        until(is_half)
        path.unlink()
        job.result(LIMIT)


@pytest.mark.parametrize("number", ["Decimal", "Fraction", "bool", "float"])
def test_any_number_is_a_progress(tasks: Any, sqlite: Any, number: str) -> None:
    """Finding A10: it arrives as a float, and costs no attempt."""
    with tasks.app.worker():
        job = tasks.report.enqueue(number)
        assert job.result(LIMIT) == "done"
    assert outcomes(tasks.app, job.id) == ["completed"]


def test_what_cannot_be_said_is_a_failure_and_no_death(tasks: Any, sqlite: Any) -> None:
    """Finding A10: the text says what is wrong, and the process goes on."""
    with tasks.app.worker():
        before = tasks.own_process.enqueue().result(LIMIT)
        with pytest.raises(ChainFailed, match="object"):
            tasks.unsayable.enqueue().result(LIMIT)
        assert tasks.own_process.enqueue().result(LIMIT) == before


def test_lines_of_a_process_are_logged_here(
    tasks: Any, sqlite: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Finding B5: with their level, logger and fields, as this process has set it up."""
    caplog.set_level(logging.INFO)
    with tasks.app.worker():
        job = tasks.logs.enqueue()
        job.result(LIMIT)
    lines = {record.getMessage(): record for record in caplog.records}
    about = lines[f"[logs {job.id}/1] 50 % done"]
    assert (about.levelno, about.name) == (logging.INFO, "towline.job")
    assert vars(about)["job"] == job.id
    assert vars(about)["order"] == 7
    assert about.process != os.getpid()
    assert lines["a line of its own"].name == "shop.own"
    whose = {name: vars(lines["a line of its own"])[name] for name in ("job", "task", "attempt")}
    assert whose == {"job": job.id, "task": "logs", "attempt": 1}  # as towline.logs.InAttempt says
    assert "too quiet" not in lines
    assert "ValueError: as expected" in (lines["it went wrong"].exc_text or "")


def test_a_transaction_of_the_handler_ends_the_job(
    tasks: Any, app: Towline, database: Database
) -> None:
    """O1: in the process's own app; what is returned after it is ignored."""
    with app.worker(name="its worker"):
        job = tasks.settle.enqueue("INSERT INTO mine (id) VALUES (7)")
        assert job.result(LIMIT) == "inside"
    assert database.rows("SELECT id FROM mine") == [(7,)]
    assert [attempt.worker for attempt in app.attempts(job.id)] == ["its worker"]


def test_a_process_that_committed_and_died_has_completed_its_job(
    tasks: Any, app: Towline, database: Database
) -> None:
    """O1: what is said about it afterwards is fenced off."""
    with app.worker():
        job = tasks.settle_and_die.enqueue("INSERT INTO mine (id) VALUES (7)")
        assert job.result(LIMIT) == "inside"
        assert tasks.add.enqueue(1, 2).result(LIMIT) == 3
    assert outcomes(app, job.id) == ["completed"]
    assert database.rows("SELECT id FROM mine") == [(7,)]


def test_what_handlers_print_disturbs_nothing(
    tasks: Any, sqlite: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """Output is the worker's; input is empty."""
    with tasks.app.worker():
        assert tasks.shout.enqueue("loud\n" * 3).result(LIMIT) == "loud\n" * 3
        assert tasks.add.enqueue(1, 2).result(LIMIT) == 3
    out, err = capfd.readouterr()
    assert out.count("loud") == 6
    assert err.count("loud") == 3


# ---- stopped from outside


@pytest.mark.parametrize("name", ["spin", "search"])
def test_a_handler_that_is_too_late_is_killed_and_replaced(
    tasks: Any, sqlite: Any, path: Path, name: str
) -> None:
    """O6, L2: an endless loop, and an endless regular expression that holds the interpreter."""
    with tasks.app.worker(concurrency=1):
        job = getattr(tasks, name).using(timeout=0.3).enqueue(str(path))
        with pytest.raises(ChainFailed, match=r"longer than its timeout of 0\.3 s"):
            job.result(LIMIT)
        until(lambda: is_gone(inside(path)))
        assert tasks.add.enqueue(1, 2).result(LIMIT) == 3
    assert outcomes(tasks.app, job.id) == ["timeout"]


def test_the_time_of_a_timeout_is_the_handlers_own(tasks: Any, sqlite: Any) -> None:
    """O6: starting the process, and waiting for one, are not counted."""
    calls = [tasks.add.using(timeout=0.15).call(n, 1) for n in range(6)]
    with tasks.app.worker(concurrency=1):
        jobs = tasks.app.enqueue_many(calls)
        assert [job.result(LIMIT) for job in jobs] == [n + 1 for n in range(6)]


def test_a_cancelled_handler_is_killed(tasks: Any, app: Towline, path: Path) -> None:
    """K1, O6: while it runs; the slot works again."""
    with app.worker(concurrency=1):
        job = tasks.spin.enqueue(str(path))
        pid = inside(path)
        app.cancel(job.id)
        until(lambda: is_gone(pid))
        with pytest.raises(ChainCancelled):
            job.result(LIMIT)
        assert tasks.add.enqueue(1, 2).result(LIMIT) == 3
    assert outcomes(app, job.id) == ["cancelled"]


def test_what_a_killed_handler_had_started_is_killed_too(
    tasks: Any, sqlite: Any, path: Path
) -> None:
    """O6: a program in the same process group."""
    with tasks.app.worker():
        job = tasks.spin_beside.enqueue(str(path))
        program = inside(path)
        tasks.app.cancel(job.id)
        until(lambda: is_gone(program) or " Z " in Path(f"/proc/{program}/stat").read_text())


def test_a_handler_that_stops_when_the_worker_does_has_its_say(
    tasks: Any, sqlite: Any, path: Path
) -> None:
    """W1: it is told, and its value counts."""
    worker = tasks.app.worker(grace=0).start()
    job = tasks.stops.enqueue(str(path))
    inside(path)
    worker.stop()
    assert job.result(LIMIT) == "stopped by itself"


def test_an_awaiting_handler_is_cancelled_when_the_worker_stops(
    tasks: Any, sqlite: Any, path: Path
) -> None:
    """W1: as on the worker's own loop; the job is handed back."""
    worker = tasks.app.worker(grace=0).start()
    job = tasks.waits.enqueue(str(path))
    inside(path)
    worker.stop()
    assert Path(f"{path}.told").read_text() == "cancelled"
    assert job.refresh().state is State.PENDING
    assert outcomes(tasks.app, job.id) == ["released"]


@pytest.mark.parametrize("now", [False, True])
def test_a_handler_that_goes_on_when_the_worker_stops_is_killed(
    tasks: Any, app: Towline, path: Path, now: bool
) -> None:
    """W1: its job is handed back and costs no attempt; no process is left."""
    worker = app.worker(grace=0).start()
    idle = tasks.own_process.enqueue().result(LIMIT)
    job = tasks.spin.enqueue(str(path))
    pid = inside(path)
    worker.stop(now=now)
    assert is_gone(pid)
    assert is_gone(idle)
    assert job.refresh().state is State.PENDING
    assert outcomes(app, job.id) == ["released"]


def test_signals_for_the_worker_do_not_end_its_processes(
    tasks: Any, sqlite: Any, path: Path
) -> None:
    """W1: who stops a whole group or container signals all of it; the worker decides."""
    with tasks.app.worker():
        job = tasks.halt.enqueue(str(path))
        pid = inside(path)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        path.unlink()
        assert job.result(LIMIT) == pid
        assert outcomes(tasks.app, job.id) == ["completed"]


def test_closing_leaves_no_process(tasks: Any, sqlite: Any) -> None:
    """W1: neither running nor waiting to be waited for; also one that had just been started."""
    with tasks.app.worker(concurrency=3):
        jobs = tasks.app.enqueue_many([tasks.own_process.call() for _ in range(30)])
        pids = {job.result(LIMIT) for job in jobs}
    assert all(is_gone(pid) for pid in pids)
    worker = tasks.app.worker(concurrency=3).start()
    job = tasks.own_process.enqueue()
    until(lambda: job.refresh().state is State.RUNNING)
    worker.stop(now=True)
    assert not [child for child in children() if b"towline.worker.slots.child" in child]


def children() -> list[bytes]:
    """The command lines of this process's children."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid():
                found.append(
                    (folder / "cmdline").read_bytes() or b"towline.worker.slots.child (zombie)"
                )
        except (OSError, IndexError):
            continue
    return found


# ---- dead by themselves


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("vanish", [5], "the process ended with exit status 5"),
        ("vanish", [0], "the process ended with exit status 0"),
        ("segfault", [], r"the process ended by signal 11 \(SIGSEGV\)"),
        ("overflow", [], r"the process ended by signal 11 \(SIGSEGV\)"),
    ],
)
def test_a_handler_that_kills_its_process_costs_only_its_own_job(
    tasks: Any, app: Towline, name: str, arguments: list[int], reason: str
) -> None:
    """O7, O11: it ends failed at the crash limit; the twenty others complete at their first."""
    with app.worker(concurrency=3):
        poison = getattr(tasks, name).enqueue(*arguments)
        others = app.enqueue_many([tasks.add.call(n, 1) for n in range(20)])
        assert [job.result(LIMIT) for job in others] == [n + 1 for n in range(20)]
        run_to_the_end(app, poison)
    assert outcomes(app, poison.id) == ["lost"] * 3
    assert all(outcomes(app, job.id) == ["completed"] for job in others)
    with pytest.raises(ChainFailed, match=reason):
        poison.result(LIMIT)


def test_a_death_is_seen_though_a_forked_process_goes_on(
    tasks: Any, sqlite: Any, path: Path
) -> None:
    """O7: what was forked does not keep the process alive for the worker."""
    with tasks.app.worker(concurrency=1):
        job = tasks.fork_and_vanish.enqueue(str(path))
        until(lambda: outcomes(tasks.app, job.id)[:1] == ["lost"])
        tasks.app.cancel(job.id)
        until(path.exists)
        path.unlink()


@pytest.mark.parametrize(
    ("name", "error"),
    [("leave", "SystemExit: 3"), ("break_off", "KeyboardInterrupt")],
)
def test_leaving_is_an_ordinary_failure(tasks: Any, sqlite: Any, name: str, error: str) -> None:
    """O7: `sys.exit` and KeyboardInterrupt are retried; the process goes on."""
    with tasks.app.worker(concurrency=1):
        pid = tasks.own_process.enqueue().result(LIMIT)
        job = getattr(tasks, name).enqueue()
        with pytest.raises(ChainFailed, match=error):
            job.result(LIMIT)
        assert tasks.own_process.enqueue().result(LIMIT) == pid
    assert outcomes(tasks.app, job.id) == ["failed", "failed"]
    name = f"builtins.{error.partition(':')[0]}"
    assert [a.error_type for a in tasks.app.attempts(job.id)] == [name, name]


def test_a_task_of_a_handler_that_leaves_is_no_death(tasks: Any, sqlite: Any) -> None:
    """O7: asyncio lets exits out of its loop, and whoever stops the loop ends no process either."""
    with tasks.app.worker(concurrency=1):
        pid = tasks.own_process.enqueue().result(LIMIT)
        job = tasks.leave_from_a_task.enqueue()
        with pytest.raises(ChainFailed, match="SystemExit: 3"):
            job.result(LIMIT)
        assert outcomes(tasks.app, job.id) == ["failed"]
        for name in ("leave_a_task_behind", "meet_what_was_left_behind", "stop_the_loop"):
            assert getattr(tasks, name).enqueue().result(LIMIT) == pid


def test_endless_recursion_is_an_ordinary_failure(tasks: Any, sqlite: Any) -> None:
    """O7."""
    with tasks.app.worker(), pytest.raises(ChainFailed, match="RecursionError"):
        tasks.recurse.enqueue().result(LIMIT)


def test_a_memory_limit_makes_a_failure_of_greed(tasks: Any, sqlite: Any) -> None:
    """O7, O11: what fits is given; too much at once or little by little is a MemoryError; the next
    job has all it may have again."""
    with tasks.app.worker(concurrency=1, memory_limit=300 << 20):
        assert tasks.hoard.enqueue(50).result(LIMIT) == 50
        for greedy in (tasks.hoard.enqueue(600), tasks.hoard_slowly.enqueue()):
            with pytest.raises(ChainFailed, match="MemoryError"):
                greedy.result(LIMIT)
            assert outcomes(tasks.app, greedy.id) == ["failed"]
        assert tasks.hoard.enqueue(50).result(LIMIT) == 50


def test_a_process_that_died_while_it_was_free_costs_no_attempt(tasks: Any, sqlite: Any) -> None:
    """O11: nobody's handler did it."""
    with tasks.app.worker(concurrency=1):
        pid = tasks.own_process.enqueue().result(LIMIT)
        os.kill(pid, signal.SIGKILL)
        until(lambda: " Z " in Path(f"/proc/{pid}/stat").read_text())
        job = tasks.own_process.enqueue()
        assert job.result(LIMIT) != pid
        assert outcomes(tasks.app, job.id) == ["completed"]


def test_a_process_that_dies_before_it_calls_the_handler_costs_no_attempt(
    tasks: Any, sqlite: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O11: it died while it was free, and that was not noticed when the attempt was given to it."""
    monkeypatch.setattr(ProcessSlot, "is_alive", lambda slot: True)
    with tasks.app.worker(concurrency=1):
        pid = tasks.own_process.enqueue().result(LIMIT)
        os.kill(pid, signal.SIGKILL)
        job = tasks.own_process.enqueue()
        assert job.result(LIMIT) != pid
        assert outcomes(tasks.app, job.id) == ["completed"]
        assert job.refresh().attempt == 1  # it went to the next process, and not back


def test_a_process_is_replaced_after_so_many_attempts(tasks: Any, sqlite: Any) -> None:
    """W2: max_tasks_per_child."""
    with tasks.app.worker(concurrency=1, max_tasks_per_child=2):
        pids = [tasks.own_process.enqueue().result(LIMIT) for _ in range(5)]
        assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
        until(lambda: is_gone(pids[0]))


# ---- safety


def test_an_app_that_is_not_at_module_level_says_so(
    make_app: Callable[..., Towline], sqlite: Any
) -> None:
    """X1: nothing is guessed; the error says where to put it, before anything begins."""
    hidden = make_app()

    @hidden.task(run_in="process", max_attempts=1)
    def local() -> int:
        return 1

    with pytest.raises(InvalidTask, match="needs its app at module level"):
        hidden.worker().start()


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("raise", "RuntimeError: cannot be imported now"),
        ("vanish", "the process ended with exit status 7"),
        ("hang", "the process was silent and did not end"),
    ],
)
def test_an_app_that_cannot_be_loaded_over_there_is_a_failure(
    tasks: Any,
    sqlite: Any,
    monkeypatch: pytest.MonkeyPatch,
    trouble: list[logging.LogRecord],
    how: str,
    error: str,
) -> None:
    """O8: of the job that needed it; when it can be loaded again, work goes on."""
    longest = "towline.worker.slots.process_slot.LOAD_TIMEOUT"
    monkeypatch.setattr(longest, 1.0 if how == "hang" else LIMIT)
    with tasks.app.worker(concurrency=2):
        monkeypatch.setenv("TOWLINE_TEST_IMPORT", how)
        with pytest.raises(ChainFailed, match=error):
            tasks.add.using(max_attempts=1).enqueue(1, 2).result(LIMIT)
        monkeypatch.delenv("TOWLINE_TEST_IMPORT")
        monkeypatch.setattr(longest, LIMIT)
        assert tasks.add.enqueue(1, 2).result(LIMIT) == 3


def test_an_app_that_differs_over_there_is_refused(
    tasks: Any, sqlite: Any, monkeypatch: pytest.MonkeyPatch, trouble: list[logging.LogRecord]
) -> None:
    """X1: a handler would work on another database."""
    monkeypatch.setenv("TOWLINE_URL", "sqlite:///elsewhere.db")
    with tasks.app.worker(), pytest.raises(ChainFailed, match="another URL in each process"):
        tasks.add.using(max_attempts=1).enqueue(1, 2).result(LIMIT)


def test_a_task_only_this_process_knows_is_not_run(tasks: Any, app: Towline, sqlite: Any) -> None:
    """X1: the process looks it up by name among its own."""

    @app.task(run_in="process", max_attempts=1)
    def only_here() -> int:
        return 1

    with app.worker(concurrency=1):
        with pytest.raises(ChainFailed, match="no task named only_here is registered"):
            only_here.enqueue().result(LIMIT)
        assert tasks.add.enqueue(1, 2).result(LIMIT) == 3
