"""Tables and plots of records: in the terminal, and in docs/explanation/performance.md.

    python -m bench.report bench/.records/20270115-080000.jsonl
    python -m bench.report --docs bench/.records/full.jsonl    # writes the page's tables and plots

The page is written by hand but for what stands between `<!-- table: NAME -->` or
`<!-- plot: NAME -->` and `<!-- end -->`; NAME is the engine and the scenario, as in sqlite-drain.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console

from bench import goals, record
from bench.plots import Bar, bars
from bench.record import Record
from bench.rounds import spread
from bench.scenarios import SCENARIOS
from bench.tables import OURS, Group, Table, grouped, tables

DOCS = Path(__file__).resolve().parents[1] / "docs" / "explanation"
PAGE = DOCS / "performance.md"
PLOTS = DOCS / "performance"
BLOCK = re.compile(r"(<!-- (table|plot): ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
NOTHING = "*Not in the records that this page was last made from.*\n"
ENGINES = {"sqlite": "SQLite", "postgres": "PostgreSQL"}
TITLES = {scenario.name: scenario.title for scenario in SCENARIOS}
# What is drawn: scenario, figure, unit; of the usual case only.
DRAWN = {
    "enqueue": ("rate", "jobs per second"),
    "bulk": ("rate", "jobs per second"),
    "drain": ("rate", "jobs per second"),
    "latency": ("p50_ms", "milliseconds from enqueue to start, p50"),
}


def show(records: Sequence[Record], console: Console | None = None) -> None:
    """Print every table, the goals, and how quiet the machine was."""
    console = console or Console(width=None if sys.stdout.isatty() else 160)
    for table in tables(records):
        console.print(table.rich())
    verdicts = goals.judged(records)
    if verdicts:
        console.print(goals.rich(verdicts))
    console.print(noise(records))


def noise(records: Sequence[Record]) -> str:
    """How different the machine was from run to run."""
    seen = [made.noise for made in records if made.noise]
    if not seen:
        return ""
    loops, syncs = [n.loops for n in seen], [n.syncs for n in seen]
    return (
        f"Beside each run: {min(loops):,.0f} to {max(loops):,.0f} million turns of an empty loop "
        f"per second (median {median(loops):,.0f}), {min(syncs):,.0f} to {max(syncs):,.0f} fsyncs "
        f"per second (median {median(syncs):,.0f}), a load of {min(n.load for n in seen):.1f} to "
        f"{max(n.load for n in seen):.1f}."
    )


def draw(records: Sequence[Record]) -> dict[str, str]:
    """The plots by name."""
    made = {}
    for (scenario, engine, case), systems in grouped(records).items():
        if case or scenario not in DRAWN:
            continue
        figure, unit = DRAWN[scenario]
        rows = []
        for name, group in systems.items():
            found = spread(group.by_round(figure).values(), most=figure == "rate")
            if found:
                rows.append(Bar(name, found.median, kind(name)))
        rows.sort(key=lambda row: row.value, reverse=figure == "rate")
        title = (
            f"{engine.replace('sqlite', 'SQLite').replace('postgres', 'PostgreSQL')}: {scenario}"
        )
        if svg := bars(title, unit, rows):
            made[f"{engine}-{scenario}"] = svg
    return made


def kind(system: str) -> str:
    if system == OURS:
        return "ours"
    return "limit" if system.startswith("bare") else "peer"


def write_docs(records: Sequence[Record], page: Path = PAGE, plots: Path = PLOTS) -> None:
    """Put the tables and plots into the page; what is between them stays as it is written."""
    plots.mkdir(parents=True, exist_ok=True)
    drawn = draw(records)
    for name, svg in drawn.items():
        (plots / f"{name}.svg").write_text(svg)
    page.write_text(filled(page.read_text(), tables(records), set(drawn), records))


def filled(
    text: str, made: Sequence[Table], drawn: set[str], records: Sequence[Record] = ()
) -> str:
    by_name = {table.name: table.markdown() for table in made}
    by_name["noise"] = noise(records) + "\n"
    by_name["systems"] = systems_table(records)

    def fill(found: re.Match[str]) -> str:
        opening, what, name, closing = found.groups()
        if what == "plot":
            inside = f"![{name}](performance/{name}.svg)\n" if name in drawn else ""
        else:
            inside = by_name.get(name) or NOTHING
        return f"{opening}\n{inside}\n{closing}"

    return BLOCK.sub(fill, text)


def systems_table(records: Sequence[Record]) -> str:
    """What was measured, in which version, with which settings."""
    rows = ["| engine | system | version | settings | durable |", "|---|---|---|---|---|"]
    seen: dict[tuple[str, str], Group] = {}
    for made in records:
        seen.setdefault((made.engine, made.system), Group([])).records.append(made)
    for (engine, system), group in seen.items():
        first = group.first
        settings = ", ".join(f"{name} {value}" for name, value in first.settings.items())
        durable = "no" if all(r.durable is False for r in group.records) else "yes"
        if not group.good:
            settings = first.error or "no figures"
        rows.append(f"| {engine} | {system} | {first.version} | {settings} | {durable} |")
    return "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description="Show records.")
    parser.add_argument("files", type=Path, nargs="+", help="files of JSON lines")
    parser.add_argument(
        "--docs", action="store_true", help=f"write {PAGE.relative_to(DOCS.parents[1])}"
    )
    options = parser.parse_args()
    records = list(record.read(options.files))
    show(records)
    if options.docs:
        write_docs(records)


if __name__ == "__main__":
    main()
