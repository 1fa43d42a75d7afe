"""Tables of a run."""

from __future__ import annotations

from bench.record import Record


def show(records: list[Record]) -> None:
    pass
