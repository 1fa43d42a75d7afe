"""A runner in place of an app's own, for as long as a block takes."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from ..app import Towline
from ..engine import Engine
from ..runner import Runner


class StandIn(Runner):
    """Does what the app's own runner does, apart from what its subclass says otherwise."""

    def __init__(self, app: Towline) -> None:
        self._app = app
        self._real = app.runner

    def __getattr__(self, name: str) -> Any:
        # What Runner.__init__ would have set: the real one's, as it is at the time.
        return getattr(self._real, name)

    def prepare(self, *, create: bool | None = None) -> None:
        self._real.prepare(create=create)

    def migrate(self) -> list[str]:
        return self._real.migrate()

    def use(self, engine: Engine) -> None:
        self._real.use(engine)

    def close(self) -> None:
        self._real.close()

    def __enter__(self) -> Self:
        self._app.runner = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._app.runner = self._real
