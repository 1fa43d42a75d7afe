"""`towline worker --processes N`: children that die are replaced, and all stop together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter

import pytest

from tests.cli.shop import APP, Running, Shop, is_alive
from tests.speed import by_speed
from tests.until import until

WORKER = ("worker", APP, "--processes", "2", "--concurrency", "4")

# A supervisor that is told of changes by a file, where the command has a library for that.
RELOADING = """
import sys, time, logging
from pathlib import Path
from towline.worker import supervisor

logging.basicConfig(level="INFO")
supervisor.RELOAD_GRACE = 2.0

def watch(changed):
    for number in range(1, 4):
        while not Path(f"change-{number}").exists():
            time.sleep(0.02)
        changed()

def command(number, line):
    return [sys.executable, "-m", "towline", "worker", "shop:app", f"--line={line}"]

raise SystemExit(supervisor.Supervisor(command, int(sys.argv[1]), 5.0, watch).run())
"""


def crew(shop: Shop, running: Running, number: int = 2) -> list[int]:
    """The processes of the children, once they are all registered."""

    def all_are_there() -> list[int] | None:
        children = running.children()
        registered = {worker.pid for worker in shop.app.workers()}
        return children if len(children) == number and set(children) <= registered else None

    found: list[int] = until(all_are_there, f"{number} registered workers")
    return found


def holder(shop: Shop, job: int) -> int:
    """The process that runs a job."""
    name = until(lambda: shop.app.job(job).worker, "a worker has it")
    (pid,) = (worker.pid for worker in shop.app.workers() if worker.name == name)
    return pid


def test_drained_children_end_it(any_shop: Shop) -> None:
    """W1: exit code 0 when all stopped well."""
    jobs = [any_shop.put("add", a=n, b=n) for n in range(10)]
    any_shop.run(*WORKER, "--drain")
    assert Counter(any_shop.state(job) for job in jobs) == {"completed": 10}


def test_a_child_that_dies_is_replaced_and_its_jobs_taken_over(any_shop: Shop) -> None:
    """L4, O7"""
    supervisor = any_shop.start(*WORKER)
    crew(any_shop, supervisor)
    job = any_shop.put("hold", name="one")
    any_shop.began("one")
    victim = holder(any_shop, job)
    os.kill(victim, signal.SIGKILL)
    supervisor.told(f"worker process {victim} was ended by signal 9 (SIGKILL)")
    any_shop.began("one", attempt=2)
    assert victim not in crew(any_shop, supervisor)
    any_shop.go("one")
    until(lambda: any_shop.state(job) == "completed", "its second attempt completed")
    outcomes = [attempt.outcome for attempt in any_shop.app.attempts(job)]
    assert outcomes == ["lost", "completed"]
    supervisor.signal()
    assert supervisor.ends() == 0


def test_a_handler_that_takes_its_process_along(shop: Shop) -> None:
    """O7: it costs that worker process, which is replaced."""
    supervisor = shop.start(*WORKER)
    job = shop.put("die")
    until(lambda: shop.state(job) == "completed", "it was run again")
    supervisor.told("another starts in 1 s")
    crew(shop, supervisor)


@pytest.mark.parametrize("code", by_speed([0], [0, 3]))
def test_a_child_that_ends_untold_is_replaced_whatever_its_code(shop: Shop, code: int) -> None:
    """O7, finding A8b"""
    supervisor = shop.start(*WORKER)
    crew(shop, supervisor)
    job = shop.put("leave", code=code)
    supervisor.told(f"ended with exit code {code} though this supervisor did not stop it")
    crew(shop, supervisor)
    until(lambda: shop.state(job) == "completed", "it was run again")
    supervisor.signal()
    assert supervisor.ends() == 0


def test_a_drain_in_which_a_child_ends_untold_goes_on(shop: Shop) -> None:
    """O7, finding A8b: what it left is done by those that drain."""
    job = shop.put("leave", code=0)
    supervisor = shop.start(*WORKER, "--drain")
    supervisor.told("though this supervisor did not stop it")
    assert supervisor.ends() == 0
    assert shop.state(job) in ("completed", "scheduled")


def test_one_whose_children_keep_dying_says_so_at_the_end(shop: Shop) -> None:
    """Finding A8b: exit code 1"""
    (shop.folder / "mortal.py").write_text("import os\nos._exit(0)\n")
    supervisor = shop.start("worker", "mortal:app", "--processes", "2")
    supervisor.told("another starts in 2 s")
    supervisor.signal()
    assert supervisor.ends() == 1
    assert "kept dying" in supervisor.log


def test_a_hangup_stops_in_order(shop: Shop) -> None:
    """W1, finding A30: a terminal that is closed loses no attempt."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup
    try:
        supervisor = shop.start(*WORKER)
    finally:
        signal.signal(signal.SIGHUP, before)
    crew(shop, supervisor)
    supervisor.signal(signal.SIGHUP)
    assert supervisor.ends() == 0
    assert shop.app.workers() == []


def test_the_first_signal_stops_all_in_order(any_shop: Shop) -> None:
    """W1: what outlives the grace time is handed back, exit code 0."""
    supervisor = any_shop.start(*WORKER, "--grace", "0.2")
    children = crew(any_shop, supervisor)
    jobs = [any_shop.put("hold", name=f"j{n}") for n in range(4)]
    for n in range(4):
        any_shop.began(f"j{n}")
    supervisor.signal(signal.SIGTERM)
    assert supervisor.ends() == 0
    assert [any_shop.state(job) for job in jobs] == ["pending"] * 4
    assert [any_shop.app.job(job).record.used for job in jobs] == [0] * 4
    assert not any(map(is_alive, children))
    assert any_shop.app.workers() == []


def test_the_second_signal_stops_at_once(shop: Shop) -> None:
    """W1: exit code 3"""
    job = shop.put("cling", name="one")
    supervisor = shop.start(*WORKER, "--grace", "600")
    children = crew(shop, supervisor)
    shop.began("one")
    supervisor.signal()
    supervisor.told("stopping")
    supervisor.signal()
    assert supervisor.ends() == 3
    assert not any(map(is_alive, children))
    assert shop.state(job) == "pending"


def test_a_signal_to_everybody_counts_once(shop: Shop) -> None:
    """As systemd does it: children that get it too still have their grace time."""
    supervisor = shop.start(*WORKER, "--grace", "600")
    children = crew(shop, supervisor)
    job = shop.put("hold", name="one")
    shop.began("one")
    supervisor.signal(signal.SIGTERM)
    supervisor.told("stopping")
    for _ in range(3):
        for pid in filter(is_alive, children):
            os.kill(pid, signal.SIGTERM)
    shop.go("one")
    assert supervisor.ends() == 0
    assert shop.state(job) == "completed"


def test_a_terminal_interrupts_only_the_supervisor(shop: Shop) -> None:
    """Ctrl-C goes to a whole group; the children are in others."""
    supervisor = shop.start(*WORKER, "--grace", "600")
    crew(shop, supervisor)
    job = shop.put("hold", name="one")
    shop.began("one")
    os.killpg(supervisor.process.pid, signal.SIGINT)
    supervisor.told("stopping")
    shop.go("one")
    assert supervisor.ends() == 0
    assert shop.state(job) == "completed"


def test_children_end_when_the_supervisor_is_killed(shop: Shop) -> None:
    """Nobody is left behind, and what they ran ends in order."""
    supervisor = shop.start(*WORKER)
    children = crew(shop, supervisor)
    job = shop.put("hold", name="one")
    shop.began("one")
    supervisor.signal(signal.SIGKILL)
    supervisor.ends()
    supervisor.told("the supervisor is gone", times=2)
    shop.go("one")
    until(lambda: not any(map(is_alive, children)), "the children ended")
    assert shop.state(job) == "completed"
    assert shop.app.workers() == []


def test_code_that_cannot_be_imported_is_not_tried_again(shop: Shop) -> None:
    """Exit code 2, with the reason."""
    (shop.folder / "broken.py").write_text("import shop\nraise RuntimeError('not today')\n")
    done = shop.run("worker", "broken:app", "--processes", "2", code=2)
    assert "RuntimeError: not today" in done.stderr
    assert "broken.py, line 2" in done.stderr


def test_children_have_names_of_their_own(shop: Shop) -> None:
    supervisor = shop.start(*WORKER, "--name", "front")
    crew(shop, supervisor)
    assert {worker.name for worker in shop.app.workers()} == {"front-1", "front-2"}


def test_changed_code_is_started_again(shop: Shop) -> None:
    """A worker that cannot start any more waits for the next change."""
    running = Running(shop, [sys.executable, "-c", RELOADING, "1"])
    shop.started.append(running)
    (first,) = crew(shop, running, 1)
    (shop.folder / "change-1").touch()
    until(lambda: not is_alive(first), "the first ended")
    (second,) = crew(shop, running, 1)
    assert second != first
    source = (shop.folder / "shop.py").read_text()
    (shop.folder / "shop.py").write_text("this is no Python\n")
    (shop.folder / "change-2").touch()
    running.told("waiting for a change of the code")
    assert running.process.poll() is None
    (shop.folder / "shop.py").write_text(source)
    (shop.folder / "change-3").touch()
    crew(shop, running, 1)
    running.signal()
    assert running.ends() == 0


def test_new_processes_are_not_hurried_with_the_old(shop: Shop) -> None:
    """A handler that does not stop when the code has changed costs its own process alone."""
    shop.put("cling", name="one")
    running = Running(shop, [sys.executable, "-c", RELOADING, "2"])
    shop.started.append(running)
    old = crew(shop, running)
    shop.began("one")
    (shop.folder / "change-1").touch()
    until(lambda: not any(map(is_alive, old)), "the old ones ended")
    crew(shop, running)
    for _ in range(2):
        running.signal()
        running.told("stopping")
    running.ends()
    assert "did not stop it" not in running.log


def test_it_imports_nothing_of_the_application(shop: Shop) -> None:
    """What the application's code does to its process cannot reach the supervisor."""
    code = (
        "import sys; sys.argv[1:] = ['worker', 'shop:app', '--processes', '2', '--drain']\n"
        "from towline.cli import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "assert 'shop' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=shop.folder, env=shop.environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
