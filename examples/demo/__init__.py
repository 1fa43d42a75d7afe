"""The demo: the product in one minute, on real worker processes, and checked at the end.

`main` plays the acts on a throw-away SQLite file, or on the database of a URL in tables of its own,
then compares what was asked for with what the database holds. Exit 0 only if all of it adds up.
"""

from __future__ import annotations

import json as json_
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from towline.exit_codes import FAILED, INTERRUPTED, OK


def main(
    seconds: float = 5.0, json: bool = False, url: str | None = None, keep: bool = False
) -> int:
    """Play the demo and return its exit code: 0 when every promise held, else 1.

    `seconds` is how long the crowd of small jobs is fed. `json` prints one document for machines
    and nothing else. The tables in the database of a URL are dropped at the end, unless `keep` or
    something did not hold.
    """
    from .screen import Screen

    screen = Screen(quiet=json)
    with tempfile.TemporaryDirectory(prefix="towline-demo-") as folder:
        try:
            place = url or f"sqlite:///{folder}/demo.db"
            keep = keep or url is None  # a throw-away file goes as a whole
            report = _play(place, Path(folder), seconds, screen, keep)
        except KeyboardInterrupt:
            screen.line("stopped", mark="bad")
            return INTERRUPTED
    if json:
        json_.dump(report, sys.stdout, indent=2)
        print()
    return OK if report["ok"] else FAILED


def _play(url: str, folder: Path, seconds: float, screen: Any, keep: bool) -> dict[str, Any]:
    from .acts import Acts
    from .crew import Crew
    from .ledger import Check, Ledger
    from .shop import app, engine

    began = time.monotonic()
    app.use(url)
    app.migrate()
    ledger = Ledger(app.url)
    ledger.begin()
    crew = Crew(app.url, folder)
    acts = Acts(crew, screen, ledger)
    problem = None
    try:
        screen.title("Towline demo", f"on {engine()}, with two worker processes")
        crew.start("worker-1", "worker-2")
        acts.chain()
        acts.fan_in()
        acts.rollback()
        job = acts.kill()
        acts.crowd(seconds)
        acts.takeover(job)
    except Exception as error:  # whatever it is, the demo did not hold
        problem = f"{type(error).__name__}: {error}"
        screen.line(problem, mark="bad")
        screen.line(crew.last_words())
    finally:
        codes = crew.stop()
    checks = ledger.check(acts.figures)
    checks.append(Check("workers stopped in order", [0, 0], codes, codes == [0, 0]))
    app.close()
    figures = acts.figures
    ok = problem is None and all(check.ok for check in checks)
    if ok and not keep:
        ledger.clear()
    ledger.close()
    return _told(screen, {
        "ok": ok,
        "problem": problem,
        "engine": engine(),
        "seconds": round(time.monotonic() - began, 2),
        "jobs": figures.jobs,
        "chains": figures.enqueued,
        "retries": figures.retries,
        "taken_over": figures.killed,
        "lost": figures.jobs - int(str(checks[1].found)),
        "rate": round(figures.crowd / figures.crowd_seconds) if figures.crowd_seconds else 0,
        "checks": [check.as_dict() for check in checks],
    })  # fmt: skip


def _told(screen: Any, report: dict[str, Any]) -> dict[str, Any]:
    """Show the end, then give it back."""
    screen.act("Checked with plain SQL")
    for check in report["checks"]:
        text = check["name"]
        if not check["ok"]:
            text += f": {check['found']} and not {check['expected']}"
        elif isinstance(check["found"], int) and check["found"]:
            text += f": {check['found']:,}"
        screen.line(text, mark="good" if check["ok"] else "bad")
    verdict = "everything adds up" if report["ok"] else "NOT as promised"
    screen.summary(
        f"{report['jobs']:,} jobs · {report['chains']:,} chains · {report['retries']} retry · "
        f"{report['taken_over']} taken over · lost {report['lost']}",
        f"{verdict}, {report['seconds']:.0f} s",
        report["ok"],
    )
    return report
