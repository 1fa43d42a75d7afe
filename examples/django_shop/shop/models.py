"""What the shop keeps."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """One thing that somebody wants."""

    item = models.CharField(max_length=100)
    price = models.PositiveIntegerField()
    email = models.EmailField()
    receipt_sent_at = models.DateTimeField(null=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"{self.item} for {self.email}"
