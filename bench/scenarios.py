"""What is measured: every scenario with its cases, and how one run of it goes.

A case is a set of parameters. All systems that take part in it run in the same rounds. Counts are
what a quick system does in a second or two; the catalogue names the slow ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench.catalog import POSTGRES, SQLITE, System
from bench.measure import PATIENCE, drain, hands, role
from bench.places import Place
from bench.record import Record

Params = Mapping[str, Any]
Run = Callable[[System, Place, Record, Params], None]
BOTH = (SQLITE, POSTGRES)
DURABLE: Params = {"disk": "disk", "durable": True}
LAZY: Params = {"disk": "disk", "durable": False}
MEMORY: Params = {"disk": "memory", "durable": True}


@dataclass(frozen=True)
class Scenario:
    """One question; `short` and `more` are its cases by engine, `more` only in a full run."""

    name: str
    title: str
    run: Run
    short: Mapping[str, Sequence[Params]]
    more: Mapping[str, Sequence[Params]] = field(default_factory=dict)

    def cases(self, engine: str, *, full: bool) -> list[Params]:
        return [*self.short.get(engine, ()), *(self.more.get(engine, ()) if full else ())]


def takes_part(system: System, scenario: Scenario, params: Params) -> bool:
    """Whether a system has what a case asks for."""
    return (
        scenario.name in system.scenarios
        and (params.get("durable", True) or system.durable is not True)
        and (params.get("workers", 1) == 1 or system.workers)
        and (params.get("threads", 1) == 1 or system.threads)
        and (params.get("handler", "sync") == "sync" or "handlers" in system.scenarios)
    )


def counted(system: System, scenario: Scenario, params: Params) -> dict[str, Any]:
    """The case as this system runs it: its own settings, and no more jobs than it can do."""
    most = system.most.get(scenario.name)
    count = params.get("count", 0)
    return {**system.settings, **params, "count": min(count, most) if most else count}


# ---- how a run goes


def enqueue(system: System, place: Place, record: Record, params: Params) -> None:
    store("enqueue", system, place, record, params)


def bulk(system: System, place: Place, record: Record, params: Params) -> None:
    store("bulk", system, place, record, params)


def store(name: str, system: System, place: Place, record: Record, params: Params) -> None:
    """The role prepares everything, waits to be looked at, and then takes its own time."""
    with hands(system, 1, {**params, "place": place.address}, name) as (hand,):
        log, server = place.log(), place.server_cpu()
        hand.go()
        said = hand.said(PATIENCE)
        if log is not None:
            record.written = (place.log() or 0) - log
        else:
            record.written = said.get("written")
        if server is not None:
            record.server_cpu = (place.server_cpu() or 0.0) - server
    record.count, record.seconds, record.cpu = said["count"], said["seconds"], said["cpu"]


def fill_and_drain(system: System, place: Place, record: Record, params: Params) -> None:
    role(system, "fill", {**params, "count": 0, "place": place.address})
    before = place.size()
    role(system, "fill", {**params, "place": place.address})
    drain(system, place, record, params)
    record.size = place.size() - before


# ---- the list


def each(cases: Sequence[Params], **more: Any) -> list[Params]:
    return [{**case, **more} for case in cases]


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "enqueue",
        "Enqueue one by one",
        enqueue,
        {
            SQLITE: [
                {**DURABLE, "threads": 1, "count": 1000},
                {**DURABLE, "threads": 8, "count": 2000},
                {**MEMORY, "threads": 1, "count": 4000},
            ],
            POSTGRES: [
                {**DURABLE, "threads": 1, "count": 1000},
                {**DURABLE, "threads": 8, "count": 2000},
            ],
        },
        {
            SQLITE: [
                {**LAZY, "threads": 1, "count": 4000},
                {**LAZY, "threads": 8, "count": 4000},
                {**MEMORY, "threads": 8, "count": 4000},
            ],
            POSTGRES: [{**LAZY, "threads": 1, "count": 2000}],
        },
    ),
    Scenario(
        "bulk",
        "Enqueue in bulk",
        bulk,
        {
            SQLITE: [{**DURABLE, "count": 20_000}],
            POSTGRES: [{**DURABLE, "count": 20_000}],
        },
        {SQLITE: [{**MEMORY, "count": 50_000}], POSTGRES: [{**DURABLE, "count": 100_000}]},
    ),
    Scenario(
        "drain",
        "Drain a backlog of no-ops",
        fill_and_drain,
        {
            SQLITE: [
                {**DURABLE, "count": 20_000},
                {**MEMORY, "count": 20_000},
            ],
            POSTGRES: [{**DURABLE, "count": 20_000}],
        },
        {
            SQLITE: [
                {**LAZY, "count": 50_000},
                *({**DURABLE, "workers": n, "count": 30_000} for n in (2, 4)),
                *({**DURABLE, "handler": kind, "count": 20_000} for kind in ("async", "process")),
            ],
            POSTGRES: [
                *({**DURABLE, "workers": n, "count": 30_000} for n in (2, 4)),
                *({**DURABLE, "handler": kind, "count": 20_000} for kind in ("async", "process")),
            ],
        },
    ),
)
