"""What Towline has set itself, and whether a run shows it. Floors; every ratio inside one round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import Struct
from rich.table import Table as RichTable

from bench.catalog import POSTGRES, SQLITE
from bench.record import Record
from bench.rounds import ratio
from bench.tables import OURS, Group, grouped

LIMIT = "bare loop, 100"


class Goal(Struct, frozen=True, kw_only=True):
    """A figure of Towline in one case: alone, or by that of a peer or of another case."""

    engine: str
    text: str
    scenario: str
    case: str = ""
    figure: str = "rate"
    system: str = OURS  # whose figure it is divided by ...
    base: str | None = None  # ... in which case; None: the same. Both as they are: not divided
    floor: float | None = None
    ceiling: float | None = None
    inverse: bool = False  # less is better: the other's figure by ours


def _goals(engine: str) -> list[Goal]:
    def by(
        scenario: str,
        system: str,
        floor: float,
        case: str = "",
        figure: str = "rate",
        inverse: bool = False,
    ) -> Goal:
        what = "" if figure == "rate" else f" ({figure.replace('_', ' ')})"
        text = f"{scenario}{what}{', ' + case if case else ''}: by {system}"
        return Goal(engine=engine, text=text, scenario=scenario, case=case, system=system,
                    floor=floor, figure=figure, inverse=inverse)  # fmt: skip

    def to(scenario: str, case: str, base: str, floor: float) -> Goal:
        text = f"{scenario}: {case} by {base or 'usual'}"
        return Goal(engine=engine, text=text, scenario=scenario, case=case, base=base, floor=floor)

    def most(scenario: str, figure: str, ceiling: float, case: str = "") -> Goal:
        return Goal(engine=engine, text=f"{scenario}: {figure.replace('_', ' ')}",
                    scenario=scenario, case=case, figure=figure, ceiling=ceiling)  # fmt: skip

    both = [to("drain", "async", "", 0.7), to("drain", "process, 2 slots", "", 0.4)]
    if engine == SQLITE:
        return [
            by("enqueue", LIMIT, 0.5, "RAM disk", figure="cpu", inverse=True),
            by("enqueue", "huey", 1.0),
            by("enqueue", "huey", 1.0, "RAM disk"),
            to("enqueue", "8 threads", "", 4.0),
            by("bulk", LIMIT, 0.6),
            by("drain", LIMIT, 0.35),
            by("drain", "plainjob", 3.0),
            by("drain", "huey", 10.0),
            by("drain", "huey", 3.0, "RAM disk"),
            *both,
            to("drain", "4 workers", "", 0.95),
            most("drain", "longest_wait_ms", 250, "4 workers"),
            most("latency", "p50_ms", 0.8),
            most("latency", "p99_ms", 5.0),
            most("latency", "idle_percent", 0.2),
            to("growth", "all, 100,000 rows", "all, 1,000 rows", 0.9),
            *(
                to("growth", f"{kind}, 1,000,000 rows", f"{kind}, 1,000 rows", 0.9)
                for kind in ("finished", "pending", "scheduled", "blocked")
            ),
            most("import", "median_ms", 50),
        ]
    return [
        by("enqueue", LIMIT, 0.8),
        by("enqueue", "pgqueuer", 1.0),
        to("enqueue", "8 threads", "", 2.5),
        by("bulk", LIMIT, 0.55),
        by("drain", "graphile local", 1.0),
        by("drain", "pgqueuer", 1.6),
        by("drain", "oban", 8.0),
        by("drain", "procrastinate", 30.0),
        *both,
        to("drain", "2 workers", "", 1.2),
        *(
            by("latency", peer, 1.0, figure="p50_ms", inverse=True)
            for peer in ("pgqueuer", "graphile")
        ),
        most("latency", "idle_percent", 0.2),
        to("growth", "all, 100,000 rows", "all, 1,000 rows", 0.9),
        *(
            to("growth", f"{kind}, 1,000,000 rows", f"{kind}, 1,000 rows", 0.9)
            for kind in ("finished", "pending", "scheduled", "blocked")
        ),
        # Not last by first: what else a machine does in a minute is in both cases.
        Goal(engine=engine, text="an old snapshot for 60 s: the end by that without one",
             scenario="snapshot", case="pinned, 60 seconds", base="not pinned, 60 seconds",
             figure="last", floor=0.8),
    ]  # fmt: skip


GOALS = [*_goals(SQLITE), *_goals(POSTGRES)]


class Verdict(Struct, frozen=True):
    goal: Goal
    value: float

    @property
    def reached(self) -> bool:
        floor, ceiling = self.goal.floor, self.goal.ceiling
        return (floor is None or self.value >= floor) and (ceiling is None or self.value <= ceiling)


def judged(records: Sequence[Record]) -> list[Verdict]:
    """Every goal that these records say something about."""
    groups = grouped(records)

    def find(goal: Goal, case: str, system: str) -> Group | None:
        return groups.get((goal.scenario, goal.engine, case), {}).get(system)

    found = []
    for goal in GOALS:
        ours = find(goal, goal.case, OURS)
        if ours is None or not ours.good:
            continue
        if goal.system == OURS and goal.base is None:
            value = ours.median(goal.figure)
        else:
            other = find(goal, goal.case if goal.base is None else goal.base, goal.system)
            if other is None:
                continue
            pair = (ours.by_round(goal.figure), other.by_round(goal.figure))
            share = ratio(*(reversed(pair) if goal.inverse else pair))
            value = share.median if share else None
        if value is not None:
            found.append(Verdict(goal, value))
    return found


def rich(verdicts: Sequence[Verdict]) -> RichTable:
    table = RichTable(title="Goals, by the median of the rounds", title_justify="left")
    for head in ("engine", "figure", "is", "must be", ""):
        table.add_column(head, justify="right" if head in ("is", "must be") else "left")
    for verdict in verdicts:
        goal = verdict.goal
        must: Literal["≥", "≤"] = "≥" if goal.floor is not None else "≤"
        bound = goal.floor if goal.floor is not None else goal.ceiling
        table.add_row(
            goal.engine, goal.text, f"{verdict.value:.2f}", f"{must} {bound:g}",
            "reached" if verdict.reached else "missed", style=None if verdict.reached else "red",
        )  # fmt: skip
    return table
