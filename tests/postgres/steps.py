"""Further migrations that a test plants, as a later release would have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg

from towline.migrate import CONCURRENT, Migrations

PACKAGE = "towline.postgres"
KNOWN = Migrations(PACKAGE, "towline_", "public").names  # without those a test adds
MORE = "ALTER TABLE {job} ADD COLUMN more text;"
INDEX = f"""{CONCURRENT}
CREATE INDEX CONCURRENTLY IF NOT EXISTS {{prefix}}job_more ON {{job}} (task);
"""

Steps = dict[str, str]


def know_steps(steps: Steps, patch: Callable[[type, str, Any], None] = setattr) -> None:
    """Let this release know further migrations, by name and text."""
    step = Migrations._step
    patch(Migrations, "names", (*KNOWN, *steps))
    patch(Migrations, "_step", lambda self, name: steps.get(name) or step(self, name))


def recorded(url: str, prefix: str = "towline_") -> list[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        text = f"SELECT name FROM {prefix}migration ORDER BY name"
        return [name for (name,) in connection.execute(text.encode())]
