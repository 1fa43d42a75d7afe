"""Answers of the model that leave the engine a choice: each is equal to every right one."""

from __future__ import annotations


class OneOf(frozenset[str]):
    """Equal to any of its members: where several answers are right, the engine chooses."""

    def __eq__(self, other: object) -> bool:
        return other in self if isinstance(other, str) else super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = frozenset.__hash__

    def __repr__(self) -> str:
        return " or ".join(map(repr, sorted(self)))


class Some:
    """Equal to any number above 0: that there is work counts, not how much."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and other > 0

    __hash__ = None  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]


class Whatever:
    """Equal to whatever is found."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]


class Look:
    """Equal to a look that shows this; one that found work need not know when more comes: the turn
    that follows learns it."""

    def __init__(self, found: object, parked: bool, due: object) -> None:
        self.shown = found, parked, due

    def __eq__(self, other: object) -> bool:
        if isinstance(other, tuple) and isinstance(other[0], int) and other[0] > 0:
            return self.shown[:2] == other[:2]
        return self.shown == other

    def __repr__(self) -> str:
        return repr(self.shown)

    __hash__ = None  # type: ignore[assignment] # pyright: ignore[reportAssignmentType]


class NoLater(int):
    """Equal to any earlier time: a look too early does no harm."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, int) and other <= int(self)

    __hash__ = int.__hash__
