"""The two speeds of the suite.

`make test` runs every kind of test, and of random search one short run each, always the same.
`make proof`, before a release, runs everything on everything, long and from new seeds; it sets
TOWLINE_PROOF to the seed it draws, and `make proof SEED=…` runs one again.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar
from zlib import crc32

if TYPE_CHECKING:
    import pytest

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


def drawn(name: str, of: int) -> bool:
    """Whether `make test` takes the case of this name: one of so many, always the same. A proof
    takes them all."""
    return PROOF or crc32(name.encode()) % of == 0


def engines_of(metafunc: pytest.Metafunc, engines: Sequence[str]) -> Sequence[str]:
    """The engines of a test: all in a proof, or where what it is about differs between them
    (`each_engine`); else `make test` runs it on one, always the same, drawn by its name."""
    test = metafunc.definition
    if PROOF or test.get_closest_marker("each_engine"):
        return engines
    return [engines[crc32(test.name.encode()) % len(engines)]]
