"""I7: the admin shows jobs without walking them all, and does nothing without permission."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import TestCase
from django.test.utils import CaptureQueriesContext

from towline.integrations.django import app
from towline.integrations.django.models import Job
from towline.testing import drain

from . import tasks

LIST = "/admin/towline/job/"


class Admin(TestCase):
    def setUp(self) -> None:
        self.user = User.objects.create_user("ada", is_staff=True)
        self.may("view_job")
        self.client.force_login(self.user)

    def may(self, *names: str) -> None:
        self.user.user_permissions.add(*Permission.objects.filter(codename__in=names))

    def shown(self, **asked: Any) -> list[int]:
        answer = self.client.get(LIST, asked)
        self.assertEqual(answer.status_code, 200)
        return [job.pk for job in answer.context["cl"].result_list]

    def act(self, action: str, *ids: int, **more: Any) -> str:
        asked = {"action": action, "_selected_action": [str(id) for id in ids], **more}
        answer = self.client.post(LIST, asked, follow=True)
        return " ".join(str(message) for message in answer.context["messages"])

    def failed(self) -> int:
        result = tasks.write_and_fail.enqueue("x")
        drain(app, on=connection, raising=False)
        return int(result.id)

    def test_I7_lists_filter_search_and_page(self) -> None:
        failed = self.failed()
        added = [int(tasks.add.enqueue(n).id) for n in range(150)]
        labelled = int(tasks.ours.enqueue(1).id)
        self.assertEqual(self.shown(), [labelled, *added[:50:-1]])
        self.assertEqual(self.shown(p=2), [*added[50::-1], failed])
        self.assertEqual(self.shown(state="failed"), [failed])
        self.assertEqual(self.shown(task="contract.tasks.ours", state="pending"), [labelled])
        self.assertEqual(self.shown(queue="mail"), [])
        self.assertEqual(self.shown(q=str(failed)), [failed])
        self.assertEqual(self.shown(q="ours"), [labelled])
        self.assertEqual(self.client.get(LIST, {"p": 9}).status_code, 302)

    def test_I7_one_job_with_its_attempts_and_without_its_secrets(self) -> None:
        tasks.send.enqueue("ada", password="hunter2")
        id = self.failed()
        page = self.client.get(f"{LIST}{id}/change/").content.decode()
        self.assertIn("ValueError: after x", page)
        self.assertNotIn('name="_save"', page)
        with self.subTest("secrets"):
            other = Job.objects.get(task="contract.tasks.send").pk
            page = self.client.get(f"{LIST}{other}/change/").content.decode()
            self.assertNotIn("hunter2", page)
            self.assertIn("***", page)
            bad = int(tasks.send.enqueue("ada", password="hunter2").id)
            app.fail(bad, "hunter2 is no password", on=connection)
            for road in (LIST, f"{LIST}{bad}/change/"):
                page = self.client.get(road).content.decode()
                self.assertIn("*** is no password", page)
                self.assertNotIn("hunter2", page)
        self.assertEqual(self.client.get(f"{LIST}99999/change/").status_code, 302)

    def test_I7_nothing_without_permission(self) -> None:
        id, waiting = self.failed(), int(tasks.add.enqueue(1).id)
        before = [str(job.state) for job in app.jobs(on=connection)]
        for action in ("retry", "cancel", "run_now", "delete_selected"):
            self.act(action, id, waiting)
        for page in (f"{LIST}add/", f"{LIST}{id}/delete/"):
            self.assertEqual(self.client.post(page).status_code, 403)
        self.assertEqual(self.client.post(f"{LIST}{id}/change/", {"state": "x"}).status_code, 403)
        self.assertEqual([str(job.state) for job in app.jobs(on=connection)], before)
        self.assertEqual(list(app.audit(on=connection)), [])
        self.user.user_permissions.clear()
        self.assertEqual(self.client.get(LIST).status_code, 403)

    def test_I7_actions_by_who_may(self) -> None:
        self.may("retry_job", "cancel_job", "run_job")
        id, waiting = self.failed(), int(tasks.add.enqueue(1).id)
        self.assertEqual(self.act("retry", id), "1 job retried.")
        self.assertEqual(app.job(id, on=connection).state, "pending")
        self.assertEqual(self.act("cancel", waiting, 99999)[:17], "1 job cancelled. ")
        self.assertEqual(app.job(waiting, on=connection).state, "cancelled")
        lines = [(line.by, line.action) for line in app.audit(on=connection)]
        self.assertEqual(lines, [("ada", "cancel"), ("ada", "retry")])

    def test_I7_a_tick_stands_for_one_job(self) -> None:
        self.may("cancel_job")
        ids = [int(tasks.add.enqueue(n).id) for n in range(3)]
        self.act("cancel", ids[0], select_across="1")
        self.assertEqual(self.shown(state="cancelled"), [ids[0]])

    def test_I7_a_page_costs_the_same_beside_ten_times_as_many(self) -> None:
        """Statements here; `test_django.py` counts what the database does for them."""
        numbers: list[int] = []
        for size in (1200, 12_000):
            app.enqueue_many(
                [tasks.native.call(n) for n in range(size - len(numbers) * 1200)], on=connection
            )
            with CaptureQueriesContext(
                connection,
            ) as made:
                self.shown(state="pending")
            numbers.append(len(made))
        self.assertLessEqual(numbers[1], numbers[0])

    def test_I7_the_model_is_a_view(self) -> None:
        id = self.failed()
        found = Job.objects.get(state="failed")
        self.assertEqual((found.pk, found.attempt, found.queue), (id, 1, "default"))
        self.assertIsNotNone(found.ended_at)
        self.assertLess(found.created_at, found.ended_at)
