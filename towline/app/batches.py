"""Enqueueing: calls as a batch of new jobs, checked for this app. Groups and `map` build theirs
here, too."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from ..errors import InvalidTask
from ..records import Enqueued, NewJob
from ..task import Call, batch
from .handles import Job
from .limits import Limits

log = logging.getLogger("towline")


class Batches(Limits):
    """What stores calls."""

    def __init__(self) -> None:
        super().__init__()
        self._elsewhere: set[str] = set()  # names of tasks that other code has
        self._queues: set[str] = set()  # of its tasks, and those that were mentioned

    def enqueue_many(self, calls: Iterable[Call[Any]], *, on: object = None) -> list[Job[Any]]:
        """Store many calls in one transaction; jobs come back in the order given.

        A call in the `after=` of another is stored with it: a whole graph at once.
        """
        calls = list(calls)
        jobs = self._new_jobs(calls, on)
        answers = self._stored(jobs, on)
        return [Job(self, answer.record, answer.created) for answer in islice(answers, len(calls))]

    async def aenqueue_many(
        self, calls: Iterable[Call[Any]], *, on: object = None
    ) -> list[Job[Any]]:
        calls = list(calls)
        jobs = self._new_jobs(calls, on)
        answers = await self._astored(jobs, on)
        return [Job(self, answer.record, answer.created) for answer in islice(answers, len(calls))]

    def _stored(self, jobs: list[NewJob], on: object = None) -> Sequence[Enqueued]:
        if self.tracing is None:
            return self.runner.run(self.runner.store.enqueue(jobs), on)
        with self.tracing.enqueuing(jobs) as told:
            answers = self.runner.run(self.runner.store.enqueue(jobs), on)
            told.stored(answers)
            return answers

    async def _astored(self, jobs: list[NewJob], on: object = None) -> Sequence[Enqueued]:
        if self.tracing is None:
            return await self.runner.arun(self.runner.store.enqueue(jobs), on)
        with self.tracing.enqueuing(jobs) as told:
            answers = await self.runner.arun(self.runner.store.enqueue(jobs), on)
            told.stored(answers)
            return answers

    def _new_jobs(self, calls: Sequence[Call[Any]], on: object) -> list[NewJob]:
        """The calls in their order, and behind them what only their `after=` names."""
        jobs = [calls[0].new_job(())] if _is_plain(calls, on) else batch.new_jobs(calls, on)
        for job in jobs:
            if job.task not in self.registry and job.task not in self._elsewhere:
                raise InvalidTask(f"task {job.task} belongs to another app; enqueue it there")
            if job.queue not in self._queues:
                self._mention(job.queue)
            if job.weight is not None:
                self.refuse_too_heavy(job)
        return jobs

    def _mention(self, queue: str) -> None:
        """Say once that a queue is no task's own: a worker serves those of its tasks."""
        self._queues.add(queue)
        log.warning(
            "no task of this app declares queue %r; a worker serves it only with queues=[…]", queue
        )


def _is_plain(calls: Sequence[Call[Any]], on: object) -> bool:
    """One call that waits for nothing: no batch."""
    if len(calls) != 1 or not isinstance(calls[0], Call):
        return False
    options = calls[0].options
    return options.after is None and (options.on is None or options.on is on)
