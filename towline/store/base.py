"""What every part of the store shares: the engine's statements and the clock."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from ..operation import Steps
from ..sql import Queries

T = TypeVar("T")
Clock = Callable[[], int]
FOREVER = 2**62  # later than any time in microseconds
CHUNK = 1000  # rows per statement
PORTION = 4 * 1024 * 1024  # characters of payload per statement, which may take six bytes each

_quick = msgspec.json.Encoder().encode
_escaped = json.JSONEncoder(separators=(",", ":")).encode  # dumps() would make one each time


def host_clock() -> int:
    return time.time_ns() // 1000


class Base:
    """Statements and clock. Only portable scalars go into a statement."""

    def __init__(self, sql: Queries, clock: Clock = host_clock) -> None:
        self.sql = sql
        self.clock = clock

    def now(self) -> Steps[int]:
        """The time that decides, in microseconds. SQLite has one host, so its clock; another
        engine asks its database."""
        return self.clock()
        yield  # a generator, so that an engine may ask its database instead

    def new_ids(self, number: int) -> Steps[Sequence[int]]:
        """Ids for new jobs, growing; the writer lock keeps them ours until the commit."""
        ((first,),) = yield self.sql.next_job_id()
        return range(int_of(first), int_of(first) + number)

    def begin(self, number: int) -> Steps[tuple[int, Sequence[int]]]:
        """The time, and ids for that many new jobs."""
        now = yield from self.now()
        return now, (yield from self.new_ids(number))


def chunks(rows: Sequence[T]) -> Iterator[Sequence[T]]:
    """As many rows at a time as one statement may have."""
    if len(rows) <= CHUNK:
        return iter([rows] if rows else [])
    return (rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK))


def portions(rows: Sequence[T], size: Callable[[T], int]) -> Iterator[Sequence[T]]:
    """As many rows at a time as one statement may have: in number, and in characters of what
    `size` counts, since each goes through several copies on its way."""
    for part in chunks(rows):
        if sum(map(size, part)) <= PORTION:
            yield part
            continue
        start = room = 0
        for number, row in enumerate(part):
            room += size(row)
            if room > PORTION and number > start:
                yield part[start:number]
                start, room = number, size(row)
        yield part[start:]


def as_json(values: Iterable[object]) -> str:
    """One parameter for many values, in ASCII: a caller's connection may speak another encoding."""
    listed = list(values)
    try:
        quick = _quick(listed)
    except UnicodeEncodeError:
        return _escaped(listed)
    return quick.decode() if quick.isascii() else _escaped(listed)


def int_of(value: object) -> int:
    """A column that is an integer by schema."""
    assert isinstance(value, int)
    return value
