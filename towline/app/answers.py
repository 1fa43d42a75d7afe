"""What reading answers beside jobs and chains: attempts, workers, pages, counts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar, overload

from msgspec import Struct

from ..model import Outcome, State
from ..naming import serves
from ..records import AttemptRecord, WorkerRecord
from ..store.audit import AuditRecord
from ..times import to_datetime, to_datetime_or_none

T_co = TypeVar("T_co", covariant=True)


class Progress(Struct, frozen=True):
    """How far a running attempt says it is."""

    fraction: float | None
    text: str | None


def progress_of(fraction: float | None, text: str | None) -> Progress | None:
    return None if fraction is None and text is None else Progress(fraction, text)


class AttemptInfo(Struct, frozen=True):
    """One run of a job; the running one has no outcome yet, an end without a run no start.

    `error_type`: the class of what was raised, with its module, such as `builtins.ValueError`.
    """

    job_id: int
    number: int
    outcome: Outcome | None
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    error: str | None
    error_type: str | None
    progress: Progress | None
    ended_by: str | None

    @classmethod
    def of(cls, record: AttemptRecord) -> AttemptInfo:
        return cls(
            record.job_id,
            record.number,
            record.outcome,
            record.worker,
            to_datetime_or_none(record.started_at),
            to_datetime_or_none(record.ended_at),
            record.error,
            record.error_type,
            progress_of(record.progress, record.progress_text),
            record.ended_by,
        )


class WorkerInfo(Struct, frozen=True):
    """A registered worker: its lease, and the jobs it holds, running or claimed ahead.

    `birth` tells its process from a later one with the same pid, where the system says.
    """

    id: int
    name: str
    host: str
    pid: int
    version: str
    queues: tuple[str, ...]
    concurrency: int
    started_at: datetime
    seen_at: datetime
    lease_until: datetime
    running: tuple[int, ...]
    birth: str | None

    @property
    def busy(self) -> int:
        """How many of its slots are: what it has claimed ahead waits for one."""
        return min(len(self.running), self.concurrency)

    def serves(self, queue: str) -> bool:
        """Whether it takes jobs of this queue."""
        return serves(self.queues, queue)

    @classmethod
    def of(cls, record: WorkerRecord, running: Iterable[int]) -> WorkerInfo:
        fields = record._asdict()
        del fields["declares"]  # a hash, for workers
        for time in ("started_at", "seen_at", "lease_until"):
            fields[time] = to_datetime(fields[time])
        fields["queues"] = tuple(json.loads(record.queues))
        return cls(**fields, running=tuple(running))


def living(workers: Iterable[WorkerInfo], now: datetime) -> list[WorkerInfo]:
    """Those whose lease runs: one that was killed is still registered for a while."""
    return [worker for worker in workers if worker.lease_until > now]


class AuditLine(Struct, frozen=True):
    """What somebody did, and to how many jobs or chains.

    An action on many has one for each page of jobs that it changed, with what it was about in
    `chosen`; the line of each of those jobs has no number.
    """

    at: datetime
    by: str
    action: str
    job_id: int | None
    queue: str | None
    number: int | None
    chosen: dict[str, Any] | None

    @classmethod
    def of(cls, record: AuditRecord) -> AuditLine:
        return cls(
            to_datetime(record.at),
            record.done_by,
            record.action,
            record.job_id,
            record.queue,
            record.number,
            None if record.chosen is None else json.loads(record.chosen),
        )


class Page(Sequence[T_co]):
    """Some of a list; `cursor` asks for what follows, None when that was all.

    A page may be shorter than its limit and still have a cursor: one page looks at a bounded
    number of rows.
    """

    __slots__ = ("_items", "cursor")

    def __init__(self, items: Sequence[T_co], cursor: str | None) -> None:
        self._items = items
        self.cursor = cursor

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return self._items[index]

    def _repr_html_(self) -> str:
        from .tables import table_of

        return table_of(self._items, more=self.cursor is not None)

    def __repr__(self) -> str:
        return f"<page {list(self._items)!r}, cursor {self.cursor!r}>"


class AtLeast(int):
    """A count that stopped counting: there are this many or more."""

    def __str__(self) -> str:
        return f"{int(self)}+"

    __repr__ = __str__


def plain_counts(found: dict[str, dict[State, tuple[int, bool]]]) -> dict[str, dict[str, int]]:
    """Counts by plain words, without what there is none of."""
    plain: dict[str, dict[str, int]] = {}
    for queue, states in sorted(found.items()):
        for state, (number, more) in states.items():
            if number:
                plain.setdefault(queue, {})[str(state)] = AtLeast(number) if more else number
    return plain
