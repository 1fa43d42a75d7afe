"""The two speeds of the suite.

`make test` runs every kind of test, and of random search one short run each, always the same.
`make proof`, before a release, runs everything on everything, long and from new seeds; it sets
TOWLINE_PROOF to the seed it draws, and `make proof SEED=…` runs one again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

T = TypeVar("T")

VARIABLE = "TOWLINE_PROOF"
SEED = int(os.environ.get(VARIABLE) or 0)
PROOF = SEED > 0


def by_speed(test: T, proof: T) -> T:
    """What `make test` takes, or what `make proof` does."""
    return proof if PROOF else test


def seed(number: int) -> int:
    """The seed of a random search: this one, or in a proof a new one."""
    return SEED + number if PROOF else number


def one_of(engines: Sequence[str], test: str) -> Sequence[str]:
    """For a test whose subject is the same on every engine: in `make test` it runs on one of them,
    always the same, drawn by its name; in a proof on all."""
    return engines if PROOF else [engines[crc32(test.encode()) % len(engines)]]
