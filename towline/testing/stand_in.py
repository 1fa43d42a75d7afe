"""A runner in place of an app's own, for as long as a block takes."""

from __future__ import annotations

from typing import Self

from ..app import Towline
from ..runner import Runner


class StandIn(Runner):
    """Does what the app's own runner does, apart from what its subclass says otherwise.

    It shares the state of the real one; what a stand-in has beside that is in slots.
    """

    __slots__ = ("_app", "_real")

    def __init__(self, app: Towline) -> None:
        self.__dict__ = vars(app.runner)
        self._app = app
        self._real = app.runner

    def __enter__(self) -> Self:
        self._app.runner = self
        return self

    def __exit__(self, *error: object) -> None:
        self._app.runner = self._real
