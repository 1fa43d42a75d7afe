"""Waiting for several chains at once, blocking and awaiting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import aclosing, closing
from typing import Any, Literal, TypeVar

from ..errors import InvalidSetting, NotFound, WaitTimeout
from ..model import ChainState
from ..operation import Op, Steps
from ..records import ChainRecord
from ..store import read
from ..store.ground import chunks
from ..wakes.waiting import stood_still
from .handles import Job
from .reading import Reading

T = TypeVar("T")
ReturnWhen = Literal["all", "first"]


class Waits(Reading):
    """What one waits for."""

    def wait(
        self, jobs: Iterable[Job[T]], *, timeout: float | None = None,
        return_when: ReturnWhen = "all", on: object = None,
    ) -> list[Job[T]]:  # fmt: skip
        """Wait until the chains of all these jobs have ended, however they did, or the first of
        them has; return those that have, in their order. Raises WaitTimeout, and NotFound for one
        that is gone."""
        wanted = _wanted(jobs, return_when)
        with closing(self.runner.waiting.looks(timeout)) as looks:
            for _ in looks:
                ended = self.runner.run(self._look(wanted), on)
                if _is_enough(ended, wanted, return_when):
                    return ended
        raise _too_late(wanted, timeout, stood_still(timeout, "await app.await_(…)"))

    # The twin of `wait` would be called as Python calls its own word.
    async def await_(
        self, jobs: Iterable[Job[T]], *, timeout: float | None = None,
        return_when: ReturnWhen = "all", on: object = None,
    ) -> list[Job[T]]:  # fmt: skip
        wanted = _wanted(jobs, return_when)
        async with aclosing(self.runner.waiting.alooks(timeout)) as looks:
            async for _ in looks:
                ended = await self.runner.arun(self._look(wanted), on)
                if _is_enough(ended, wanted, return_when):
                    return ended
        raise _too_late(wanted, timeout)

    def _look(self, jobs: Sequence[Job[T]]) -> Op[list[Job[T]]]:
        """Those whose chains have ended."""

        def steps() -> Steps[list[Job[T]]]:
            found: dict[int, ChainRecord] = {}
            for part in chunks(sorted({job.chain_id for job in jobs})):
                for chain in (yield from read.chain_records(self._store, part)):
                    found[chain.id] = chain
            for job in jobs:
                # After a rollback the id may be another chain's, which is younger.
                if job.chain_id not in found or _is_younger(found[job.chain_id], job):
                    raise NotFound(f"there is no chain {job.chain_id}")
            return [job for job in jobs if found[job.chain_id].state is not ChainState.OPEN]

        return Op("wait", steps, reads=True)


def _wanted(jobs: Iterable[Job[T]], return_when: str) -> list[Job[T]]:
    if return_when not in ("all", "first"):
        raise InvalidSetting(f'return_when is "all" or "first", not {return_when!r}')
    wanted = list(jobs)
    for job in wanted:
        if not isinstance(job, Job):
            raise InvalidSetting(f"wait() takes jobs as enqueue() gives them, not {job!r}")
    if not wanted and return_when == "first":
        raise InvalidSetting("of no jobs none can be the first to end")
    return wanted


def _is_younger(chain: ChainRecord, job: Job[Any]) -> bool:
    """Than a job of it can be."""
    created_at = job.record.created_at
    return chain.created_at > created_at or (job.id == chain.id and chain.created_at != created_at)


def _is_enough(ended: Sequence[Job[T]], wanted: Sequence[Job[T]], return_when: str) -> bool:
    return len(ended) == len(wanted) or (return_when == "first" and bool(ended))


def _too_late(wanted: Sequence[Job[T]], timeout: float | None, hint: str = "") -> WaitTimeout:
    return WaitTimeout(
        f"not all of {len(wanted)} chains have ended within {timeout:g} s; they go on{hint}"
    )
