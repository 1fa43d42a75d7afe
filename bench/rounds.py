"""Interleaved rounds: the systems in turn, the order rotating; ratios inside one round only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeVar

T = TypeVar("T")
U = TypeVar("U")


def rotated(things: Sequence[T], number: int) -> list[T]:
    """The same things, another one first in every round."""
    turn = number % len(things) if things else 0
    return [*things[turn:], *things[:turn]]


def interleaved(cases: Sequence[tuple[U, Sequence[T]]], rounds: int) -> Iterator[tuple[int, U, T]]:
    """Each round runs every case with every system of it, once; who begins changes."""
    for number in range(rounds):
        for case, systems in rotated(cases, number):
            for system in rotated(systems, number):
                yield number, case, system


class Ratio(NamedTuple):
    """How many times as much as the other: the best round's and the median round's."""

    best: float
    median: float


def ratio(ours: Mapping[str, float], theirs: Mapping[str, float]) -> Ratio | None:
    """Of figures by round; only rounds that have both count."""
    shares = [ours[number] / theirs[number] for number in ours if theirs.get(number)]
    return Ratio(max(shares), median(shares)) if shares else None


class Spread(NamedTuple):
    best: float
    median: float


def spread(figures: Iterable[float], *, most: bool = True) -> Spread | None:
    """Best and median of rounds; the best is the highest, unless less is better."""
    values = [value for value in figures if value]
    if not values:
        return None
    return Spread(max(values) if most else min(values), median(values))
