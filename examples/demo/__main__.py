"""`python -m examples.demo`: the demo by itself, and its worker processes."""

from __future__ import annotations

import argparse
import sys

from . import main


def run(arguments: list[str]) -> int:
    if arguments[:1] == ["worker"]:
        from .crew import work

        return work(*arguments[1:])
    parser = argparse.ArgumentParser(prog="towline demo", description="Towline in one minute.")
    parser.add_argument("--seconds", type=float, default=5.0, help="how long many jobs are run")
    parser.add_argument("--json", action="store_true", help="print one JSON document only")
    parser.add_argument("--url", help="a database to use; default: a throw-away SQLite file")
    parser.add_argument(
        "--keep", action="store_true", help="leave the demo's tables at --url there"
    )
    return main(**vars(parser.parse_args(arguments)))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
