"""A Django project for the contract: on SQLite in memory, or where CONTRACT_DATABASE says."""

from __future__ import annotations

import os
from typing import Any

SECRET_KEY = "contract"
USE_TZ = True
ROOT_URLCONF = "contract.urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
STATIC_URL = "static/"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "towline.integrations.django",
    "contract",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
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
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# What tasks raise here, they raise on purpose.
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"none": {"class": "logging.NullHandler"}},
    "root": {"handlers": ["none"]},
    "loggers": {"django": {"handlers": ["none"]}},
}


def database() -> dict[str, Any]:
    place = os.environ.get("CONTRACT_DATABASE", ":memory:")
    if not place.startswith("postgresql:"):
        options = {} if place == ":memory:" else {"transaction_mode": "IMMEDIATE", "timeout": 60}
        return {"ENGINE": "django.db.backends.sqlite3", "NAME": place, "OPTIONS": options}
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(place)
    names = {"NAME": "dbname", "USER": "user", "HOST": "host", "PORT": "port"}
    return {
        "ENGINE": "django.db.backends.postgresql",
        **{name: given.get(key) for name, key in names.items()},
    }


DATABASES = {"default": database()}
TASKS: dict[str, Any] = {
    "default": {"BACKEND": "towline.integrations.django.Backend", "QUEUES": []},
    "others": {"BACKEND": "django.tasks.backends.dummy.DummyBackend"},
}
try:
    import django.tasks  # noqa: F401
except ImportError:
    TASKS["others"]["BACKEND"] = "django_tasks.backends.dummy.DummyBackend"
