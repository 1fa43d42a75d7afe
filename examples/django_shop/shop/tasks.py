"""What the shop does in the background. A task is given an id: the row may change until it runs."""

from __future__ import annotations

from django.core.mail import send_mail
from django.db.models import Count, Sum
from django.utils import timezone

from towline.integrations.django import task

from .models import Order


@task(max_attempts=5, timeout=30)
def send_receipt(order: int) -> str:
    """At least once: who was killed after sending sends again, unless the order says so."""
    found = Order.objects.get(pk=order)
    if found.receipt_sent_at is None:
        send_mail(
            subject=f"Your {found.item}",
            message=f"Order {found.pk}: {found.item}, {found.price} €. Thank you!",
            from_email="shop@example.com",
            recipient_list=[found.email],
        )
        found.receipt_sent_at = timezone.now()
        found.save(update_fields=["receipt_sent_at"])
    return str(found.email)


@task(queue_name="reports")
async def report() -> dict[str, int]:
    """How the shop is doing."""
    found = await Order.objects.aaggregate(orders=Count("id"), revenue=Sum("price"))
    return {"orders": found["orders"], "revenue": found["revenue"] or 0}
