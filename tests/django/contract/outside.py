"""Nothing imports this: a row that names it must not either."""

from __future__ import annotations

raise AssertionError("a row made somebody import this")
