"""Events of an app, kept for a test to look at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..app import Towline
from ..errors import InvalidSetting
from ..events.kinds import EVENTS, Event


class Recording:
    """What was published since the block began, in its order."""

    def __init__(self, app: Towline) -> None:
        self._app = app
        self._events: list[Event] = []

    def __call__(self, name: str | None = None) -> list[Any]:
        """The events by now, or those of one name."""
        if name is not None and name not in EVENTS:
            raise InvalidSetting(f"there is no event {name!r}; there are {', '.join(EVENTS)}")
        self._app.runner.events.flush()
        return [event for event in self._events if name is None or event.name == name]

    def note(self, event: Event) -> None:
        self._events.append(event)


@contextmanager
def recorded(app: Towline) -> Iterator[Recording]:
    """Keep every event of the app in the block: `events("attempt.ended")` gives them."""
    recording = Recording(app)
    app.runner.events.subscribe(recording.note)
    try:
        yield recording
    finally:
        app.runner.events.unsubscribe(recording.note)
