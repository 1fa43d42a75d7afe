"""What Django's tasks promise, and what we promise beyond: on any release and any database."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from io import StringIO
from typing import Any
from unittest import skipUnless

import django
from django.core import checks
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.dispatch import Signal
from django.test import TestCase, TransactionTestCase, override_settings
from django.utils import timezone

from towline.errors import InvalidTask, SchemaMissing
from towline.integrations.django import app, shim
from towline.integrations.django.checks import check_entry
from towline.integrations.django.target import __getattr__ as target
from towline.testing import drain

from . import tasks
from .models import Note

Status = shim.TaskResultStatus


class Results(TestCase):
    """A job, seen as Django's TaskResult."""

    def run_all(self, **options: Any) -> int:
        return drain(app, on=connection, raising=False, **options)

    def test_I1_a_call_is_stored_and_run(self) -> None:
        result = tasks.add.enqueue(2, b=3)
        self.assertEqual(
            (result.status, result.args, result.kwargs, result.attempts, result.backend),
            (Status.READY, [2], {"b": 3}, 0, "default"),
        )
        self.assertIsNotNone(result.enqueued_at)
        self.assertIsNone(result.finished_at)
        with self.assertRaisesMessage(ValueError, "not finished"):
            result.return_value  # noqa: B018
        self.assertEqual(self.run_all(), 1)
        self.assertEqual(result.status, Status.READY)
        result.refresh()
        self.assertEqual((result.status, result.return_value), (Status.SUCCESSFUL, 5))
        self.assertEqual((result.attempts, result.started_at), (1, result.last_attempted_at))
        self.assertLessEqual(result.enqueued_at, result.started_at)
        self.assertLessEqual(result.started_at, result.finished_at)
        self.assertEqual(tasks.add.get_result(result.id), result)

    def test_I1_what_was_declared_is_what_is_stored(self) -> None:
        result = tasks.send.enqueue("ada", subject="hi", cc=("bob", b"eve"))
        job = app.job(int(result.id), on=connection)
        self.assertEqual((job.queue, job.priority, job.max_attempts), ("mail", 7, 1))
        self.assertEqual(job.task, "contract.tasks.send")
        again = tasks.send.get_result(result.id)
        self.assertEqual((again.task, again.kwargs["cc"]), (tasks.send, ["bob", "eve"]))
        low = tasks.send.using(priority=-5, queue_name="slow").enqueue()
        self.assertEqual(low.task.get_result(low.id).task.priority, -5)
        with self.assertRaises(TypeError):
            tasks.add.enqueue(object())

    def test_I1_priority_decides_who_is_first(self) -> None:
        low = tasks.chain.using(priority=-1).enqueue(0)
        high = tasks.chain.using(priority=1).enqueue(0)
        self.run_all(limit=10)
        results = [tasks.chain.get_result(each.id) for each in (high, low)]
        self.assertLess(results[0].finished_at, results[1].started_at)

    def test_I1_run_after_waits(self) -> None:
        later = timezone.now() + timedelta(hours=1)
        result = tasks.add.using(run_after=later).enqueue(1)
        self.assertEqual(self.run_all(), 0)
        result.refresh()
        self.assertEqual(result.status, Status.READY)
        self.assertEqual(tasks.add.get_result(result.id).task.run_after, later)

    def test_I1_an_error_is_kept_by_its_class_and_text(self) -> None:
        result = tasks.write_and_fail.enqueue("x")
        self.run_all()
        result.refresh()
        self.assertEqual((result.status, result.attempts), (Status.FAILED, 1))
        (error,) = result.errors
        self.assertIs(error.exception_class, ValueError)
        self.assertTrue(error.traceback.endswith("ValueError: after x\n"))
        self.assertIn("in write_and_fail", error.traceback)
        with self.assertRaisesMessage(ValueError, "Task failed"):
            result.return_value  # noqa: B018
        awaited = tasks.fail_awaiting.enqueue()
        self.run_all()
        awaited.refresh()
        self.assertIs(awaited.errors[0].exception_class, LookupError)

    def test_I1_each_attempt_is_counted(self) -> None:
        result = tasks.attempts.using(max_attempts=3).enqueue(3)
        for _ in range(3):
            self.run_all()
            if app.job(int(result.id), on=connection).state == "scheduled":
                app.run_now(int(result.id), on=connection)
        result.refresh()
        self.assertEqual(result.return_value, [3, result.id, 2])
        self.assertEqual((result.attempts, len(result.errors)), (3, 2))
        self.assertLess(result.started_at, result.last_attempted_at)

    def test_I1_what_is_not_there_is_said_to_be(self) -> None:
        missing = shim.TaskResultDoesNotExist
        native = tasks.native.using(on=connection).enqueue(1)
        for id in ("123456", "no number", "-1", "9" * 40, str(native.id)):
            with self.assertRaises(missing):
                tasks.add.get_result(id)

    def test_I1_cancelled_is_failed_and_handed_back_is_ready(self) -> None:
        first, second = tasks.add.enqueue(1), tasks.signal.enqueue("snooze")
        app.cancel(int(first.id), on=connection)
        self.run_all()
        for result, status in ((first, Status.FAILED), (second, Status.READY)):
            result.refresh()
            self.assertEqual((result.status, result.errors), (status, []))

    def test_I1_what_a_job_can_be_told(self) -> None:
        result = tasks.ours.using(key="k", max_attempts=4, timeout=5).enqueue(1)
        again = tasks.ours.using(key="k").enqueue(2)
        self.assertEqual((again.id, again.args), (result.id, [1]))
        job = app.job(int(result.id), on=connection)
        self.assertEqual((job.label, job.key, job.max_attempts), ("ours", "k", 4))
        self.assertEqual(job.record.timeout, 5_000_000)
        for wrong in ({"max_attempts": 0}, {"timeout": -1}, {"label": "\n"}, {"run_in": "x"}):
            with self.assertRaises(shim.InvalidTask):
                tasks.ours.using(**wrong)

    @skipUnless(django.VERSION >= (6, 1) or django.VERSION < (6,), "6.0's own @task takes no more")
    def test_I1_djangos_own_decorator_takes_it_too(self) -> None:
        self.assertEqual(shim.task(max_attempts=5, run_in="process")(plain).max_attempts, 5)


def plain() -> None:
    """A function that is no task yet."""


class Told(TestCase):
    """Signals, in the caller and where the task runs."""

    def setUp(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        for signal in (shim.task_enqueued, shim.task_started, shim.task_finished):
            signal.connect(self.listen)
            self.addCleanup(signal.disconnect, self.listen)

    def listen(self, signal: Signal, task_result: Any, **_: Any) -> None:
        self.lines.append((signal, str(task_result.status), sys.exc_info()[0]))

    def test_I1_signals_of_a_task(self) -> None:
        tasks.add.enqueue(1)
        self.assertEqual(self.lines, [(shim.task_enqueued, "READY", None)])
        drain(app, on=connection)
        self.assertEqual(self.lines[1:], [
            (shim.task_started, "RUNNING", None), (shim.task_finished, "SUCCESSFUL", None),
        ])  # fmt: skip

    def test_I1_a_task_is_finished_once(self) -> None:
        result = tasks.attempts.using(max_attempts=2).enqueue(9)
        for _ in range(2):
            drain(app, on=connection, raising=False)
            if not app.job(int(result.id), on=connection).ended_at:
                app.run_now(int(result.id), on=connection)
        self.assertEqual(self.lines[1:], [
            (shim.task_started, "RUNNING", None),
            (shim.task_started, "RUNNING", None), (shim.task_finished, "FAILED", RuntimeError),
        ])  # fmt: skip

    def test_I1_an_awaiting_task_that_fails(self) -> None:
        tasks.fail_awaiting.enqueue()
        drain(app, on=connection, raising=False)
        self.assertEqual(self.lines[-1], (shim.task_finished, "FAILED", LookupError))

    def test_I1_signals_of_ours_say_what_follows(self) -> None:
        for name, finished in (("snooze", 0), ("retry", 0), ("fail", 1)):
            del self.lines[:]
            tasks.signal.using(max_attempts=2).enqueue(name)
            drain(app, on=connection, raising=False)
            said = [line for line in self.lines if line[0] is shim.task_finished]
            self.assertEqual(len(said), finished, name)


class Registry(TestCase):
    """A worker runs what its own modules declare."""

    def test_I4_no_row_imports_anything(self) -> None:
        job = app.named("contract.outside.work").using(on=connection).enqueue(args=[], kwargs={})
        with self.assertRaises(InvalidTask):
            drain(app, on=connection)
        self.assertEqual(app.parked(on=connection), {"contract.outside.work": 1})
        with self.assertRaises(shim.TaskResultDoesNotExist):
            tasks.add.get_result(str(job.id))
        self.assertNotIn("contract.outside", sys.modules)

    def test_I4_a_task_of_another_alias_is_known_to_the_worker(self) -> None:
        self.assertIn("contract.tasks.elsewhere", target("default").registry)
        result = tasks.elsewhere.using(backend="default").enqueue()
        drain(app, on=connection)
        result.refresh()
        self.assertEqual(result.return_value, "sent here by a call")


class Commits(TransactionTestCase):
    """I2: a task is there exactly if what was written with it is."""

    def tearDown(self) -> None:
        app.cancel_many(everything=True, on=connection)
        app.delete_many(everything=True, on=connection)

    def stored(self) -> int:
        return len(app.jobs(on=connection))

    def test_I2_a_task_commits_with_its_transaction(self) -> None:
        with transaction.atomic():
            Note.objects.create(text="kept")
            tasks.add.enqueue(1)
        try:
            with transaction.atomic():
                Note.objects.create(text="lost")
                tasks.add.enqueue(2)
                raise KeyError
        except KeyError:
            pass
        self.assertEqual([note.text for note in Note.objects.all()], ["kept"])
        self.assertEqual([each.arguments for each in app.jobs(on=connection)],
                         ['{"args":[1],"kwargs":{}}'])  # fmt: skip

    def test_I2_and_with_its_savepoint(self) -> None:
        with transaction.atomic():
            tasks.add.enqueue(1)
            try:
                with transaction.atomic():
                    tasks.add.enqueue(2)
                    raise KeyError
            except KeyError:
                pass
            with transaction.atomic():
                tasks.add.enqueue(3)
        self.assertEqual(self.stored(), 2)

    def test_I2_without_a_transaction_it_commits_at_once(self) -> None:
        tasks.add.enqueue(1)
        self.assertFalse(connection.in_atomic_block)
        self.assertEqual(self.stored(), 1)
        self.assertEqual(drain(app, on=connection), 1)


class Settings(TestCase):
    """What TASKS says, and what is wrong with it."""

    def with_tasks(self, **options: Any) -> Any:
        queues = options.pop("QUEUES", [])
        entry = {"BACKEND": "towline.integrations.django.Backend", "QUEUES": queues}
        return override_settings(TASKS={"default": {**entry, "OPTIONS": options}})

    def test_I1_options_are_the_defaults_of_tasks(self) -> None:
        with self.with_tasks(max_attempts=7, timeout=11):
            result = tasks.add.enqueue(1)
            record = tasks.add.get_backend().app.job(int(result.id), on=connection).record
        self.assertEqual((record.max_attempts, record.timeout), (7, 11_000_000))

    def test_I1_times_without_a_zone_where_the_project_has_none(self) -> None:
        with self.settings(USE_TZ=False):
            later = (timezone.now() + timedelta(hours=1)).replace(microsecond=0)
            result = tasks.add.using(run_after=later).enqueue(1)
            result.refresh()
            self.assertIsNone(result.enqueued_at.tzinfo)
            self.assertLessEqual(result.enqueued_at, timezone.now())
            self.assertEqual(tasks.add.get_result(result.id).task.run_after, later)

    def test_I1_inline_runs_at_once(self) -> None:
        with self.with_tasks(inline=True):
            self.assertEqual(tasks.add.enqueue(1).return_value, 2)
            self.assertEqual(tasks.count.enqueue().return_value, 0)
            inner = tasks.chain.enqueue(2)
            self.assertEqual(inner.status, Status.SUCCESSFUL)
            self.assertEqual(tasks.chain.get_result(inner.return_value).status, Status.SUCCESSFUL)
            failed = tasks.write_and_fail.enqueue("x")
            self.assertEqual(failed.status, Status.FAILED)

    def test_I1_queues_that_are_not_listed_are_refused(self) -> None:
        with self.with_tasks(QUEUES=["default"]):
            with self.assertRaises(shim.InvalidTask):
                tasks.add.using(queue_name="mail")

    def test_I1_a_worker_serves_the_queues_that_may_be_named(self) -> None:
        with self.with_tasks(QUEUES=["b", "a"]):
            from towline.integrations.django import app

            self.assertEqual(app.worker().settings.queues, ("a", "b"))
        self.assertEqual(tasks.add.get_backend().app.worker().settings.queues, ("*",))

    def test_I1_checks(self) -> None:
        def ids(**options: Any) -> list[str | None]:
            return [found.id for found in check_entry("default", options)]

        self.assertEqual(ids(), [])
        self.assertEqual(ids(database="nowhere"), ["towline.E002"])
        self.assertEqual(checks.run_checks(databases=["default"]), [])
        with self.modify_settings(INSTALLED_APPS={"remove": "towline.integrations.django"}):
            found = tasks.add.get_backend().check()
            self.assertEqual([each.id for each in found], ["towline.E001"])
        with self.with_tasks(prefix="missing_"):
            with self.assertRaisesMessage(SchemaMissing, "manage.py migrate"):
                tasks.add.enqueue(1)
            found = checks.run_checks(databases=["default"])
            self.assertEqual([each.id for each in found], ["towline.W002"])


class Command(TestCase):
    """`manage.py towline`, as `call_command` has it."""

    def test_I1_every_command_of_ours(self) -> None:
        with redirect_stdout(StringIO()) as printed:
            call_command("towline", "--tasks=default", "tasks", "--json")
        names = [each["name"] for each in json.loads(printed.getvalue())["tasks"]]
        self.assertIn("contract.tasks.add", names)
        with self.assertRaisesMessage(CommandError, "no entry 'others' of TASKS"):
            call_command("towline", "--tasks", "others", "jobs")
        with redirect_stderr(StringIO()), self.assertRaises(CommandError) as refused:
            call_command("towline", "no-such-command")
        self.assertEqual(refused.exception.returncode, 2)

    def test_I1_behind_the_command_a_word_is_its_own(self) -> None:
        with redirect_stdout(StringIO()) as printed:
            call_command("towline", "stats", "--tasks", "--help")
        self.assertIn("Count by task", printed.getvalue())

    def test_A5_agents_are_not_served_where_others_have_printed(self) -> None:
        for words in (["mcp"], ["mcp", "--allow=enqueue", "--tasks", "contract.tasks.add"]):
            with self.assertRaisesMessage(CommandError, "target:default") as refused:
                call_command("towline", *words)
            self.assertEqual(refused.exception.returncode, 2)
        with redirect_stdout(StringIO()) as printed:
            call_command("towline", "mcp", "--help")
        self.assertIn("Serve an agent", printed.getvalue())
