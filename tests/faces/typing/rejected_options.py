"""Options nobody knows, or of a wrong type: exactly the lines that end in `# no`."""

from __future__ import annotations

from towline import Job, Tasks

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


def of_using(job: Job[int]) -> None:
    add.using(dealy=1)  # no
    add.using(5)  # no
    add.using(delay="soon")  # no
    add.using(at=5)  # no
    add.using(at="tomorrow")  # no
    add.using(priority="high")  # no
    add.using(priority=1.5)  # no
    add.using(queue=3)  # no
    add.using(label=3)  # no
    add.using(key=3)  # no
    add.using(key="k", scope="sometimes")  # no
    add.using(key="k", scope=None)  # no
    add.using(key="k", window="a day")  # no
    add.using(key="k", on_conflict="rais")  # no
    add.using(after=job)  # no
    add.using(after="job")  # no
    add.using(after=[add])  # no
    add.using(after=[job, "2"])  # no
    add.using(after={1: job})  # no
    add.using(after={"sum": add.then(1)})  # no
    add.using(after=None)  # no
    add.using(on_blocker_failure="stop")  # no
    add.using(max_attempts="three")  # no
    add.using(timeout="5 s")  # no
    add.using(trace=3)  # no
    add.using(delay=1).using(dealy=1)  # no
    add.using(delay=1).using(queue=3)  # no


def of_task() -> None:
    tasks.task(retries=3)  # no
    tasks.task("add")  # no
    tasks.task(name=3)  # no
    tasks.task(queue=3)  # no
    tasks.task(priority="high")  # no
    tasks.task(max_attempts="three")  # no
    tasks.task(max_attempts=None)  # no
    tasks.task(timeout="5 s")  # no
    tasks.task(backoff=5)  # no
    tasks.task(run_in="async")  # no


@tasks.task(queu="mail")  # no
def misspelt() -> None: ...


@tasks.task(run_in="loop")  # no
def elsewhere() -> None: ...
