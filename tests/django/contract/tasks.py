"""Tasks of the contract, as Django declares them, and some with more to say."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from django.db import connection, transaction

from towline import Fail, Retry, Snooze
from towline.integrations.django import app
from towline.integrations.django import task as our_task
from towline.integrations.django.shim import TaskContext

from .models import Note

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task  # type: ignore[assignment, no-redef, unused-ignore]


@task
def add(a: int, b: int = 1) -> int:
    """Give the sum."""
    return a + b


@task(queue_name="mail", priority=7)
def send(*to: str, **options: Any) -> list[Any]:
    return [list(to), options]


@task
async def count() -> int:
    found: int = await Note.objects.acount()
    return found


@task
def write(text: str) -> int:
    pk: int = Note.objects.create(text=text).pk
    return pk


@task
def write_and_fail(text: str) -> None:
    Note.objects.create(text=text)
    raise ValueError(f"after {text}")


@task
def break_the_transaction(text: str) -> None:
    """Two rows of one text: the second is refused, and PostgreSQL then refuses everything."""
    Note.objects.create(text=text)
    Note.objects.create(text=text)


@task
def break_it_quietly(text: str) -> None:
    """As Django breaks a transaction whose inner block has no savepoint."""
    Note.objects.create(text=text)
    try:
        with transaction.atomic(savepoint=False):
            raise KeyError
    except KeyError:
        pass


@task
async def fail_awaiting() -> None:
    raise LookupError("awaited")


@task(takes_context=True)
def attempts(context: TaskContext, least: int) -> list[Any]:
    """Fail until there were so many."""
    if context.attempt < least:
        raise RuntimeError(f"attempt {context.attempt}")
    return [context.attempt, context.task_result.id, len(context.task_result.errors)]


@task
def signal(name: str) -> None:
    raise {"snooze": Snooze(60), "retry": Retry(delay=60), "fail": Fail("no use")}[name]


@task
def chain(depth: int) -> str | None:
    """Enqueue itself."""
    result: str | None = chain.enqueue(depth - 1).id if depth else None
    return result


@our_task(max_attempts=3, timeout=20, label="ours")
def ours(n: int) -> int:
    return n


@task(backend="others")
def elsewhere() -> str:
    return "sent here by a call"


@app.task
def native(n: int) -> int:
    """A task of the app itself."""
    Note.objects.create(text=f"native {n}")
    return n


@our_task(run_in="process")
def in_a_process(text: str) -> int:
    Note.objects.create(text=text)
    return os.getpid()


@task
def query(n: int) -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return n


@task
async def aquery(n: int) -> int:
    await Note.objects.aexists()
    return n


@task
def linger(mark: str) -> int:
    """The first one goes on for ever, the second ends: by a file that says who was there."""
    path = Path(mark)
    first = not path.exists()
    with path.open("a") as file:
        file.write(f"{os.getpid()}\n")
    while first:
        time.sleep(1)
    return os.getpid()
