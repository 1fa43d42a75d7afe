"""Django's own tests of its tasks, with our inline backend in the place of its immediate one.

    python own_tests.py …/django-6.1.3

Prints the names of those that did not pass. What cannot hold is pinned in test_django.py.
"""

from __future__ import annotations

import json
import sys
import unittest
from typing import Any

import django
from django.conf import settings

settings.configure(
    SECRET_KEY="tests",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=["towline.integrations.django"],
    TASKS={"default": {"BACKEND": "towline.integrations.django.Backend"}},
    USE_TZ=True,
)
django.setup()

from django.tasks.backends import immediate  # noqa: E402
from django.test.runner import DiscoverRunner  # noqa: E402
from django.test.testcases import SimpleTestCase  # noqa: E402

from towline.integrations.django import Backend  # noqa: E402


class InlineBackend(Backend):
    """Without an option: a test looks at those."""

    inline = True


class Runner(DiscoverRunner):
    """Lets tests reach the database, which none of Django's own backends needs."""

    def build_suite(self, *args: Any, **kwargs: Any) -> unittest.TestSuite:
        suite: unittest.TestSuite = super().build_suite(*args, **kwargs)
        for test in suite:
            if isinstance(test, SimpleTestCase):
                type(test).databases = {"default"}
        return suite

    def suite_result(self, suite: Any, result: unittest.TestResult, **_: Any) -> int:
        bad = [test.id() for test, _ in [*result.failures, *result.errors]]
        print(json.dumps({"ran": result.testsRun, "bad": sorted(bad)}))
        return 0


if __name__ == "__main__":
    immediate.ImmediateBackend = InlineBackend
    sys.path.insert(0, f"{sys.argv[1]}/tests")
    Runner(verbosity=0).run_tests(["tasks"])
