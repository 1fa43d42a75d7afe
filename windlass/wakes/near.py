"""Workers in the very process that enqueues, for an engine that hears nothing itself."""

from __future__ import annotations

from collections.abc import Collection

from . import Ring


class Near:
    """One for each app. It costs no thread and no connection: whoever enqueues rings."""

    def __init__(self) -> None:
        self._rings: list[Ring] = []

    def add(self, ring: Ring) -> None:
        self._rings.append(ring)

    def remove(self, ring: Ring) -> None:
        if ring in self._rings:
            self._rings.remove(ring)

    def tell(self, queues: Collection[str]) -> None:
        for ring in list(self._rings):
            ring(queues)
