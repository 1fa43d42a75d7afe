"""The admin of the shop; that of its jobs comes with Towline."""

from __future__ import annotations

from django.contrib import admin

from .models import Order

admin.site.register(Order)
