"""I5: jobs run inside the transaction of a TestCase, and go with it."""

from __future__ import annotations

from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.db.utils import DatabaseError, IntegrityError
from django.test import TestCase

from towline.integrations.django import app
from towline.testing import drain

from . import tasks
from .models import Note


class InsideATest(TestCase):
    """Each of these finds nothing of the one before."""

    def setUp(self) -> None:
        self.assertEqual(list(app.jobs(on=connection)), [])
        self.assertEqual(Note.objects.count(), 0)

    def failed(self, task: Any, *args: Any) -> Any:
        result = task.enqueue(*args)
        drain(app, on=connection, raising=False)
        result.refresh()
        self.assertEqual(str(result.status), "FAILED")
        # The transaction of the test is as usable as before.
        self.assertFalse(connection.needs_rollback)
        tasks.write.enqueue("afterwards")
        drain(app, on=connection)
        self.assertTrue(Note.objects.filter(text="afterwards").exists())
        return result.errors[0].exception_class

    def test_I5_what_a_handler_writes_is_there(self) -> None:
        result = tasks.write.enqueue("hello")
        drain(app, on=connection)
        self.assertEqual(Note.objects.get().text, "hello")
        result.refresh()
        self.assertEqual(result.return_value, Note.objects.get().pk)
        self.assertTrue(connection.in_atomic_block)

    def test_I5_an_awaiting_handler_sees_the_test_s_rows(self) -> None:
        Note.objects.create(text="a")
        result = tasks.count.enqueue()
        drain(app, on=connection)
        result.refresh()
        self.assertEqual(result.return_value, 1)

    async def test_I5_from_a_test_that_awaits(self) -> None:
        await tasks.write.aenqueue("a")
        result = await tasks.count.aenqueue()
        self.assertEqual(await sync_to_async(drain)(app, on=connection), 2)
        await result.arefresh()
        self.assertEqual(result.return_value, 1)

    def test_I5_a_broken_transaction_is_the_handler_s_alone(self) -> None:
        error = self.failed(tasks.break_the_transaction, "twice")
        self.assertTrue(issubclass(error, IntegrityError))

    def test_I5_so_is_one_that_django_broke(self) -> None:
        error = self.failed(tasks.break_it_quietly, "quiet")
        self.assertEqual(error, transaction.TransactionManagementError)
        self.assertFalse(Note.objects.filter(text="quiet").exists())

    def test_I5_what_a_failed_handler_wrote_before_stays(self) -> None:
        """As it does in a worker, where there is no transaction around."""
        self.assertIs(self.failed(tasks.write_and_fail, "before"), ValueError)
        self.assertTrue(Note.objects.filter(text="before").exists())

    def test_I5_an_error_is_raised_in_the_test(self) -> None:
        tasks.write_and_fail.enqueue("x")
        with self.assertRaisesMessage(ValueError, "after x"):
            drain(app, on=connection)

    def test_I5_tasks_of_the_app_itself(self) -> None:
        job = tasks.native.using(on=connection).enqueue(3)
        self.assertEqual(drain(app, on=connection, until=job), 1)
        self.assertEqual(job.refresh(on=connection).output, 3)
        self.assertEqual(Note.objects.get().text, "native 3")

    def test_I5_inside_a_block_that_is_rolled_back(self) -> None:
        try:
            with transaction.atomic():
                tasks.write.enqueue("gone")
                self.assertEqual(drain(app, on=connection), 1)
                raise KeyError
        except KeyError:
            pass
        self.assertEqual((Note.objects.count(), len(app.jobs(on=connection))), (0, 0))

    def test_I5_a_transaction_that_was_broken_before_is_refused(self) -> None:
        with self.assertRaises(DatabaseError):
            with transaction.atomic():
                connection.set_rollback(True)
                drain(app, on=connection)
