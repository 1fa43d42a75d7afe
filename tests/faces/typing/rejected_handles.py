"""Handles, batches and lists used as what they are not: exactly the lines that end in `# no`."""

from __future__ import annotations

from towline import Call, Job, Next, State, Task, Tasks, Towline

tasks = Tasks()


@tasks.task
def add(a: int, b: int = 0) -> int:
    return a + b


@tasks.task
def either(a: int) -> int | str:
    return a


def takes_int(value: int) -> None: ...
def takes_text(value: str) -> None: ...
def takes_job_of_bool(job: Job[bool]) -> None: ...
def takes_job_of_text(job: Job[str]) -> None: ...
def takes_call_of_text(call: Call[str]) -> None: ...
def takes_next_of_text(following: Next[str]) -> None: ...
def takes_task_of_text(task: Task[[int], str]) -> None: ...


def one(job: Job[int]) -> None:
    takes_text(job.result())  # no
    takes_text(job.refresh().result())  # no
    takes_int(job)  # no
    takes_int(either.enqueue(1).result())  # no
    job.result("soon")  # no
    job.result(5, 6)  # no
    job.refresh(1)  # no
    job.cancel(3)  # no
    job.retry("now")  # no
    print(job.stat)  # no
    takes_text(job.id)  # no
    takes_text(job.error)  # no
    takes_job_of_bool(job)  # no
    takes_job_of_text(job)  # no
    takes_call_of_text(add.call(1))  # no
    takes_next_of_text(add.then(1))  # no
    takes_task_of_text(add)  # no
    job.id = 3  # no
    job.state = State.COMPLETED  # no


def many(app: Towline) -> None:
    app.enqueue_many([add])  # no
    app.enqueue_many(add.call(1))  # no
    app.enqueue_many([add.enqueue(1)])  # no
    app.enqueue_many([add.then(1)])  # no
    app.enqueue_many([add.call("one")])  # no
    app.enqueue_many([add.call(1)], connection=None)  # no


def lists(app: Towline) -> None:
    app.job("1")  # no
    app.jobs(stat="failed")  # no
    app.jobs(state=5)  # no
    app.jobs(limit="all")  # no
    app.jobs(chain="1")  # no
    app.chains(queue="mail")  # no
    takes_text(app.jobs()[0])  # no
    takes_text(app.jobs()[1:])  # no
    app.cancel(1, "why")  # no
    app.fail(1)  # no
    app.pause(3)  # no
    app.delete("1")  # no
