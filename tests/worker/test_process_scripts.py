"""`run_in="process"` in programs as people write them: the script itself is the application."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.database import Database
from tests.until import LIMIT, until
from towline.worker.identity import identity_of, is_gone

ROOT = Path(__file__).parents[2]

SCRIPT = """
import os, sys, time
from towline import Next, Towline

app = Towline(sys.argv[1])

@app.task(run_in="process")
def double(number: int) -> int:
    return number * factor()

@app.task(run_in="process")
def then_double(number: int) -> Next[int]:
    return double.then(number)

@app.task(run_in="process")
async def where() -> list[str]:
    return [__name__, str(os.getpid())]

def factor() -> int:
    return FACTOR

FACTOR = 2

if __name__ == "__main__":
    jobs = [double.enqueue(4), then_double.enqueue(5), where.enqueue()]
    code = app.worker(drain=True).run()
    numbers, (name, pid) = [job.result(0) for job in jobs[:2]], jobs[2].result(0)
    print(*numbers, name, pid != str(os.getpid()), code)
"""

CORE = """
import os
from towline import Tasks, Towline

app = Towline(os.environ["TOWLINE_URL"])
tasks = Tasks()

@tasks.task(run_in="process")
def included(number: int) -> int:
    return number + 1
"""

WIRING = """
from .core import app, tasks

app.include(tasks, prefix="set.")

@app.task(run_in="process")
def scripted(number: int) -> int:
    return number + 2

if __name__ == "__main__":
    jobs = [tasks.registry["included"].enqueue(1), scripted.enqueue(1)]
    app.worker(drain=True).run()
    print(*[job.result(0) for job in jobs])
"""

DOUBLES = """
from __main__ import app

@app.task(run_in="process")
def double(number: int) -> int:
    return number * 2
"""

PROGRAM = """
import os
from towline import Towline

app = Towline(os.environ["TOWLINE_URL"])

from .doubles import double

if __name__ == "__main__":
    job = double.enqueue(4)
    app.worker(drain=True).run()
    print(job.result(0))
"""

UNGUARDED = """
import sys
from towline import Towline

app = Towline(sys.argv[1])

@app.task(run_in="process", max_attempts=1)
def double(number: int) -> int:
    return number * 2

job = double.using(key="once", scope="any").enqueue(4)  # each import comes by here
app.worker(drain=True).run()
print(job.refresh().error)
"""

ENDLESS = """
import os, re, sys
from towline import Towline

app = Towline(sys.argv[1])

def say(path: str) -> None:
    with open(path + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".new", path)

@app.task(run_in="process")
def spin(path: str) -> None:
    say(path)
    while True:
        pass

@app.task(run_in="process")
def search(path: str) -> None:
    say(path)
    re.match(r"(a+)+$", "a" * 80 + "b")

@app.task(run_in="process")
def nothing(path: str) -> None:
    say(path)

if __name__ == "__main__":
    for task in (spin, search, nothing):
        task.enqueue(sys.argv[2] + task.name)
    app.worker(concurrency=3).run()
"""


def run(folder: Path, url: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a folder, as at a prompt."""
    return subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "TOWLINE_URL": url},
        text=True,
        capture_output=True,
        timeout=LIMIT,
    )


@pytest.mark.parametrize("name", ["script.py", "program"])
def test_tasks_of_the_script_that_is_run(
    tmp_path: Path, database: Database, sqlite: Database, name: str
) -> None:
    """W2: with its arguments, and without what stands under its guard."""
    (tmp_path / name).write_text(SCRIPT)
    ran = run(tmp_path, database.url, name, database.url)
    assert (ran.stdout, ran.stderr) == ("8 10 __mp_main__ True 0\n", "")


def test_tasks_of_a_module_that_is_run(tmp_path: Path, database: Database) -> None:
    """W2: `python -m package.module`; also a set of tasks that only it includes."""
    (package := tmp_path / "shop").mkdir()
    (package / "core.py").write_text(CORE)
    (package / "wiring.py").write_text(WIRING)
    ran = run(tmp_path, database.url, "-m", "shop.wiring")
    assert (ran.stdout, ran.stderr) == ("2 3\n", "")


def test_tasks_of_a_package_that_is_run(tmp_path: Path, sqlite: Database) -> None:
    """W2: `python -m package`, whose modules take the app from the program they are part of."""
    (package := tmp_path / "shop").mkdir()
    (package / "doubles.py").write_text(DOUBLES)
    (package / "__main__.py").write_text(PROGRAM)
    ran = run(tmp_path, sqlite.url, "-m", "shop")
    assert (ran.stdout, ran.stderr) == ("8\n", "")


def test_a_script_without_a_guard_says_so(tmp_path: Path, sqlite: Database) -> None:
    """W2: it would start a worker in each process of its worker, without end."""
    (tmp_path / "script.py").write_text(UNGUARDED)
    ran = run(tmp_path, sqlite.url, "script.py", sqlite.url)
    assert 'put that under `if __name__ == "__main__":`' in ran.stdout


def test_processes_end_with_their_worker(tmp_path: Path, sqlite: Database) -> None:
    """O7, L4: killed with -9 while one loops, one holds the interpreter and one is free."""
    script = tmp_path / "script.py"
    script.write_text(ENDLESS)
    paths = [tmp_path / f"of_{name}" for name in ("spin", "search", "nothing")]
    worker = subprocess.Popen([sys.executable, script, sqlite.url, tmp_path / "of_"])
    try:
        until(lambda: all(path.exists() for path in paths))
        processes = [(pid, identity_of(pid)) for pid in (int(path.read_text()) for path in paths)]
        assert all(birth is not None for _, birth in processes)
    finally:
        worker.kill()
        worker.wait()
    assert worker.returncode == -signal.SIGKILL
    until(lambda: all(is_gone(pid, birth) for pid, birth in processes))


MOVED = """
import os
from towline import INJECTED, Context, Towline

app = Towline(f"sqlite:///{os.path.abspath('rel.db')}")

@app.task
def move() -> None:
    os.chdir("sub")

@app.task(run_in="process")
def follow(ctx: Context = INJECTED) -> str:
    later.enqueue()
    with ctx.transaction() as tx:
        tx.complete(os.getcwd())
    return ""

@app.task
def later() -> str:
    return "was run"

if __name__ == "__main__":
    start = os.getcwd()
    with app.worker():
        move.enqueue().result(60)
        there = follow.enqueue().result(60)
        assert there == os.path.join(start, "sub"), there
        (job,) = app.jobs(task="later")
        print(job.result(60), os.listdir("."))
"""


def test_a_changed_directory_is_another_place_but_not_another_database(tmp_path: Path) -> None:
    """Finding A9: a process made after os.chdir works on the file of its worker."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "moved.py").write_text(MOVED)
    done = subprocess.run(
        [sys.executable, "moved.py"], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=LIMIT, check=False,
    )  # fmt: skip
    assert (done.stdout, done.returncode) == ("was run []\n", 0), done.stderr
