"""An exhaustive interleaver: operations meet on connections of their own, in every order.

A baton is passed at each statement, BEGIN and COMMIT among them, and every schedule is run from the
same tables. A statement that waits for a lock hands the baton on. Two neighbouring steps of
different sides that cannot notice each other (`footprint`) are not also run the other way round: of
schedules that differ in nothing else one is run (the "sleep sets" of model checkers). After each
schedule the tables are audited, and the meeting says what else it expects.

A caller who sees an old state of the database may be refused. Then it must be as if he had not been
there, and once he has done as he was told, that is, once more and without his level, as the meeting
expects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from tests.races.footprint import Footprint, Marks
from tests.races.scratch_database import ScratchDatabase
from tests.races.stepped import SteppedOperation, Style
from towline.errors import TowlineError
from towline.operation import Op, Steps
from towline.store import Store, read
from towline.store.finish import Finished
from towline.store.lease import Renewed
from towline.store.turn import Turn

G = TypeVar("G")

LIMIT = 20_000  # schedules of one meeting
NAMES = "ABC"
# Operations of a worker and its upkeep: they never wait for a row that somebody else holds.
PUMP = frozenset({
    "turn", "finish", "claim", "promote", "renew", "progress", "park", "unpark", "sweep", "prune",
})  # fmt: skip


@dataclass(frozen=True)
class Met(Generic[G]):
    """A schedule has ended: what was there before, and each side's answer, a value or an error."""

    store: Store
    given: G
    answers: Sequence[Any]
    stage: ScratchDatabase

    def states(self, *ids: int) -> list[str]:
        """Where these jobs stand; one that is not there is left out."""

        def steps() -> Steps[list[str]]:
            return [str(record.state) for record in (yield from read.records(self.store, ids))]

        return self.stage.look(Op("states", steps, reads=True))


@dataclass(frozen=True)
class Meeting(Generic[G]):
    """Operations that meet, after some preparation; `expect` names what is wrong afterwards."""

    prepare: Callable[[Store], Steps[G]]
    operations: Callable[[Store, G], Sequence[Op[Any]]]
    expect: Callable[[Met[G]], Iterable[str]]


@dataclass
class Report:
    """What was run and found; `ends` counts what schedules ended with."""

    schedules: int = 0
    cut: int = 0  # begun, and then known to lead to nothing new
    waits: int = 0
    deadlocks: int = 0
    refused: int = 0  # callers who saw an old state
    longest: int = 0
    findings: list[str] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        return (
            f"{self.schedules} schedules of up to {self.longest} steps ({self.cut} cut short), "
            f"{len(self.ends)} ends, {self.waits} waits, {self.deadlocks} deadlocks, "
            f"{self.refused} refused, {len(self.findings)} findings"
        )


@dataclass
class Node:
    """A point where the baton is passed: who could have it, and what came of those who had."""

    ready: list[int]
    asleep: dict[int, Footprint]
    tried: dict[int, Footprint] = field(default_factory=dict)
    choice: int = -1
    label: str | None = None

    def untried(self) -> list[int]:
        return [n for n in self.ready if n not in self.asleep and n not in self.tried]


class Interleaver:
    """A database on which operations meet, and connections for them."""

    def __init__(self, url: str, sides: int = 2) -> None:
        self._stage = ScratchDatabase(url)
        self._all = [SteppedOperation(f"side {NAMES[n]}", url) for n in range(sides)]
        self._stage.sides = [side.pid for side in self._all]
        self._sides = self._all
        self._marks: Marks = {}  # as they are now, where known
        self._without: dict[int, set[str]] = {}  # side → ends that owe it nothing

    def close(self) -> None:
        for side in self._all:
            side.close()
        self._stage.close()

    def explore(
        self,
        store: Store,
        meeting: Meeting[G],
        styles: Sequence[Style],
        *,
        reduce: bool = True,
        enough: int | None = None,
    ) -> Report:
        """Run every schedule; or stop when there are `enough` findings."""
        self._stage.empty()
        given = self._stage.look(Op("prepare", lambda: meeting.prepare(store)))
        saved = self._stage.saved()
        ops = meeting.operations(store, given)
        self._sides = self._all[: len(ops)]
        self._without = {
            n: self._ends_without(store, saved, [op for op in ops if op is not ops[n]])
            for n, style in enumerate(styles)
            if style.old
        }
        report = Report()
        path: list[Node] = []
        while True:
            self._stage.restore(saved)
            for side, op, style in zip(self._sides, ops, styles, strict=True):
                side.take(op, store.sql, style)
            if self._run(path, reduce, report):
                report.schedules += 1
                trace = " ".join(f"{NAMES[node.choice]}.{node.label}" for node in path)
                report.findings += [
                    f"{text}\n    after {trace}"
                    for text in (*self._judge(ops, report), *self._ask(meeting, store, given, ops))
                ]
            else:
                report.cut += 1
            assert report.schedules < LIMIT, "more schedules than can be run"
            while path and not path[-1].untried():
                path.pop()
            if not path or (enough is not None and len(report.findings) >= enough):
                return report

    # ---- one schedule

    def _run(self, path: list[Node], reduce: bool, report: Report) -> bool:
        """Go the given way, at its last point a new one, and on to the end.

        False: what would follow was run before, with neighbours in another order.
        """
        self._marks = {}
        for node in path[:-1]:
            side = self._sides[node.choice]
            assert side.next == node.label, "it went another way than before"
            self._step(side)
        asleep: dict[int, Footprint] = {}
        if path:
            asleep = self._pass(path[-1], reduce)
        while not all(side.over for side in self._sides):
            ready = [n for n, s in enumerate(self._sides) if not s.over and not s.waiting]
            if not ready or any(side.again for side in self._sides):
                self._end_anyhow()
                report.deadlocks += 1
                break
            node = Node(ready, asleep)
            if not node.untried():
                for side in sorted(self._sides, key=lambda side: side.waiting):
                    side.leave()
                return False
            path.append(node)
            asleep = self._pass(node, reduce)
        report.longest = max(report.longest, len(path))
        report.waits += sum(len(side.waited) for side in self._sides)
        return True

    def _pass(self, node: Node, reduce: bool) -> dict[int, Footprint]:
        """Give the baton to one who has not had it here; return who sleeps on afterwards: whoever
        was here before, and would not notice this step."""
        node.choice = node.untried()[0]
        side = self._sides[node.choice]
        node.label = side.next
        before = (self._marks or self._stage.marks()) if reduce else {}
        self._step(side)
        self._marks = self._stage.marks() if reduce else {}
        footprint = side.footprint(before, self._marks)
        others = {**node.asleep, **node.tried}
        node.tried[node.choice] = footprint
        return {n: f for n, f in others.items() if reduce and not f.meets(footprint)}

    def _step(self, side: SteppedOperation) -> None:
        """One step of one side; those who waited for it come to the end of theirs."""
        side.go(self._stage.is_blocked)
        for other in self._sides:
            if other is not side and other.waiting:
                other.settle(self._stage.is_blocked)

    def _end_anyhow(self) -> None:
        """After a deadlock, in an order of no interest: whom the server refused was its choice."""
        while not all(side.over for side in self._sides):
            for side in sorted(self._sides, key=lambda side: side.again):
                if side.waiting:
                    side.settle(self._stage.is_blocked)
                elif not side.over:
                    self._step(side)
                    break

    # ---- afterwards

    def _judge(self, ops: Sequence[Op[Any]], report: Report) -> Iterator[str]:
        """What must hold whatever met."""
        for side, op in zip(self._sides, ops, strict=True):
            if side.waited and op.name in PUMP:
                yield f"wait: {op.name} of {side.name} waited at {side.waited}"
            known = side.refused or isinstance(side.error, TowlineError)
            if side.error is not None and not known:
                yield f"fault: {op.name} of {side.name}: {side.error!r}"
            report.refused += side.refused
        yield from self._stage.audit()
        report.ends[self._stage.end()] += 1

    def _ask(
        self, meeting: Meeting[G], store: Store, given: G, ops: Sequence[Op[Any]]
    ) -> Iterator[str]:
        """What this meeting expects, once that which was put off or refused for its level has been
        tried again."""
        answers = [side.error or side.answer for side in self._sides]
        for n, (side, op) in enumerate(zip(self._sides, ops, strict=True)):
            if is_postponed(answers[n]):
                answers[n] = self._alone(op)
                if is_postponed(answers[n]):
                    yield f"wait: {op.name} of {side.name} is put off, and nobody is there"
                yield from self._stage.audit()
        for n, (side, op) in enumerate(zip(self._sides, ops, strict=True)):
            if side.refused:
                if self._stage.end() not in self._without[n]:
                    yield f"changed: {op.name} of {side.name} was refused, and did something"
                answers[n] = self._alone(op)
                yield from self._stage.audit()
        try:
            yield from meeting.expect(Met(store, given, answers, self._stage))
        except (AttributeError, TypeError, ValueError):
            yield f"answer: nobody expects {answers}"

    def _alone(self, op: Op[Any]) -> Any:
        """What is answered while nobody else is there, at the usual level."""
        try:
            return self._stage.look(op)
        except TowlineError as error:
            return error

    def _ends_without(self, store: Store, saved: bytes, others: Sequence[Op[Any]]) -> set[str]:
        """What it may end with when an operation has done nothing: the other one has done its
        part, or passed over what was held then. An id that was drawn is not given out again."""
        (other,) = others
        draw = Op("draw", lambda: store.new_ids(1))
        ends: set[str] = set()
        for first in ((), (draw,)):
            self._stage.restore(saved)
            ends.add(self._stage.end())
            for op in (*first, other):
                self._alone(op)
            ends.add(self._stage.end())
        return ends


def is_postponed(answer: object) -> bool:
    match answer:
        case Finished():
            return bool(answer.postponed)
        case Turn():
            return bool(answer.finished.postponed)
        case Renewed():
            return answer.postponed
        case _:
            return False
