"""Where everything is."""

from __future__ import annotations

from django.contrib import admin
from django.urls import path

from . import views

urlpatterns = [
    path("orders", views.order),
    path("receipts/<str:id>", views.receipt),
    path("reports", views.begin_report),
    path("admin/", admin.site.urls),
]
