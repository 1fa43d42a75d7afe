"""A Django project at work on a real database: `python live.py kill|connections|pages …`.

Each prints what happened as JSON, for test_django.py to judge.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.core.management import call_command
from django.db import connection

LIMIT = 60.0  # seconds after which what should have happened has not


def kill(folder: str) -> dict[str, Any]:
    """A worker is killed in the middle of a task, and another one starts."""
    from contract import tasks

    mark = Path(folder, "mark")
    result = tasks.linger.enqueue(str(mark))
    with worker():
        first = wait(lambda: int(mark.read_text()) if mark.exists() and mark.read_text() else None)
        os.kill(first, signal.SIGKILL)
    with worker():
        wait(lambda: refreshed(result).is_finished)
    return {
        "killed": first,
        "status": str(result.status),
        "by": result.return_value,
        "attempts": result.attempts,
        "errors": [each.exception_class.__name__ for each in result.errors],
        "workers": len(set(result.worker_ids)),
    }


class worker:
    """`manage.py towline worker` in a process of its own."""

    def __enter__(self) -> None:
        command = [sys.executable, "-m", "django", "towline", "worker", "--lease", "1"]
        self.process = subprocess.Popen([*command, "--concurrency", "1", "--log-level", "warning"])

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(LIMIT)


def connections(number: str, slots: str, age: str) -> dict[str, Any]:
    """Many attempts, blocking ones and awaiting ones, with connections that Django keeps so long;
    and one in a process."""
    from contract import tasks

    from towline.integrations.django.target import __getattr__ as target

    for each in range(int(number) // 2):
        tasks.query.enqueue(each)
        tasks.aquery.enqueue(each)
    apart = tasks.in_a_process.enqueue("from a process") if age == "0" else None
    target("default").worker(concurrency=int(slots), drain=True).run()
    completed = len(target("default").jobs(state="completed", limit=10_000))
    return {
        "left": len(theirs()),
        "left in the end": len(wait_until_none(theirs) if age == "0" else theirs()),
        "completed": completed,
        "apart": apart is not None and refreshed(apart).return_value not in (None, os.getpid()),
    }


def theirs() -> list[Any]:
    """Connections of Django's that this program has open, beside the one that asks."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
            "AND application_name <> 'towline' AND pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'"  # the server may be vacuuming beside it
        )
        return list(cursor.fetchall())


def wait_until_none(look: Any) -> Any:
    """What awaiting handlers share is closed a moment after the last of them."""
    end = time.monotonic() + 5
    while (found := look()) and time.monotonic() < end:
        time.sleep(0.05)
    return found


def pages(*sizes: str) -> dict[str, Any]:
    """What SQLite does for a page of the admin beside so many jobs, in steps of its machine."""
    from contract import tasks
    from django.contrib.auth.models import User
    from django.test import Client

    from towline.integrations.django import app

    settings.ALLOWED_HOSTS = ["testserver"]
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    found: dict[str, list[int]] = {}
    stored = 0
    for size in map(int, sizes):
        while stored < size:
            few = min(10_000, size - stored)
            app.enqueue_many([tasks.native.call(n) for n in range(few)])
            stored += few
        for asked in ("", "state=pending", "state=failed", "task=native", "q=1"):
            steps = [0]

            def count(steps: list[int] = steps) -> None:
                steps[0] += 1

            connection.connection.set_progress_handler(count, 100)
            assert client.get(f"/admin/towline/job/?{asked}").status_code == 200
            found.setdefault(asked, []).append(steps[0])
    return found


def refreshed(result: Any) -> Any:
    result.refresh()
    return result


def wait(condition: Any) -> Any:
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.05)
    return found


if __name__ == "__main__":
    act, *given = sys.argv[1:]
    if act == "connections":
        settings.DATABASES["default"]["CONN_MAX_AGE"] = int(given[-1])
    django.setup()
    call_command("migrate", verbosity=0)
    acts: dict[str, Any] = {"kill": kill, "connections": connections, "pages": pages}
    print(json.dumps(acts[act](*given)))
