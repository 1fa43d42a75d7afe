"""Run the suite: `python -m bench`. Each run is a line of JSON, shown as it comes."""

from __future__ import annotations

import argparse
import sys
import time
from contextlib import ExitStack
from pathlib import Path

from bench import catalog, places, record
from bench.catalog import POSTGRES, SQLITE, System
from bench.measure import Failed
from bench.peers import Missing
from bench.places import Places, in_memory
from bench.record import Record
from bench.report import show
from bench.rounds import interleaved
from bench.scenarios import SCENARIOS, Params, Scenario, counted, takes_part
from bench.servers import MissingServer, run_folder, usual_server

HIDDEN = ("count", "ours", "quick")  # a system has its own count, and who took part shows
STARTED = record.now()
RECORDS = Path(__file__).resolve().parent / ".records"


def main() -> int:
    options = parse()
    out: Path = options.out or RECORDS / f"{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    taken: list[Record] = []
    begun = time.monotonic()
    try:
        for engine in options.engine or (SQLITE, POSTGRES):
            with ExitStack() as stack:
                try:
                    server = stack.enter_context(usual_server()) if engine == POSTGRES else None
                except MissingServer as error:
                    print(f"postgres is left out: {error}", file=sys.stderr)
                    continue
                # A server's files lie where temporary files do: there the noise is looked at.
                disk = options.disk if server is None else run_folder()
                if in_memory(disk):
                    print(f"{disk} is in memory: nothing on it is durable", file=sys.stderr)
                measure(engine, Places(disk, server), options, out, taken)
    except KeyboardInterrupt:
        print("stopped; what was measured is kept", file=sys.stderr)
    show(taken)
    took = time.monotonic() - begun
    print(f"\n{len(taken)} runs in {took / 60:.1f} minutes, recorded in {out}")
    return 1 if any(r.twice or r.lost or r.left for r in taken) else 0


def parse() -> argparse.Namespace:
    names = [scenario.name for scenario in SCENARIOS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--engine", choices=(SQLITE, POSTGRES), action="extend", nargs="+")
    parser.add_argument("--scenario", choices=names, action="extend", nargs="+", metavar="NAME",
                        help=f"of {', '.join(names)}")  # fmt: skip
    parser.add_argument("--system", action="extend", nargs="+", metavar="NAME",
                        help="such as towline, huey")  # fmt: skip
    parser.add_argument("--rounds", type=int, help="two or one, or five with --full")
    parser.add_argument("--full", action="store_true", help="every case, more rounds")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where the records are added")
    parser.add_argument("--disk", type=Path, default=places.DISK, metavar="FOLDER",
                        help="a folder on the disk to measure SQLite on")  # fmt: skip
    options = parser.parse_args()
    known = {system.name for system in catalog.SYSTEMS}
    if unknown := set(options.system or ()) - known:
        parser.error(f"no system {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    return options


def measure(
    engine: str, where: Places, options: argparse.Namespace, out: Path, taken: list[Record]
) -> None:
    missing: dict[str, str] = {}
    for scenario in SCENARIOS:
        if options.scenario and scenario.name not in options.scenario:
            continue
        found = catalog.find(engine, options.system)
        cases = [
            (params, [system for system in found if takes_part(system, scenario, params)])
            for params in scenario.cases(engine, full=options.full)
        ]
        rounds = options.rounds or (5 if options.full else scenario.rounds)
        for number, params, system in interleaved(cases, rounds):
            if system.name in missing and number:
                continue  # said once for each case
            made = run(scenario, params, system, where, number, missing)
            record.append(out, made)
            taken.append(made)
            print(line(made), file=sys.stderr, flush=True)


def run(
    scenario: Scenario,
    params: Params,
    system: System,
    where: Places,
    number: int,
    missing: dict[str, str],
) -> Record:
    """One system once, on a database of its own."""
    durable = bool(params.get("durable", True)) if system.durable is None else system.durable
    durable = durable and not in_memory(where.disk)
    made = Record(
        scenario=scenario.name,
        engine=system.engine,
        system=system.name,
        version=system.version,
        parameters={name: value for name, value in params.items() if name not in HIDDEN},
        settings=dict(system.settings),
        durable=durable,
        run=STARTED,
        round=number,
        when=record.now(),
    )
    if system.name in missing:
        made.error = missing[system.name]
        return made
    try:
        with where.new(params.get("disk", "disk")) as place:
            made.noise = record.noise(place.folder)
            scenario.run(system, place, made, counted(system, scenario, params))
    except Missing as error:
        made.error = missing[system.name] = f"missing: {error}"
    except Failed as error:
        made.error = f"failed: {error}"
    except Exception as error:  # the others shall still run
        made.error = f"failed: {type(error).__name__}: {error}"
    return made


def line(made: Record) -> str:
    name = f"{made.engine:8} {made.scenario:10} {record.label(made.parameters):30}"
    name += f" {made.system:20} "
    if made.error:
        return name + made.error
    said = f"{made.rate:>9,.0f}/s" if made.count else ""
    if made.cpu is not None and made.count:
        said += f"  {made.cpu / made.count * 1e6:7.1f} µs CPU"
    if made.server_cpu is not None and made.count:
        said += f" + {made.server_cpu / made.count * 1e6:.1f}"
    if made.ran is not None:
        said += f"  ran {made.ran} twice {made.twice} lost {made.lost} left {made.left}"
    said += "".join(f"  {key} {value:.2f}" for key, value in made.figures.items())
    return name + said


if __name__ == "__main__":
    sys.exit(main())
