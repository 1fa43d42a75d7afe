"""What `map` has stored and not given out yet: bounded, in the order of its input."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ..errors import InvalidSetting, NotFound, WaitTimeout
from ..model import ChainState
from ..naming import check_patience
from ..records import BlockerRecord, Enqueued
from .group import output_of

if TYPE_CHECKING:
    from ..task import Call
    from .reading import Reading

WAITING = 4  # times as many as may be open are kept, ended behind one that has not


class Window:
    """The chains of one `map`, from their call to their output."""

    def __init__(
        self, app: Reading, calls: Iterable[Call[Any]], in_flight: int, timeout: float | None
    ) -> None:
        if isinstance(in_flight, bool) or not isinstance(in_flight, int) or in_flight < 1:
            raise InvalidSetting(f"in_flight is a number from 1, not {in_flight!r}")
        check_patience(timeout)
        self._app = app
        self._calls = iter(calls)
        self._dry = False
        self._error: Exception | None = None  # what the iterator of calls raised
        self._in_flight = in_flight
        self._timeout = timeout
        self._until = None if timeout is None else time.monotonic() + timeout
        self._line: deque[int] = deque()  # chains whose output is still to be given out
        self._uses: Counter[int] = Counter()  # how often: calls of one key are one chain
        self._open: dict[int, None] = {}
        self._ends: dict[int, BlockerRecord] = {}

    @property
    def open(self) -> list[int]:
        return list(self._open)

    @property
    def over(self) -> bool:
        """Whether all is given out; raise what the iterator of calls raised, in its place."""
        if self._line or not self._dry:
            return False
        if self._error is not None:
            raise self._error
        return True

    @property
    def left(self) -> float | None:
        return None if self._until is None else max(self._until - time.monotonic(), 0.0)

    def next_calls(self) -> list[Call[Any]]:
        """As many as there is room for."""
        room = min(
            self._in_flight - len(self._open), WAITING * self._in_flight - len(self._line)
        )  # fmt: skip
        calls: list[Call[Any]] = []
        while len(calls) < room and not self._dry:
            try:
                calls.append(next(self._calls))
            except StopIteration:
                self._dry = True
            except Exception as error:  # what it gave before is not lost
                self._dry, self._error = True, error
        return calls

    def stored(self, answers: Iterable[Enqueued]) -> None:
        for record, _ in answers:
            chain = record.chain_id
            self._line.append(chain)
            self._uses[chain] += 1
            if chain not in self._ends:
                self._open[chain] = None

    def heard(self, asked: list[int], found: list[BlockerRecord]) -> bool:
        """These were asked for, and found so; whether one of them has ended."""
        if len(found) < len(asked):
            gone = {*asked} - {record.chain_id for record in found}
            raise NotFound(
                f"chain {min(gone)} is gone: deleted or pruned while map() waited for it"
            )
        ended = [record for record in found if record.state is not ChainState.OPEN]
        for record in ended:
            self._ends[record.chain_id] = record
            del self._open[record.chain_id]
        return bool(ended)

    def outputs(self) -> Iterator[Any]:
        """Those that can be given out."""
        while self._line and self._line[0] in self._ends:
            chain = self._line.popleft()
            record = self._ends[chain]
            self._uses[chain] -= 1
            if not self._uses[chain]:
                del self._uses[chain], self._ends[chain]
            yield output_of(self._app, record)

    def too_late(self) -> WaitTimeout:
        return WaitTimeout(
            f"map() has not ended within {self._timeout:g} s: {len(self._line)} of the chains that "
            "it stored are left; they go on"
        )
