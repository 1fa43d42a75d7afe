"""Metrics for Prometheus: two collectors, of this process and of the database, in a registry."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Any

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.exposition import choose_encoder

from ...errors import InvalidSetting
from ...version import VERSION
from . import catalogue
from .cluster import ClusterMetrics
from .families import described, numbers
from .process import ProcessMetrics

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

    from ...app import Towline

_of: weakref.WeakKeyDictionary[Towline, weakref.ref[Metrics]] = weakref.WeakKeyDictionary()

# How many share those that nobody of the application's made: only these are ours to close.
_users: weakref.WeakKeyDictionary[Metrics, int] = weakref.WeakKeyDictionary()
_sharing = threading.Lock()


class Metrics:
    """Metrics of an app in a registry, the client's default one unless another is given.

    `process`: what this process enqueues and runs. `cluster`: what the database knows of all
    workers; in one process of an installation, or a sum counts it several times.
    """

    def __init__(
        self,
        app: Towline,
        *,
        registry: CollectorRegistry | None = None,
        process: bool = True,
        cluster: bool = False,
    ) -> None:
        if not process and not cluster:
            raise InvalidSetting("Metrics of neither the process nor the cluster are none")
        self._app = app
        self.registry: CollectorRegistry = REGISTRY if registry is None else registry
        self._process = ProcessMetrics(app) if process else None
        self._collectors: list[Any] = [Build(self, app)]
        if self._process is not None:
            self._collectors.append(self._process)
        self._cluster = ClusterMetrics(app) if cluster else None
        if self._cluster is not None:
            self._collectors.append(self._cluster)
        self._register()
        if self._process is not None:
            self._process.begin()
        _of[app] = weakref.ref(self)

    def _register(self) -> None:
        done: list[Any] = []
        try:
            for collector in self._collectors:
                self.registry.register(collector)
                done.append(collector)
        except ValueError:
            for collector in done:
                self.registry.unregister(collector)
            raise InvalidSetting(
                "this registry has metrics of Towline already: one app for a registry, "
                "Metrics(app, registry=CollectorRegistry()) for another"
            ) from None

    def close(self) -> None:
        """Take them out of the registry, and count no more."""
        if made_by(self._app) is self:
            del _of[self._app]
        for collector in self._collectors:
            self.registry.unregister(collector)
        self._collectors.clear()
        if self._process is not None:
            self._process.end()

    def sees_database(self) -> bool:
        """Whether the database answers, to those of the cluster."""
        return self._cluster is not None and self._cluster.cluster.look() is not None

    def page(self, accept: str = "") -> tuple[bytes, str]:
        """All of the registry as a text, and of which kind: as the header Accept prefers it."""
        encode, kind = choose_encoder(accept)
        return encode(self.registry), kind


class Build:
    """A collector of one number that says which version runs, on which engine."""

    def __init__(self, metrics: Metrics, app: Towline) -> None:
        self.metrics = metrics  # they live as long as they are in a registry
        self._app = app

    def describe(self) -> list[Family]:
        return described([catalogue.BUILD])

    def collect(self) -> list[Family]:
        engine = self._app.url.partition(":")[0].replace("postgresql", "postgres")
        return [numbers(catalogue.BUILD, {(VERSION, engine): 1})]


def made_by(app: Towline) -> Metrics | None:
    kept = _of.get(app)
    return None if kept is None else kept()


def metrics_of(app: Towline) -> Metrics:
    """Those that the application has made; or else ours, which all share who ask for them: each is
    to let go of them."""
    with _sharing:
        found = made_by(app)
        if found is None:
            found = _new(app)
            _users[found] = 0
        if found in _users:
            _users[found] += 1
        return found


def let_go_of(metrics: Metrics) -> None:
    """The last who does closes them, if they are ours."""
    with _sharing:
        if metrics not in _users:
            return
        _users[metrics] -= 1
        if not _users[metrics]:
            del _users[metrics]
            metrics.close()


def _new(app: Towline) -> Metrics:
    """In the default registry, with what else is there, unless another app has its place."""
    try:
        return Metrics(app)
    except InvalidSetting:
        return Metrics(app, registry=CollectorRegistry())
