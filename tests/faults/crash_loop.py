"""The crash loop: a process kills itself before and after every statement of every operation.

    python -m tests.faults.crash_loop --engine sqlite
    python -m tests.faults.crash_loop --engine postgres --only finish

The n-th statement of an act, for n = 1, 2, … until the act ends by itself. After each kill clean
workers in a fresh process run to quiet, at once and without help: the process is provably gone.
Then the audit over tables and event log. Exit code 1 on any finding.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults import event_log
from tests.faults.audit import Audit, judge
from tests.faults.crash_acts import ACTS, EVERY_THREAD
from tests.faults.crash_point import When
from tests.faults.fresh import Place, heal, perform, places, run
from tests.races.auditor import is_sqlite, open_reader
from tests.races.logs import Finding
from towline.sql import SERVER_TABLES, TABLES

WHENS: tuple[When, ...] = ("before", "after")


@dataclass
class Loop:
    """What the loop did and found."""

    points: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    audit: Audit = field(default_factory=Audit)

    @property
    def unwritten(self) -> int:
        """How many endings the killed may have had in their hands: one each, or two where a worker
        of two slots was killed."""
        return sum(
            number * (2 if name in EVERY_THREAD else 1) for name, number in self.points.items()
        )

    @property
    def kills(self) -> int:
        return self.points.total()


# ---- the loop


def crash_everywhere(
    place: Place, names: Sequence[str], *, most: int | None = None, step: int = 1
) -> Loop:
    """Every point of these acts, or every `step`-th and at most `most` of each."""
    loop = Loop()
    for name in names:
        number = 1
        while most is None or number <= most:
            over = False
            for when in WHENS:
                at = f"{name}, {when} statement {number}"
                if name == "migrate":
                    empty(place)
                code = run(perform, place, name, number, when)
                if code == -signal.SIGKILL:
                    loop.points[name] += 1
                elif code:
                    loop.findings.append(Finding("act", f"{at}: exit code {code}"))
                over = over or code != -signal.SIGKILL
                loop.findings += look(place, at, loop)
            if over:
                break
            number += step
    return loop


def look(place: Place, at: str, loop: Loop) -> Iterator[Finding]:
    """Let clean workers come, and judge."""
    code = run(heal, place)
    if code:
        yield Finding("healing", f"{at}: clean workers ended with exit code {code}")
    with closing(open_reader(place.url)) as reader:
        loop.audit = judge(reader, place.folder, loop.unwritten)
    for finding in loop.audit.findings:
        yield Finding(finding.kind, f"{at}: {finding.text}")


def empty(place: Place) -> None:
    """Take all of our tables away; begin a new event log."""
    (place.folder / event_log.NAME).unlink(missing_ok=True)
    with closing(open_reader(place.url)) as reader:
        execute = reader.execute
        execute("DELETE FROM mine")
        for view in ("jobs", "attempts", "chains"):
            execute(f"DROP VIEW IF EXISTS towline_{view}")
        for table in TABLES + SERVER_TABLES:
            execute(f"DROP TABLE IF EXISTS towline_{table}")
        if not is_sqlite(reader):
            execute("DROP SEQUENCE IF EXISTS towline_job_ids")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--engine", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--only", default="", help="acts whose name contains this")
    chosen = parser.parse_args(arguments)
    names = [name for name in ACTS if chosen.only in name]
    points = findings = 0
    print(f"{chosen.engine}: killed before and after every statement")
    for name in names:
        with tempfile.TemporaryDirectory(prefix="crash-") as folder:
            with places(chosen.engine, Path(folder)) as place:
                began = time.monotonic()
                loop = crash_everywhere(place, [name])
        points += loop.kills
        findings += len(loop.findings)
        took = time.monotonic() - began
        print(f"  {name:42}{loop.kills:>5} kills {took:>6.0f} s  {loop.audit.line()}")
        for finding in loop.findings[:10]:
            print(f"    {finding.kind}: {finding.text}")
        sys.stdout.flush()
    print(f"{chosen.engine}: {points} kill points in {len(names)} operations, {findings} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
