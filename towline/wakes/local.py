"""The wake of workers in the process that enqueues, for an engine that hears nothing itself."""

from __future__ import annotations

from collections.abc import Collection

from . import Changed, Ring


class Local:
    """A wake without thread or connection: an enqueue rings. The runner has one to tell with,
    each of its workers one to hear with, made from that."""

    def __init__(self, shared: Local | None = None) -> None:
        self.rings: list[Ring] = [] if shared is None else shared.rings
        self._ring: Ring | None = None

    def start(self, ring: Ring) -> None:
        self._ring = ring
        self.rings.append(ring)

    def on_change(self, changed: Changed) -> None:
        """It cannot be lost: it is this process."""

    def stop(self) -> None:
        if self._ring is not None and self._ring in self.rings:
            self.rings.remove(self._ring)

    def tell(self, queues: Collection[str]) -> None:
        for ring in list(self.rings):
            ring(queues)
