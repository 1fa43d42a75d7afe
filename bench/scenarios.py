"""What is measured: every scenario with its cases.

A case is a set of parameters. All cases of a scenario, with all systems that take part, run in the
same rounds. Counts are what a quick system does in a second or two; the catalogue names the slow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import runs
from bench.catalog import POSTGRES, SQLITE, System
from bench.places import Place
from bench.record import Record

Params = Mapping[str, Any]
Run = Callable[[System, Place, Record, Params], None]
DISK: Params = {"disk": "disk", "durable": True}
LAZY: Params = {"disk": "disk", "durable": False}
MEMORY: Params = {"disk": "memory", "durable": True}
KINDS = ("finished", "pending", "scheduled", "blocked")


@dataclass(frozen=True)
class Scenario:
    """One question; `short` and `more` are its cases by engine, `more` only in a full run."""

    name: str
    title: str
    run: Run
    short: Mapping[str, Sequence[Params]]
    more: Mapping[str, Sequence[Params]] = field(default_factory=dict)
    instead: bool = False  # the cases of a full run take the place of the short ones
    rounds: int = 2  # of a short run; what looks for a trend inside a run needs no more than one

    def cases(self, engine: str, *, full: bool) -> list[Params]:
        short, more = self.short.get(engine, ()), self.more.get(engine, ())
        if not full:
            return list(short)
        every = [case for case in short if not case.get("ours")]  # `more` has those with all
        return list(more) if self.instead else [*every, *more]


def takes_part(system: System, scenario: Scenario, params: Params) -> bool:
    """Whether a system has what a case asks for."""
    return (
        scenario.name in system.scenarios
        and (not params.get("ours") or system.peer is None)
        and (not params.get("quick") or system.settings.get("poll", 0) <= 1)
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


def both(*cases: Params) -> dict[str, Sequence[Params]]:
    return {SQLITE: cases, POSTGRES: cases}


def beside(rows: Sequence[int], kinds: Sequence[str]) -> list[Params]:
    return [{**DISK, "kind": kind, "rows": n, "count": 20_000} for kind in kinds for n in rows]


SCENARIOS: tuple[Scenario, ...] = (
    Scenario(
        "enqueue",
        "Enqueue one by one",
        runs.enqueue,
        {
            SQLITE: [
                {**DISK, "threads": 1, "count": 1000},
                {**DISK, "threads": 8, "count": 2000, "ours": True},
                {**MEMORY, "threads": 1, "count": 4000},
            ],
            POSTGRES: [
                {**DISK, "threads": 1, "count": 1000},
                {**DISK, "threads": 8, "count": 2000, "ours": True},
            ],
        },
        {
            SQLITE: [
                {**DISK, "threads": 8, "count": 2000},
                {**LAZY, "threads": 1, "count": 4000},
                {**LAZY, "threads": 8, "count": 4000},
                {**MEMORY, "threads": 8, "count": 4000},
            ],
            POSTGRES: [
                {**DISK, "threads": 8, "count": 2000},
                {**LAZY, "threads": 1, "count": 2000},
                {**LAZY, "threads": 8, "count": 4000},
            ],
        },
    ),
    Scenario(
        "bulk",
        "Enqueue in bulk",
        runs.bulk,
        both({**DISK, "count": 20_000}),
        {SQLITE: [{**MEMORY, "count": 50_000}]},
    ),
    Scenario(
        "drain",
        "Drain a backlog of no-ops",
        runs.fill_and_drain,
        {
            SQLITE: [
                {**DISK, "count": 20_000},
                {**MEMORY, "count": 20_000},
                {**DISK, "handler": "async", "count": 10_000},
                {**DISK, "handler": "process", "concurrency": 2, "count": 10_000},
            ],
            POSTGRES: [
                {**DISK, "count": 20_000},
                {**DISK, "handler": "async", "count": 10_000},
                {**DISK, "handler": "process", "concurrency": 2, "count": 10_000},
            ],
        },
        {
            SQLITE: [
                {**LAZY, "count": 20_000},
                *({**DISK, "workers": n, "count": 30_000} for n in (2, 4)),
                *({**MEMORY, "workers": n, "count": 30_000} for n in (2, 4)),
            ],
            POSTGRES: [{**DISK, "workers": n, "count": 30_000} for n in (2, 4)],
        },
    ),
    Scenario(
        "flows",
        "Chains and fan-in",
        runs.fill_and_drain,
        both(
            {**DISK, "kind": "chains", "count": 10_000},
            {**DISK, "kind": "fan-in", "count": 10_100},
        ),
        rounds=1,
    ),
    Scenario(
        "latency",
        "From enqueue to start, and an idle worker",
        runs.latency,
        both({**DISK, "silence": 2, "count": 30, "quick": True}),
        both({**DISK, "silence": 20, "count": 400}),
        instead=True,
        rounds=1,
    ),
    Scenario("import", "Import", runs.imported, {SQLITE: [{"times": 10}]}, rounds=1),
    Scenario(
        "growth",
        "Drain beside many rows",
        runs.drain_beside_rows,
        both(*beside((1_000, 100_000), ("all",))),
        both(*beside((1_000, 100_000, 1_000_000), KINDS)),
        instead=True,
        rounds=1,
    ),
    Scenario(
        "snapshot",
        "Drain under an old snapshot",
        runs.drain_under_a_snapshot,
        {POSTGRES: [{**DISK, "pinned": pinned, "seconds": 6} for pinned in (False, True)]},
        {POSTGRES: [{**DISK, "pinned": pinned, "seconds": 60} for pinned in (False, True)]},
        instead=True,
        rounds=1,
    ),
    Scenario(
        "looked at",
        "Drain while it is looked at",
        runs.drain_while_looked_at,
        both(*({**DISK, "looked": looked, "count": 20_000} for looked in (False, True))),
        rounds=1,
    ),
    Scenario(
        "size",
        "What 100,000 finished jobs take",
        runs.grow,
        {},
        both({**DISK, "count": 100_000}),
        rounds=1,
    ),
)
