"""Taking a program's steps on the model and on engines at once, and comparing all that is seen.

After each step: the answers, everything that reads show inside the caller's transaction, what
others see outside of it, what an auditor finds in the tables, and that whatever became ready or
ended was marked, for those who wait to be told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

from tests.kit import SECOND, Clock
from tests.model.engine_driver import EngineDriver
from tests.model.limiting import Place
from tests.model.model import Model
from tests.model.program import OLD_SNAPSHOT, Answer, Refusal, Seen, Step
from towline.model import ChainState, Live
from towline.store import lease
from towline.store.finish import lost_delay

UNMARKED = ("begin", "commit", "promote", "release", "rollback", "rollback_to", "savepoint")
"""No operations, or one that each worker does by itself."""


class Coverage:
    """How much was done, over all programs."""

    def __init__(self) -> None:
        self.programs = 0
        self.verbs: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.seen: Counter[str] = Counter()
        """Branches of the model's rules."""

    @property
    def steps(self) -> int:
        return self.verbs.total()


class World:
    """The model and the engines, on one clock."""

    def __init__(self, sides: Sequence[EngineDriver], clock: Clock) -> None:
        self.sides = sides
        self.coverage = Coverage()
        self._clock = clock
        self._start = clock.time
        self.reset()

    def reset(self) -> None:
        """An empty store, for the next program."""
        for side in self.sides:
            side.reset()
        self.seconds = 0
        self.latest = 0
        self._ticks = 0
        self._clock.time = self._start
        self.model = Model(self._clock)
        self.model.seen = self.coverage.seen
        self.trace: list[str] = []
        self.coverage.programs += 1
        self._outside: Seen = self.model.tables.dump()
        self._before: Seen = self._outside

    @property
    def now(self) -> int:
        """The time of the next step."""
        return self._start + self.seconds * SECOND + self._ticks + 1

    def move(self, seconds: int) -> None:
        """Let time go on, or back."""
        self.seconds += seconds
        self.latest = max(self.latest, self.seconds)
        self.trace.append(f"    the clock goes {seconds:+} s")
        self.coverage.verbs["time moves on" if seconds > 0 else "time moves back"] += 1

    def switch(self) -> None:
        """Go over to the caller's connection, where each step is a transaction, or back to ours."""
        for side in self.sides:
            side.theirs = not side.theirs
        self.trace.append("    on the other connection")
        self.coverage.verbs["on the other connection"] += 1

    def take(self, verb: str, *told: Any) -> Answer:
        """Take a step and compare."""
        step = Step(verb, told)
        self._ticks += 1  # no two steps at the same time: jobs with one id differ in their time
        self._clock.time = self._start + self.seconds * SECOND + self._ticks
        self.coverage.verbs[verb] += 1
        before = stands(self.model)
        answer = self.model.take(step)
        if isinstance(answer, Refusal):
            self.coverage.refusals[f"{verb}: {answer.error}"] += 1
        self.trace.append(f"{self._ticks:3} {step} → {brief(answer)}")
        if verb == "begin":
            self._outside = self._before
        seen = self.model.tables.dump()
        changed, self._before = seen != self._before, seen
        for side in self.sides:
            try:
                answered = self._taken(side, step, answer)
            except BaseException as error:
                error.add_note(f"{side.name}, after:\n" + self.told())
                raise
            self._compare(side, "answer", answer, answered)
            if verb not in UNMARKED:
                self._marked(side, before, verb)
            self._compare(side, "tables", seen, side.dump())
            if self.model.outer:
                self._compare(side, "outside", self._outside, side.dump(outside=True))
            elif changed or verb in ("commit", "rollback"):
                self._audit(side)
        return answer

    def _taken(self, side: EngineDriver, step: Step, answer: Answer) -> Answer:
        """A side's answer. One without levels would do what another must refuse for its level: it
        leaves that out, so that both hold the same."""
        if answer == OLD_SNAPSHOT and not side.has_levels:
            return answer
        return side.take(step)

    def end(self) -> None:
        """Look at everything once more, past what was remembered from earlier looks."""
        for side in self.sides:
            self._compare(side, "tables", self.model.tables.dump(), side.dump(anew=True))

    def _compare(self, side: EngineDriver, what: str, wanted: object, found: object) -> None:
        if wanted == found:
            return
        lines = list(differences(what, wanted, found))
        raise AssertionError(
            f"{side.name} differs from the model:\n" + "\n".join(lines) + "\n" + self.told()
        )

    def _marked(self, side: EngineDriver, before: Stands, verb: str) -> None:
        """What became pending or ended by the last step was marked (finding S4)."""
        promoted = verb == "turn"
        tables = self.model.tables
        for job in tables.jobs.values():
            was, due, waited = before.jobs.get(job.name, NEW)
            if not job.is_waiting or waited:
                continue
            if promoted and was is Live.SCHEDULED and (due or 0) <= self._clock.time:
                continue  # each worker promotes by itself what is due
            if job.queue not in side.woken:
                raise AssertionError(
                    f"{side.name} marks {side.woken}, not {job.queue} of {job.name}\n{self.told()}"
                )
        for queue, lane in self.model.startable() - before.startable:
            if queue in side.woken or (verb == "finish" and not lane):
                continue  # of a queue's limit: the worker that has finished takes a turn itself
            line = [
                j.name for j in tables.jobs.values() if (j.queue, j.lane or "") == (queue, lane)
            ]
            if promoted and not any(before.jobs.get(name, NEW).waited for name in line):
                continue
            raise AssertionError(
                f"{side.name} marks {side.woken}, not {queue}: something may begin in lane "
                f"{lane!r} now\n{self.told()}"
            )
        for chain in tables.chains.values():
            over = chain.state is not ChainState.OPEN
            if over and before.chains.get(chain.name) in (None, ChainState.OPEN):
                if not side.told_ended:
                    raise AssertionError(
                        f"{side.name} does not mark that {chain.name} ended\n{self.told()}"
                    )

    def _audit(self, side: EngineDriver) -> None:
        if findings := side.audit():
            told = "\n".join(f"  {finding.kind}: {finding.text}" for finding in findings)
            raise AssertionError(f"{side.name}, an auditor finds:\n{told}\n{self.told()}")

    def told(self) -> str:
        """The program so far, with the model's answers."""
        return "\n".join(self.trace)


class Stood(NamedTuple):
    """Where a job stood before a step."""

    state: Live | None
    run_at: int | None
    waited: bool


NEW = Stood(None, None, False)


class Stands(NamedTuple):
    """Where jobs and chains stood before a step, and which lines could have begun."""

    jobs: dict[str, Stood]
    chains: dict[str, ChainState]
    startable: set[Place]


def stands(model: Model) -> Stands:
    tables = model.tables
    return Stands(
        {job.name: Stood(job.state, job.run_at, job.is_waiting) for job in tables.jobs.values()},
        {chain.name: chain.state for chain in tables.chains.values()},
        model.startable(),
    )


def differences(path: str, wanted: Any, found: Any) -> Iterator[str]:
    """Where two values differ, as far down as they are built alike."""
    if wanted == found:
        return
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key in [*wanted, *(key for key in found if key not in wanted)]:
            if key in wanted and key in found:
                yield from differences(f"{path}.{key}", wanted[key], found[key])
            else:
                has = wanted.get(key, "nothing"), found.get(key, "nothing")
                yield f"  {path}.{key}: the model has {has[0]}, the engine {has[1]}"
    elif alike(wanted, found):
        for place, pair in enumerate(zip(wanted, found, strict=True)):
            yield from differences(f"{path}[{place}]", *pair)
    else:
        yield f"  {path}: the model has {wanted!r}, the engine {found!r}"


def alike(wanted: object, found: object) -> bool:
    kinds = (list, tuple)
    return isinstance(wanted, kinds) and isinstance(found, kinds) and len(wanted) == len(found)


def brief(answer: Answer) -> str:
    """An answer for people: who, and in which state."""
    if isinstance(answer, Refusal):
        return f"{answer.error} {' '.join(answer.names)}".strip()
    if isinstance(answer, dict):
        name = answer.get("id") or answer.get("job_id")
        if name is None:
            return "{" + ", ".join(f"{key}: {brief(value)}" for key, value in answer.items()) + "}"
        number = answer.get("attempt") or answer.get("number")
        state = answer.get("live_state")
        return f"{name}{'' if number is None else f'#{number}'}" + (
            "" if state is None else f" {state.name.lower()}"
        )
    if isinstance(answer, list | tuple):
        return f"[{', '.join(map(brief, answer))}]"
    return str(answer)


@contextmanager
def steady() -> Iterator[None]:
    """Nothing is drawn at random: both engines put what was lost off by the same time."""
    module: Any = lease
    module.lost_delay = partial(lost_delay, draw=lambda: 0.0)
    try:
        yield
    finally:
        module.lost_delay = lost_delay
