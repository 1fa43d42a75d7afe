"""Tests of the shop. Jobs run inside the transaction of a TestCase, and go with it."""

from __future__ import annotations

from django.core import mail
from django.db import connection
from django.test import TestCase

from towline.integrations.django import app
from towline.testing import drain

from .models import Order
from .tasks import report

KETTLE = {"item": "kettle", "price": 30, "email": "ada@example.com"}


class ShopTest(TestCase):
    def place(self, **changes: object) -> dict[str, str]:
        answer = self.client.post("/orders", {**KETTLE, **changes}, "application/json")
        self.assertEqual(answer.status_code, 201)
        placed: dict[str, str] = answer.json()
        return placed

    def test_an_order_has_its_receipt(self) -> None:
        placed = self.place()
        self.assertEqual(mail.outbox, [])
        self.assertEqual(drain(app, on=connection), 1)
        self.assertEqual([each.to for each in mail.outbox], [["ada@example.com"]])
        answer = self.client.get(f"/receipts/{placed['receipt']}").json()
        self.assertEqual(answer, {"status": "SUCCESSFUL", "attempts": 1})

    def test_an_order_that_is_refused_has_none(self) -> None:
        with self.assertRaises(ValueError):
            self.place(price=1001)
        self.assertEqual(Order.objects.count(), 0)
        self.assertEqual(drain(app, on=connection), 0)

    def test_a_receipt_is_not_sent_twice(self) -> None:
        placed = self.place()
        drain(app, on=connection)
        app.rerun(int(placed["receipt"]), on=connection)
        drain(app, on=connection)
        self.assertEqual(len(mail.outbox), 1)

    def test_a_report_awaits(self) -> None:
        self.place()
        result = report.enqueue()
        drain(app, on=connection)
        result.refresh()
        self.assertEqual(result.return_value, {"orders": 1, "revenue": 30})
