"""Rules of the line of a key: who goes behind whom, and who closes up when one leaves (Y2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from tests.model.program import New
from tests.model.tables import Chain, Edge, Job, Key, Tables, is_bad
from towline.errors import BlockerError
from towline.model import ChainState, Live, Policy

LINED_UP = ("after", "latest")


class Lining:
    """A part of storing."""

    tables: Tables
    seen: Counter[str]

    @property
    def now(self) -> int:
        raise NotImplementedError

    def _lined_up(self, chain: str, stored: dict[str, New], new: New) -> New:
        """Y2: behind the chain that has the key while that is open, or has failed and is to be
        waited for; the key is the last one's."""
        self.tables.keys[new.task, new.key or ""] = Key(new.name, self.now)
        before = None if chain in stored else self.tables.chains[chain]
        if before is None or before.state is ChainState.OPEN:
            self.seen["lined up behind its batch" if before is None else "lined up"] += 1
        elif is_bad(before) and new.policy is Policy.WAIT:
            self.seen["lined up behind a failed chain"] += 1
        else:
            return new
        return replace(new, line=chain)

    def _before(self, job: Job) -> Chain | None:
        """The open chain before a job that waits in its line."""
        if job.state is not Live.BLOCKED:
            return None
        chains = (self.tables.chains[edge.chain] for edge in job.after if edge.in_line)
        return next((chain for chain in chains if chain.state is ChainState.OPEN), None)

    def _next_in_line(self, chain: str) -> list[Job]:
        edges = ((job, edge) for job in self.tables.by_age() for edge in job.after)
        return [job for job, edge in edges if edge.chain == chain and edge.in_line]

    def _close_up(self, job: Job, before: Chain) -> None:
        """Y2: one leaves its line while it waits; who was behind it waits for the one before it,
        and if nobody was, that one has the key again."""
        for behind in self._next_in_line(job.chain):
            if behind.state is not Live.BLOCKED:
                continue
            places = {edge.chain: edge.position for edge in behind.after}
            moved = Edge(before.name, places[job.chain], None, True)
            kept = [edge for edge in behind.after if edge.chain != job.chain]
            if places[job.chain] >= 0 or before.name in places:  # it waits for both anyway
                self.seen["closed up, and waits for both"] += 1
                was = next(edge for edge in behind.after if edge.chain == job.chain)
                kept.append(was._replace(in_line=False))
                if before.name in places:
                    kept = [e._replace(in_line=e.in_line or e.chain == before.name) for e in kept]
                else:
                    behind.given += 1
                    kept.append(moved._replace(position=min(0, *places.values()) - 1))
            else:
                self.seen["closed up"] += 1
                kept.append(moved)
            behind.after = sorted(kept, key=lambda edge: edge.position)
        key = self.tables.keys.get((self.tables.jobs[before.name].new.task, job.key or ""))
        if key is not None and key.chain == job.chain:
            self.seen["key given back in its line"] += 1
            key.chain, key.created_at, key.ended = before.name, before.created_at, False


def blockers_first(news: Sequence[New]) -> list[New]:
    """A batch in the order it is stored: as given, but whatever waits comes after what it waits
    for, and who goes behind others of its key, or replaces them, after the one before it. A circle
    is refused (B5)."""
    batch = {new.name: new for new in news}
    needs = {new.name: {chain for chain, _ in new.after if chain in batch} for new in news}
    same: dict[tuple[str, str], list[New]] = {}
    for new in news:
        if new.key is not None:
            same.setdefault((new.task, new.key), []).append(new)
    for alike in same.values():
        if not {"replace", *LINED_UP} & {new.on_conflict for new in alike}:
            continue
        first = alike[0].name
        for before, new in pairwise(alike):
            needs[new.name].add(before.name)
            if new.on_conflict == "after":
                first = new.name
            elif new.on_conflict == "replace":  # they may wait for the same soon
                needs[first] |= {chain for chain, _ in new.after if chain in batch}
    order = [new for new in news if not needs[new.name]]
    for done in order:
        for new in news:
            if done.name in needs[new.name]:
                needs[new.name].discard(done.name)
                if not needs[new.name]:
                    order.append(new)
    if len(order) < len(news):
        raise BlockerError("a circle")
    return order
