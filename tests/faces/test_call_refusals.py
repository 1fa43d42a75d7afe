"""Options of a call that make no sense are refused with words, before the database is touched."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from towline import Towline
from towline.errors import InvalidSetting

NOON = datetime(2027, 1, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": 0}, "expires= is a positive duration, or a datetime"),
        ({"expires": -1}, "expires= is a positive duration, or a datetime"),
        ({"expires": "soon"}, "expires is seconds or a timedelta, not str"),
        ({"expires": NOON.replace(tzinfo=None)}, "expires= is a datetime with a time zone"),
        ({"expires": datetime.max.replace(tzinfo=UTC)}, "expires= is beyond what a calendar"),
        ({"expires": 5, "delay": 5}, "this job would never start"),
        ({"on_conflict": "after", "on_blocker_failure": "run"}, "on_conflict= need a key="),
        ({"on_conflict": "latest"}, "on_conflict= need a key="),
        (
            {"key": "k", "on_conflict": "after", "on_blocker_failure": "run", "scope": "any"},
            'on_conflict="after" is about open chains: no scope="any"',
        ),
        (
            {"key": "k", "on_conflict": "latest", "scope": "any"},
            'on_conflict="latest" is about open chains: no scope="any"',
        ),
        (
            {"key": "k", "on_conflict": "after"},
            'on_conflict="after" needs on_blocker_failure="run"',
        ),
        (
            {"key": "k", "on_conflict": "latest", "after": [1]},
            'on_conflict="latest" waits for what runs under its key, and takes no after=',
        ),
        ({"expires": NOON, "at": NOON + timedelta(seconds=1)}, "this job would never start"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], words: str) -> None:
    app = Towline("sqlite:////nowhere/at/all.db")

    @app.task
    def task() -> None: ...

    with pytest.raises(InvalidSetting, match=words.replace("(", r"\(")):
        task.using(**options)
