"""Deeds with limits, lanes, lines and schedules, and what programs leave out where the engine may
choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.kit import MINUTE
from tests.model.program import Plan
from tests.model.strategies import QUEUES, TASKS, Draft
from towline.model import Policy

PLAIN, LANED = QUEUES
"""Lanes take turns as their engine likes, so no number of the whole queue chooses between them: the
queue that has lanes has limits of lanes, the other has its own."""
ROOM = 100  # for all jobs of a program, however they are spread
PER = 5 * MINUTE


class FlowDeeds:
    """A part of the machine."""

    @property
    def depth(self) -> int:
        raise NotImplementedError

    def take(self, verb: str, *told: Any) -> None:
        raise NotImplementedError

    def move(self, seconds: int) -> None:
        raise NotImplementedError

    def enqueue(self, drafts: list[Draft]) -> None:
        raise NotImplementedError

    def begin_flow(self, limited: bool) -> None:
        self.limited = limited
        self.rates: dict[tuple[str, str | None], int | None] = {}

    def room(self, drawn: int) -> int:
        return ROOM if self.limited else drawn

    @property
    def gated(self) -> tuple[str, ...]:
        return QUEUES if self.limited else ()

    def allowed(self, draft: Draft) -> Draft:
        """As a caller may say it: one that goes behind its key's holder does not fail with it."""
        if self.limited and draft.lane:
            draft = replace(draft, queue=LANED)
        if draft.on_conflict not in ("after", "latest"):
            return draft
        policy = Policy.RUN if draft.policy is Policy.FAIL else draft.policy
        after = () if draft.on_conflict == "latest" else draft.after
        return replace(draft, scope=("open", None), policy=policy, after=after)

    def lane_of(self, draft: Draft) -> str | None:
        return draft.lane if self.limited else None

    def set_limit(self, lane: str | None, concurrency: int | None, rate: int | None) -> None:
        """A rate is there from the beginning or not at all: what began before it is forgotten, and
        how soon is nobody's promise. A lane of its own may not have another one than each."""
        if not self.limited:
            return
        queue = PLAIN if lane is None else LANED
        if lane == "x":
            rate = self.rates.setdefault((queue, "*"), None)
            if rate is not None:
                return
        rate = self.rates.setdefault((queue, lane), rate)
        self.take("set_limit", queue, lane, concurrency, rate, PER)

    def line_up(self, drafts: list[Draft], how: list[str]) -> None:
        """Calls of one key, one after the other."""
        for draft, on_conflict in zip(drafts, how, strict=False):
            self.enqueue([replace(draft, task="a", key="k", on_conflict=on_conflict, after=())])

    def set_schedule(self, plan: Plan) -> None:
        if not self.depth:
            self.take("set_schedule", plan)

    def of_schedule(self, verb: str, name: str) -> None:
        told = ("ann",) if verb == "pause" else ()
        if not self.depth:
            self.take(f"{verb}_schedule", name, *told)

    def fire(self, seconds: int) -> None:
        """Workers fire, outside of callers' transactions, some time later."""
        if not self.depth:
            self.move(seconds)
            self.take("fire", TASKS)
