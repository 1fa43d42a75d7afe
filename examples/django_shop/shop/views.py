"""The pages of the shop, as JSON."""

# pyright: reportUntypedFunctionDecorator=false

from __future__ import annotations

import json
from typing import Any

from django.db import transaction
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from .models import Order
from .tasks import report, send_receipt


@csrf_exempt
@require_POST
def order(request: HttpRequest) -> JsonResponse:
    """Take an order. It and the job of its receipt are one commit: both are there, or neither."""
    given: dict[str, Any] = json.loads(request.body)
    with transaction.atomic():
        placed = Order.objects.create(
            item=given["item"], price=given["price"], email=given["email"]
        )
        result = send_receipt.enqueue(placed.pk)
        if placed.price > 1000:
            raise ValueError("nobody pays that much")
    return JsonResponse({"order": placed.pk, "receipt": result.id}, status=201)


def receipt(request: HttpRequest, id: str) -> JsonResponse:
    """How far a receipt is."""
    result = send_receipt.get_result(id)
    return JsonResponse({"status": result.status, "attempts": result.attempts})


@csrf_exempt
@require_POST
def begin_report(request: HttpRequest) -> JsonResponse:
    return JsonResponse({"report": report.enqueue().id}, status=202)
