"""Forgotten and superfluous `await`: exactly the lines that end in `# no`."""

from __future__ import annotations

from towline import Job, Tasks, Towline

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task
async def fetch(url: str) -> bytes:
    return url.encode()


def takes_int(value: int) -> None: ...
def takes_job(job: Job[int]) -> None: ...


async def forgotten(app: Towline, job: Job[int]) -> None:
    add.aenqueue(1)  # no
    add.using(delay=1).aenqueue(1)  # no
    job.aresult()  # no
    job.arefresh()  # no
    job.acancel()  # no
    job.aretry()  # no
    app.aenqueue_many([add.call(1)])  # no
    app.ajob(1)  # no
    app.acancel(1)  # no
    app.apause("mail")  # no
    app.amigrate()  # no
    app.aclose()  # no
    takes_job(add.aenqueue(1))  # no
    takes_int(job.aresult())  # no
    print(add.aenqueue(1).id)  # no
    print((await app.ajobs()).cursor, app.ajobs().cursor)  # no


def forgotten_in_blocking_code(app: Towline, job: Job[int]) -> None:
    add.aenqueue(1)  # no
    app.aprune()  # no
    takes_int(job.aresult())  # no


async def superfluous(app: Towline, job: Job[int]) -> None:
    await add.enqueue(1)  # no
    await add.using(delay=1).enqueue(1)  # no
    await job.result()  # no
    await app.job(1)  # no
    await add.call(1)  # no
    await fetch.then("x")  # no


async def calling_just_calls() -> None:
    """Only an async task that is called itself gives a coroutine."""
    takes_int(add(1))
    await add(1)  # no
