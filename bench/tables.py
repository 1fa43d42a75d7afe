"""Tables of records: pure functions, for the terminal and for the documentation alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from msgspec import Struct
from rich.table import Table as RichTable

from bench.record import Record, label
from bench.rounds import Ratio, ratio, spread
from bench.scenarios import SCENARIOS

OURS = "towline"
USUAL: dict[str, Any] = {
    "threads": 1,
    "workers": 1,
    "handler": "sync",
    "looked": False,
    "pinned": False,
}


class Table(Struct):
    """Rows of text under a title."""

    engine: str
    scenario: str
    title: str
    head: list[str]
    rows: list[list[str]]

    @property
    def name(self) -> str:
        return f"{self.engine}-{self.scenario}".replace(" ", "-")

    def markdown(self) -> str:
        lines = [
            "| " + " | ".join(self.head) + " |",
            "|" + "|".join("---" if n < 2 else "--:" for n in range(len(self.head))) + "|",
        ]
        return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in self.rows)]) + "\n"

    def rich(self) -> RichTable:
        table = RichTable(title=f"{self.title} ({self.engine})", title_justify="left")
        for number, head in enumerate(self.head):
            table.add_column(head, justify="left" if number < 2 else "right")
        for row in self.rows:
            table.add_row(*row, style="bold" if OURS in row else None)
        return table


class Group(Struct):
    """All rounds of one system in one case."""

    records: list[Record]

    @property
    def first(self) -> Record:
        return self.records[0]

    @property
    def good(self) -> list[Record]:
        return [record for record in self.records if not record.error]

    def by_round(self, figure: str = "rate") -> dict[str, float]:
        """A figure by round; the rate of a system, or one of its scenario's own figures."""
        found = {}
        for record in self.good:
            value = record.rate if figure == "rate" else record.figures.get(figure)
            if figure == "cpu":
                value = record.cpu / record.count if record.cpu and record.count else None
            if value is not None:
                found[f"{record.run} {record.round}"] = value
        return found

    def median(self, figure: str) -> float | None:
        values = list(self.by_round(figure).values())
        return median(values) if values else None

    def each(self, what: str) -> float | None:
        """A total of the record, for each job; the median of the rounds."""
        values = [
            value / record.count
            for record in self.good
            if (value := getattr(record, what)) is not None and record.count
        ]
        return median(values) if values else None

    def memory(self) -> float | None:
        values = [record.memory for record in self.good if record.memory]
        return max(values) if values else None


Groups = dict[tuple[str, str, str], dict[str, Group]]


def grouped(records: Iterable[Record]) -> Groups:
    """By scenario, engine and case, then by system; as they came."""
    found: Groups = {}
    for record in records:
        key = (record.scenario, record.engine, label(record.parameters))
        systems = found.setdefault(key, {})
        systems.setdefault(record.system, Group([])).records.append(record)
    return found


def base_of(groups: Groups, group: Group) -> Group | None:
    """The same system in the usual case that this one differs from; None if this is one."""
    first = group.first
    usual = {name: USUAL.get(name, value) for name, value in first.parameters.items()}
    usual.pop("concurrency", None)
    if "rows" in usual:
        usual["rows"] = min(
            other.first.parameters["rows"]
            for (scenario, engine, _), systems in groups.items()
            for other in systems.values()
            if (scenario, engine) == (first.scenario, first.engine)
            and other.first.parameters.get("kind") == first.parameters.get("kind")
        )
    if label(usual) == label(first.parameters):
        return None
    return groups.get((first.scenario, first.engine, label(usual)), {}).get(first.system)


def tables(records: Sequence[Record]) -> list[Table]:
    """A table for each scenario and engine, in the order of the suite."""
    groups = grouped(records)
    titles = {scenario.name: scenario.title for scenario in SCENARIOS}
    made = []
    for name, title in titles.items():
        for engine in dict.fromkeys(engine for _, engine, _ in groups):
            cases = {
                case: systems
                for (scenario, at, case), systems in groups.items()
                if (scenario, at) == (name, engine)
            }
            if cases:
                head, rows = _rows(groups, cases)
                made.append(Table(engine, name, title, head, rows))
    return made


def _rows(groups: Groups, cases: dict[str, dict[str, Group]]) -> tuple[list[str], list[list[str]]]:
    everything = [group for systems in cases.values() for group in systems.values()]
    figures = list(dict.fromkeys(f for g in everything for r in g.good for f in r.figures))
    rated = any(record.rate for group in everything for record in group.good)
    has_base = any(base_of(groups, group) is not None for group in everything)
    on_server = any(r.server_cpu is not None for g in everything for r in g.good)
    head = ["case", "system"]
    if any(record.size for group in everything for record in group.good):
        head += ["bytes written", "bytes kept"]  # how fast it was filled is said elsewhere
    elif rated:
        head += ["jobs/s, best", "median", "towline ÷ it", "CPU µs"]
        head += ["server µs"] if on_server else []
        head += ["bytes written"]
    head += ["÷ usual case"] if has_base else []
    head += [figure.replace("_", " ") for figure in figures]
    if any(group.memory() for group in everything):
        head.append("MB")
    rows = []
    for case, systems in cases.items():
        ours = systems.get(OURS)
        for name, group in sorted(systems.items(), key=lambda item: -(_best(item[1]) or 0)):
            cells: dict[str, str] = {}
            if group.good:
                cells = _cells(groups, group, ours, figures)
            row = [case or "usual", _name(name, group)]
            row += [cells.get(column, "") for column in head[2:]]
            if not group.good:
                row[2 if len(row) > 2 else 1] = group.first.error or "no figures"
            rows.append(row)
    return head, rows


def _cells(
    groups: Groups, group: Group, ours: Group | None, figures: Sequence[str]
) -> dict[str, str]:
    rates = spread(group.by_round().values())
    share = None
    if ours is not None and group.first.system != OURS:
        share = ratio(ours.by_round(), group.by_round())
    base = base_of(groups, group)
    to_usual = None if base is None else ratio(group.by_round(), base.by_round())
    size = group.each("size")
    return {
        "jobs/s, best": whole(rates.best) if rates else "",
        "median": whole(rates.median) if rates else "",
        "towline ÷ it": times(share),
        "CPU µs": micros(group.each("cpu")),
        "server µs": micros(group.each("server_cpu")),
        "bytes written": whole(group.each("written")),
        "÷ usual case": times(to_usual),
        "bytes kept": whole(size),
        "MB": whole(group.memory()),
        **{figure.replace("_", " "): short(group.median(figure)) for figure in figures},
    }


def _best(group: Group) -> float | None:
    rates = spread(group.by_round().values())
    return rates.best if rates else None


def _name(name: str, group: Group) -> str:
    """With a mark for what is not durable and a warning for what did not run exactly once."""
    first = group.first
    said = name
    if first.durable is False and first.parameters.get("durable", True):
        said += " (not durable)"
    if any(not record.whole for record in group.good):
        said += " (NOT exactly once)"
    return said


def whole(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def micros(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1e6:,.1f}"


def short(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def times(share: Ratio | None) -> str:
    """The median of the rounds, the best behind it."""
    return "" if share is None else f"{share.median:.2f} ({share.best:.2f})"
