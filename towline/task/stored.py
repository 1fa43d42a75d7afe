"""What handles and contexts show as it is in the record behind them."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Generic, Never, TypeVar, cast

V = TypeVar("V")


class Stored(Generic[V]):
    """A read-only attribute: the one of the same name in `_record`."""

    def __set_name__(self, _: type, name: str) -> None:
        self._read = attrgetter(f"_record.{name}")

    def __get__(self, shown: Any, _: type) -> V:
        return cast(V, self if shown is None else self._read(shown))

    def __set__(self, shown: Any, _: Never) -> None:
        raise AttributeError(f"{shown!r} cannot be changed")
