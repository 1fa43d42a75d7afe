"""Health of a worker: what its process answers to whoever asks whether it works.

*Live*: its pump comes round. A database that is away does not change that: starting again would
not mend it. *Ready*: it is registered, does not stop, and its database has answered lately.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from ...errors import InvalidSetting

if TYPE_CHECKING:
    from ...app import Towline
    from ...telemetry.prometheus import Metrics
    from .. import Worker

LEAST_SILENCE = 30.0  # seconds in which a pump comes round that is not stuck
COMPLAIN_EVERY = 300.0  # seconds: a page that fails is asked for again all the time


class Answer(Struct, frozen=True):
    """Yes, or no and why: in our own words, never in those of an error."""

    well: bool
    why: str | None = None


WELL = Answer(True)


class Health(Protocol):
    """What a port answers from."""

    def live(self) -> Answer: ...

    def ready(self) -> Answer: ...

    def metrics(self, accept: str) -> tuple[bytes, str] | None:
        """A page for Prometheus and its kind; None where there is none. May raise anything: a page
        has what collectors of the application say."""
        ...


class NoPage(Exception):
    """There should be one, and nobody has made it; whose page failed has said so in the log."""


class Complaint:
    """What is said in the log, and not again for some minutes."""

    def __init__(self) -> None:
        self._said: float | None = None

    def is_due(self) -> bool:
        now = time.monotonic()
        if self._said is not None and now < self._said + COMPLAIN_EVERY:
            return False
        self._said = now
        return True


class WorkerHealth:
    """That of one worker in this process."""

    def __init__(self, worker: Worker, *, metrics: bool = False) -> None:
        self._worker = worker
        self._metrics = metrics_for(worker.app) if metrics else None

    def live(self) -> Answer:
        worker = self._worker
        silence = time.monotonic() - worker.pump.came_round
        if silence <= max(LEAST_SILENCE, worker.settings.lease):
            return WELL
        return Answer(False, f"the pump has not come round for {silence:.0f} s")

    def ready(self) -> Answer:
        pump, lease = self._worker.pump, self._worker.settings.lease
        if pump.is_stopping:
            return Answer(False, "stopping")
        if not pump.turns.worker:
            return Answer(False, "not registered")
        silence = time.monotonic() - pump.turns.answered
        if silence > lease:
            return Answer(False, f"the database has not answered for {silence:.0f} s")
        return WELL

    def close(self) -> None:
        if self._metrics is not None:
            from ...telemetry.prometheus import let_go_of

            let_go_of(self._metrics)

    def metrics(self, accept: str) -> tuple[bytes, str] | None:
        return None if self._metrics is None else self._metrics.page(accept)


class ClusterHealth:
    """That of a process that only shows what the database knows."""

    def __init__(self, app: Towline) -> None:
        from prometheus_client import CollectorRegistry

        from ...telemetry.prometheus import Metrics

        self._app = app
        registry = CollectorRegistry()
        self._metrics = Metrics(app, registry=registry, process=False, cluster=True)

    def live(self) -> Answer:
        return WELL

    def ready(self) -> Answer:
        return WELL if self._metrics.sees_database() else Answer(False, "no database")

    def metrics(self, accept: str) -> tuple[bytes, str]:
        return self._metrics.page(accept)


def metrics_for(app: Towline) -> Metrics | None:
    """Those of this process, if prometheus-client is there."""
    try:
        from ...telemetry.prometheus import metrics_of
    except ImportError:
        return None
    return metrics_of(app)


def address_of(text: object) -> tuple[str, int]:
    """HOST:PORT, with an IPv6 host in brackets; port 0 takes a free one."""
    host, colon, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not (host and colon and port.isascii() and port.isdigit() and int(port) < 65536):
        raise InvalidSetting(f"health is HOST:PORT, such as 127.0.0.1:9464, not {text!r}")
    return host, int(port)
