"""Every system that is measured: its adapter, its environment, and how it is run at its best."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bench import peers
from bench.peers import Peer
from towline.version import VERSION

SQLITE, POSTGRES = "sqlite", "postgres"

ALL = frozenset({"enqueue", "bulk", "drain", "latency"})
NO_BULK = ALL - {"bulk"}
NO_WORKER = frozenset({"enqueue", "drain"})
OURS = ALL | {"handlers", "flows", "growth", "snapshot", "looked at", "import", "size"}
LIMIT = frozenset({"drain"})


@dataclass(frozen=True)
class System:
    """One line of a table."""

    name: str
    engine: str
    adapter: str
    peer: Peer | None  # None: it runs in the environment of the suite
    scenarios: frozenset[str]
    settings: Mapping[str, Any] = field(default_factory=dict)  # what its adapter is told
    durable: bool | None = True  # None: as the scenario asks
    most: Mapping[str, int] = field(default_factory=dict)  # jobs, where it is slow
    workers: bool = True  # may several processes work on one database?
    threads: bool = True  # may several threads enqueue?
    note: str = ""

    @property
    def version(self) -> str:
        return self.peer.version if self.peer else VERSION

    def command(self) -> list[str]:
        """What runs its adapter; raises peers.Missing."""
        if self.peer is None:
            return [sys.executable, "-P", str(peers.SYSTEMS / self.adapter)]
        return peers.command(self.peer, self.adapter)


def _limits(engine: str) -> list[System]:
    """The bare loops; the one of batch 100 stands for enqueueing and bulk as well."""
    adapter = f"{engine}_limit.py"
    found = [
        System(f"bare loop, {batch}", engine, adapter, None, LIMIT, {"batch": batch}, None,
               most={"drain": 1_000 * batch}, workers=False)
        for batch in (1, 10)
    ]  # fmt: skip
    scenarios = LIMIT | {"enqueue", "bulk"}
    return [
        *found,
        System(
            "bare loop, 100", engine, adapter, None, scenarios, {"batch": 100}, None,
            workers=False, threads=engine == POSTGRES,
        ),
    ]  # fmt: skip


SYSTEMS: tuple[System, ...] = (
    System("towline", SQLITE, "towline.py", None, OURS, {"concurrency": 8}, None),
    *_limits(SQLITE),
    System("huey", SQLITE, "huey.py", peers.HUEY, NO_BULK, {"concurrency": 4},
           most={"drain": 5_000}),
    System("gigq", SQLITE, "gigq.py", peers.GIGQ, NO_BULK, {"poll": 5},
           most={"drain": 1_500, "latency": 10}),
    System("litequeue", SQLITE, "litequeue.py", peers.LITEQUEUE, NO_WORKER, durable=False,
           most={"drain": 2_000}, threads=False, note="no worker of its own: a loop of ours"),
    System("persist-queue", SQLITE, "persistqueue.py", peers.PERSISTQUEUE, NO_WORKER,
           most={"drain": 1_000, "enqueue": 500}, workers=False,
           note="no worker of its own: a loop of ours"),
    System("plainjob", SQLITE, "plainjob.mjs", peers.PLAINJOB, ALL | {"size"},
           {"poll": 1}, durable=False, most={"latency": 8}, threads=False, note="node"),
    System("towline", POSTGRES, "towline.py", None, OURS, {"concurrency": 8}, None),
    *_limits(POSTGRES),
    System("pgqueuer", POSTGRES, "pgqueuer.py", peers.PGQUEUER, ALL | {"size"}, {"batch": 100}),
    System("graphile local", POSTGRES, "graphile.mjs", peers.GRAPHILE, ALL,
           {"concurrency": 24, "local": 500}, note="node; its local queue of 500"),
    System("graphile", POSTGRES, "graphile.mjs", peers.GRAPHILE, ALL - {"enqueue", "bulk"},
           {"concurrency": 10}, most={"drain": 3_000}, note="node"),
    System("procrastinate", POSTGRES, "procrastinate.py", peers.PROCRASTINATE, ALL,
           {"concurrency": 10}, most={"drain": 500, "enqueue": 500, "bulk": 10_000}),
    System("oban", POSTGRES, "oban.py", peers.OBAN, ALL, {"concurrency": 50},
           most={"drain": 3_000, "bulk": 3_000}, note="Python 3.12"),
    System("pg-boss", POSTGRES, "pgboss.mjs", peers.PGBOSS, ALL, {"batch": 1000, "poll": 0.5},
           most={"drain": 6_000, "latency": 12}, note="node"),
    System("chancy", POSTGRES, "chancy.py", peers.CHANCY, ALL, {"concurrency": 100},
           most={"drain": 2_000, "enqueue": 500, "bulk": 3_000}),
    System("absurd", POSTGRES, "absurd.py", peers.ABSURD, NO_BULK, {"batch": 100, "poll": 0.25},
           most={"drain": 600, "enqueue": 500, "latency": 15}),
    System("dbos", POSTGRES, "dbos.py", peers.DBOS, NO_BULK, {"concurrency": 100, "poll": 0.05},
           most={"drain": 300, "enqueue": 300, "latency": 40}),
)  # fmt: skip


def find(engine: str, names: list[str] | None = None) -> list[System]:
    return [s for s in SYSTEMS if s.engine == engine and (not names or s.name in names)]
