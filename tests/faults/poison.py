"""Poison: jobs that crash, hang or eat their process, among others that must not be hurt.

    python -m tests.faults.poison --engine sqlite

In process slots each kind ends as promised (O6, O7), and the rate of other work beside it is
printed. One segfault in a thread slot among 200 jobs, 4 and 20 kills among 2,000 quick ones, under
a supervisor: exactly those fail (O11), and what was never called is not marked as lost. Exit code 1
on any finding.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.faults import event_log, tasks
from tests.faults.audit import Audit, judge
from tests.faults.fresh import Place, places
from tests.faults.workers import at, open_jobs, registered, rows, wait
from tests.races.auditor import open_reader
from tests.races.logs import Finding
from towline import Job, Task
from towline.errors import InvalidState
from towline.task import Call

FAILED, TIMEOUT, LOST = 3, 4, 7
CRASH_LIMIT = 3

# What every attempt of such a job is recorded as, and a word that its error has.
POISON = {
    "segfaults": (LOST, "SIGSEGV"),
    "exits_at_once": (LOST, "exit status 9"),
    "takes_all_memory": (FAILED, "MemoryError"),
    "asks_to_exit": (FAILED, "SystemExit"),
    "overflows_the_stack": (LOST, "SIGSEGV"),
    "never_ends": (TIMEOUT, "timeout"),
    "never_matches": (TIMEOUT, "timeout"),
}
CONCURRENCY = 8
PAUSE = 0.02  # seconds an innocent job takes
LIMIT = 1800.0  # a supervisor whose children keep dying waits longer and longer
HURRY = 0.1  # seconds between looks for lost jobs, which are not made to wait here


class Hurry:
    """Run at once what was lost: its wide jitter is another promise, kept elsewhere."""

    def __init__(self, place: Place, kinds: Iterable[str] = POISON) -> None:
        self._place = place
        self._kinds = list(kinds)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        names = ", ".join(f"'{name}'" for name in self._kinds)
        text = f"""SELECT j.id FROM towline_live AS l JOIN towline_job AS j ON j.id = l.job_id
                    WHERE l.state = 1 AND j.task IN ({names})"""
        while not self._stop.wait(HURRY):
            for (job,) in rows(self._place, text):
                try:
                    tasks.app.run_now(job)
                except InvalidState:
                    pass  # it does already

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()


class Poisoner:
    """Enqueues poison of each kind, spread over so many seconds; all of it in the end."""

    def __init__(self, kinds: Sequence[str], seconds: float) -> None:
        self._kinds = kinds
        self._pause = seconds / len(kinds)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.jobs: list[Job[str]] = []

    def _run(self) -> None:
        for kind in self._kinds:
            job = tasks.app.registry[kind].enqueue()
            event_log.write_new([job.id])
            self.jobs.append(job)
            self._stop.wait(self._pause)

    def __enter__(self) -> Poisoner:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join()


def poison_processes(place: Place, innocent: int, kinds: Sequence[str]) -> Audit:
    """Innocent work alone, the same beside poison of these kinds; both on one worker."""
    with at(place) as start:
        options = (f"--concurrency={CONCURRENCY}", "--memory-limit=256M", "--log-level=error")
        worker = start("poisoned", *options)
        wait("it is there", lambda: registered(place) == 1)
        work(innocent // 10)  # processes are warm
        alone = work(innocent)
        with Poisoner(kinds, innocent / alone) as poisoner:
            beside = work(innocent)
        with Hurry(place):
            for job in poisoner.jobs:
                wait(f"{job.task} ends", lambda: not job.refresh().state.open, LIMIT)  # noqa: B023
        code = worker.stop()
    with closing(open_reader(place.url)) as reader:
        audit = judge(reader, place.folder, len(kinds) * CRASH_LIMIT, at_limit=len(kinds))
    if code:
        audit.findings.append(Finding("exit", f"exit code {code}"))
    for job in poisoner.jobs:
        audit.findings += look_at(place, job.id, job.task)
    audit.figures["poison"] = len(kinds)
    audit.figures["jobs/s alone"] = round(alone)
    audit.figures["jobs/s beside poison"] = round(beside)
    audit.figures["per cent kept"] = round(100 * beside / alone)
    return audit


def work(jobs: int) -> float:
    """Let innocent jobs run, on threads, on the loop and in processes; return the rate."""
    kinds: list[Task[[float], str]] = [tasks.plain, tasks.awaiting, tasks.apart, tasks.apart]
    began = time.monotonic()
    calls = [kinds[n % len(kinds)].call(PAUSE) for n in range(jobs)]
    stored = tasks.app.enqueue_many(calls)
    event_log.write_new(job.id for job in stored)
    for job in stored:
        job.result(timeout=LIMIT)
    return jobs / (time.monotonic() - began)


def look_at(place: Place, job: int, task: str) -> list[Finding]:
    """Every attempt of a poison job is recorded as what it was."""
    outcome, word = POISON[task]
    attempts = 2 if outcome != LOST else CRASH_LIMIT
    text = f"SELECT outcome, error FROM towline_attempt WHERE job_id = {job} ORDER BY number"
    found = rows(place, text)
    wrong = [(code, error) for code, error in found if code != outcome or word not in error]
    if wrong or len(found) != attempts:
        said = [(code, str(error).splitlines()[-1:]) for code, error in found]
        return [Finding("poison", f"{task} ended with {said}")]
    return []


def poison_threads(
    place: Place,
    innocent: int,
    poison: int = 1,
    *,
    pause: float = PAUSE,
    task: Task[[], str] = tasks.segfaults_in_a_thread,
    processes: int = 2,
) -> Audit:
    """Some jobs take their worker process with them, again and again, until they fail: they, and
    no other (O11). What their worker had claimed and never called is not even marked as lost."""
    began = time.monotonic()
    with at(place) as start:
        calls: list[Call[str]] = [tasks.plain.call(pause) for _ in range(innocent)]
        for number in range(poison):
            calls.insert((2 * number + 1) * innocent // (2 * poison), task.call())
        jobs = tasks.app.enqueue_many(calls)
        event_log.write_new(job.id for job in jobs)
        supervisor = start("supervised", f"--processes={processes}", "--lease=5")
        wait("nothing is left to do", lambda: not open_jobs(place), LIMIT)
        took = time.monotonic() - began
        poisonous = {job.id for job in jobs if job.task == task.name}
        deaths = supervisor.said.read_text().count("another starts in")
        code = supervisor.stop()
        said_so = code == 1 and "kept dying" in supervisor.said.read_text()
    with closing(open_reader(place.url)) as reader:
        audit = judge(reader, place.folder, innocent, at_limit=poison)
    failed = {
        job
        for (job,) in rows(
            place,
            f"SELECT job_id FROM towline_attempt WHERE final = 1 AND outcome IN ({FAILED}, {LOST})",
        )
    }
    if failed != poisonous:
        more, less = len(failed - poisonous), len(poisonous - failed)
        text = f"{more} innocent jobs failed, {less} poisonous ones did not"
        audit.findings.append(Finding("innocent", text))
    lost = set(rows(place, f"SELECT job_id, number FROM towline_attempt WHERE outcome = {LOST}"))
    uncalled = lost - event_log.EventLog.read(place.folder).starts.keys()
    # Each thread may die between its note that it begins and the first line of its handler.
    if len(uncalled) > deaths * CONCURRENCY:
        audit.findings.append(Finding("uncalled", f"{len(uncalled)} lost, and never called"))
    if code and not said_so:
        audit.findings.append(Finding("exit", f"exit code {code}"))
    audit.figures["failed"] = len(failed)
    audit.figures["worker processes that died"] = deaths
    audit.figures["attempts lost"] = len(lost)
    audit.figures["of innocent jobs"] = sum(job not in poisonous for job, _ in lost)
    audit.figures["lost and never called"] = len(uncalled)
    audit.figures["seconds"] = round(took)
    return audit


def poison_chunk(place: Place, items: int = 20) -> list[Finding]:
    """One item of a chunk takes its worker process with it: the others lose one attempt, and no
    more than that (F8)."""
    with at(place) as start, Hurry(place, ["crushes"]):
        jobs = tasks.app.enqueue_many([tasks.crushes.call(n) for n in (-1, *range(1, items))])
        supervisor = start("supervised", "--processes=2", "--lease=5")
        wait("nothing is left to do", lambda: not open_jobs(place), LIMIT)
        supervisor.stop()
        ended = {job.id: [a.outcome for a in tasks.app.attempts(job.id)] for job in jobs}
    poison, *others = (ended[job.id] for job in jobs)
    findings = []
    if poison != ["lost"] * CRASH_LIMIT:
        findings.append(Finding("poison", f"it ended as {poison}"))
    well = (["completed"], ["lost", "completed"])
    wrong = [each for each in others if each not in well]
    findings += [Finding("innocent", f"an item beside it ended as {each}") for each in wrong]
    if not any(each == ["lost", "completed"] for each in others):
        findings.append(Finding("chunk", "it was alone from the beginning"))
    return findings


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--jobs", type=int, default=10_000, help="innocent ones beside the poison")
    parser.add_argument("--poison", type=int, nargs="*", default=(4, 20), help="in thread slots")
    parser.add_argument("--processes", type=int, default=2, help="of the supervisor")
    parser.add_argument("--threads", action="store_true", help="poison in thread slots only")
    chosen = parser.parse_args(arguments)
    findings = 0
    scenes: dict[str, Callable[[Place], Audit]] = {
        "process slots": lambda place: poison_processes(place, chosen.jobs, list(POISON)),
        "1 in a thread among 200": lambda place: poison_threads(place, 200),
    }
    for number in chosen.poison:
        scenes[f"{number} in threads among 2,000 quick ones"] = partial(
            poison_threads, innocent=2000, poison=number, pause=0.0,
            task=tasks.kills_its_worker, processes=chosen.processes,
        )  # fmt: skip
    if chosen.threads:
        del scenes["process slots"]
    for name, scene in scenes.items():
        with tempfile.TemporaryDirectory(prefix="poison-") as folder:
            with places(chosen.engine, Path(folder)) as place:
                audit = scene(place)
        findings += audit.say(f"{chosen.engine}, {name}")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
