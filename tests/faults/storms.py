"""Storms: forks, `close()` and the end of the program while other threads use the app.

    python -m tests.faults.storms forks --seconds 20     # findings A1, A8
    python -m tests.faults.storms closes --seconds 20    # finding A2
    python -m tests.faults.storms ends --times 100       # finding A2

Each runs in an interpreter of its own; a crash, a hang, an error that is not typed, or a job that
was acknowledged and is not there, is a finding. Exit code 1 on any.
"""

from __future__ import annotations

import argparse
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tests.faults.audit import Audit
from tests.races.logs import Finding

HANG = 60.0  # seconds beyond those asked for

COMMON = """
import os, random, sys, threading, time
from towline import Towline
from towline.errors import TowlineError

app = Towline("sqlite:///" + sys.argv[1], lock_timeout=30)

@app.task
def add(number: int) -> int:
    return number

first = add.using(queue="nobody").enqueue(0)
log = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
stop = threading.Event()
problems = []

def write():
    os.write(log, b"%d\\n" % add.enqueue(1).id)

def read():
    app.job(first.id)
    app.counts()

def wait():
    try:
        first.result(timeout=0.02)
    except TimeoutError:
        pass

def repeat(work):
    while not stop.is_set():
        try:
            work()
        except BaseException as error:
            problems.append(f"{work.__name__}: {error!r}")
            return

def start(*works):
    threads = [threading.Thread(target=repeat, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    return threads

def join(threads):
    stop.set()
    for thread in threads:
        thread.join(30)
        if thread.is_alive():
            problems.append("a thread is stuck")
    for problem in problems:
        print("problem", problem, flush=True)
"""

FORKS = """
threads = start(read, read, write, write, wait)
worker = app.worker(concurrency=2)
worker.start()
end = time.monotonic() + float(sys.argv[3])
codes = []
while time.monotonic() < end:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for _ in range(3):
                write()
                read()
            code = 0
        except BaseException as error:
            print("problem child", repr(error), flush=True)
        os._exit(code)
    codes.append(os.waitpid(pid, 0)[1])
    time.sleep(0.02)
worker.stop()
join(threads)
print("forks", len(codes), flush=True)
print("failed", sum(map(bool, codes)), flush=True)
"""

CLOSES = """
threads = start(read, read, write, write, wait)
worker = app.worker(concurrency=2)
worker.start()
end = time.monotonic() + float(sys.argv[3])
closed = 0
while time.monotonic() < end:
    app.close()
    closed += 1
    time.sleep(random.uniform(0, 0.01))
worker.stop()
join(threads)
print("closes", closed, flush=True)
"""

ENDS = """
start(write, write, write)
app.worker(concurrency=4).start()
time.sleep(random.uniform(0.05, 0.4))
"""

SCRIPTS = {"forks": FORKS, "closes": CLOSES, "ends": ENDS}


def storm(name: str, folder: Path, seconds: float = 0.0) -> Audit:
    """Run a storm once on a new file, and look at what it left."""
    audit = Audit()
    database, log = folder / "app.db", folder / "events"
    command = [sys.executable, "-c", COMMON + SCRIPTS[name]]
    command += [str(database), str(log), str(seconds)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + HANG)
    except subprocess.TimeoutExpired:
        audit.findings.append(Finding("hang", f"{name} did not end"))
        return audit
    if done.returncode:
        tail = done.stderr.strip().splitlines()[-3:]
        audit.findings.append(Finding("crash", f"exit code {done.returncode}: {tail}"))
    for line in done.stdout.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "problem":
            audit.findings.append(Finding("problem", rest))
        else:
            audit.figures[kind] += int(rest)
    with closing(sqlite3.connect(database)) as connection:
        stored = {id for (id,) in connection.execute("SELECT id FROM towline_job")}
        if connection.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
            audit.findings.append(Finding("damaged", "integrity_check"))
    acknowledged = [int(line) for line in log.read_text().split()] if log.exists() else []
    audit.figures["acknowledged"] += len(acknowledged)
    if len(set(acknowledged)) != len(acknowledged):
        audit.findings.append(Finding("twice", "an id was given twice"))
    if missing := set(acknowledged) - stored:
        audit.findings.append(Finding("lost", f"{len(missing)} acknowledged jobs are missing"))
    return audit


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("name", choices=SCRIPTS)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--folder", help="where files are made")
    chosen = parser.parse_args(arguments)
    figures: Counter[str] = Counter()
    findings: list[Finding] = []
    for _ in range(chosen.times):
        with tempfile.TemporaryDirectory(prefix="storm-", dir=chosen.folder) as folder:
            audit = storm(chosen.name, Path(folder), chosen.seconds)
        figures += audit.figures
        findings += audit.findings
    shown = ", ".join(f"{name} {number}" for name, number in figures.items())
    version = ".".join(map(str, sys.version_info[:2]))
    print(f"{chosen.name} × {chosen.times} on {version}: {shown}, findings {len(findings)}")
    for kind, number in Counter(finding.kind for finding in findings).items():
        print(f"  {kind} {number}")
    for finding in findings[:10]:
        print(f"  {finding.kind}: {finding.text[:300]}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
