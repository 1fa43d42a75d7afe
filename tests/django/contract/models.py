"""What the tasks of the contract write."""

from __future__ import annotations

from django.db import models


class Note(models.Model):
    """One line; no two are the same."""

    text = models.CharField(max_length=100, unique=True)
