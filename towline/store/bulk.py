"""Control by filter: the same operations, for every job that fits, a page at a time."""

from __future__ import annotations

from typing import NamedTuple

from ..errors import DuplicateKey, InvalidState, NotFound
from ..model import JobRecord, State
from ..operation import Steps, operation
from .listing import JobFilter
from .retention import Retention


class Touched(NamedTuple):
    """How many jobs a page touched, or would; the cursor for the next one."""

    number: int
    cursor: int | None


class Bulk(Retention):
    """Operations on many jobs."""

    @operation()
    def bulk(
        self, action: str, filter: JobFilter, preview: bool, cursor: int | None, limit: int,
        by: str | None = None,
    ) -> Steps[Touched]:  # fmt: skip
        """Cancel or retry the jobs of one page that can be; with preview, only count them."""
        found = yield from self.jobs(filter, limit, cursor)
        number = 0
        for record in found.records:
            if action == "cancel" and record.state.open:
                number += preview or (yield from self._cancelled(record, by))
            elif action == "retry" and record.state in (State.FAILED, State.CANCELLED):
                number += preview or (yield from self._retried(record))
        return Touched(number, found.cursor)

    def _cancelled(self, record: JobRecord, by: str | None) -> Steps[bool]:
        """Cancel a job; one that has just ended, maybe by the cancelling of another, or was
        deleted is passed over."""
        try:
            yield from self.cancel(record.id, None, by)
        except (InvalidState, NotFound):
            return False
        return True

    def _retried(self, record: JobRecord) -> Steps[bool]:
        """Retry a job; one that cannot be, because of its blocker or its key or since it was just
        deleted, is passed over."""
        try:
            yield from self.retry(record.id)
        except (InvalidState, DuplicateKey, NotFound):
            return False
        return True
