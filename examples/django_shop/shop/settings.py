"""Settings of the shop. SHOP_DATABASE=postgresql://… takes it to PostgreSQL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent

SECRET_KEY = os.environ.get("SHOP_SECRET_KEY", "only for this example")
DEBUG = True
ALLOWED_HOSTS = ["*"]
ROOT_URLCONF = "shop.urls"
USE_TZ = True
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    "towline.integrations.django",
    "shop",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]


def database() -> dict[str, Any]:
    if url := os.environ.get("SHOP_DATABASE"):
        from psycopg.conninfo import conninfo_to_dict

        given = conninfo_to_dict(url)
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": given.get("dbname"),
            "USER": given.get("user"),
            "PASSWORD": given.get("password"),
            "HOST": given.get("host"),
            "PORT": given.get("port"),
        }
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": Path(os.environ.get("SHOP_FILE", HERE / "shop.db")),
        # A transaction that reads and then writes would fail while a worker writes.
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }


DATABASES = {"default": database()}
MAILERS: dict[str, Any] = {"default": {}}  # from Django 6.1 on: a server on this machine

# Every `@task` goes to the database above, and so does what `manage.py towline` works on.
TASKS = {
    "default": {
        "BACKEND": "towline.integrations.django.Backend",
        "QUEUES": ["default", "reports"],
        "OPTIONS": {"max_attempts": 3},
    }
}
