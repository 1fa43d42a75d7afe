"""For `opentelemetry-instrument`: every app of a process, without code. It finds us by the entry
point group `opentelemetry_instrumentor`; needs `opentelemetry-instrumentation`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from opentelemetry.instrumentation.instrumentor import BaseInstrumentor

from ..app import Towline, apps, welcomes
from ..otel import instrument, uninstrument


class TowlineInstrumentor(BaseInstrumentor):
    """`instrument(app)` for all apps there are, and those that are made later."""

    def instrumentation_dependencies(self) -> Collection[str]:
        return ()

    def _instrument(self, **settings: Any) -> None:
        self._settings = settings
        welcomes.append(self._welcome)
        for app in list(apps):
            self._welcome(app)

    def _uninstrument(self, **_: Any) -> None:
        welcomes.remove(self._welcome)
        for app in list(apps):
            uninstrument(app)

    def _welcome(self, app: Towline) -> None:
        instrument(app, **self._settings)
