"""The blockers of a job that has too many of them to come with its claim: read a page at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, overload

from ..records import BlockerRecord

if TYPE_CHECKING:
    from ..runner import Runner

PAGE = 500


class BlockerPages(Sequence[BlockerRecord]):
    """All of them, of which one page is in memory. They have ended, so none changes meanwhile."""

    def __init__(self, runner: Runner, job_id: int, total: int) -> None:
        self._runner = runner
        self._job_id = job_id
        self._total = total
        self._first = 0
        self._page: list[BlockerRecord] = []

    def __len__(self) -> int:
        return self._total

    @overload
    def __getitem__(self, key: int) -> BlockerRecord: ...
    @overload
    def __getitem__(self, key: slice) -> Sequence[BlockerRecord]: ...
    def __getitem__(self, key: int | slice) -> BlockerRecord | Sequence[BlockerRecord]:
        if isinstance(key, slice):
            return [self[position] for position in range(*key.indices(self._total))]
        position = range(self._total)[key]  # from the end, and IndexError, as for any sequence
        if not 0 <= position - self._first < len(self._page):
            self._first = position - position % PAGE
            op = self._runner.store.members(self._job_id, self._first, PAGE)
            self._page = self._runner.run(op)
        return self._page[position - self._first]

    async def all(self) -> list[BlockerRecord]:
        """Every one, read without blocking the event loop."""
        found: list[BlockerRecord] = []
        while len(found) < self._total:
            op = self._runner.store.members(self._job_id, len(found), PAGE)
            page = await self._runner.arun(op)
            if not page:  # by the hand of somebody else
                break
            found += page
        return found
