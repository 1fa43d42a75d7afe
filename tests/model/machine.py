"""The state machine: what a program may do next, drawn by hypothesis and shrunk by it.

Who is meant is drawn as a number that counts back from the newest; a negative one means somebody
who is gone: a claim that was lost, a job that was deleted or rolled back. So shrinking keeps its
sense, and stale handles are used on purpose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.kit import DAY, MINUTE, SECOND
from tests.model.program import End, Held, Keep, New, Where
from tests.model.tables import Tables
from tests.model.trace import World
from windlass.model import ChainState, Outcome, Policy, State

T = TypeVar("T")

TASKS = ("a", "b")
QUEUES = ("default", "mail")
BACK_AT_MOST = 1700  # seconds; reads by time allow clocks to differ by an hour
DEEP = 4


@dataclass(frozen=True)
class Draft:
    """A job to be stored, before it has a name and its blockers have theirs."""

    task: str
    queue: str | None
    priority: int | None
    key: str | None
    scope: tuple[str, int | None]
    on_conflict: str
    time: tuple[str, int] | None
    after: list[int]
    named: bool
    policy: Policy
    max_attempts: int
    extra: bool


DRAFT = st.builds(
    Draft,
    task=st.sampled_from(TASKS),
    queue=st.sampled_from((None, None, *QUEUES)),
    priority=st.sampled_from((None, None, 0, 5)),
    key=st.sampled_from((None, None, None, "k", "l")),
    scope=st.sampled_from((
        ("open", None), ("any", None), ("any", 10 * SECOND), ("any", 5 * MINUTE)
    )),
    on_conflict=st.sampled_from(("return", "replace", "raise")),
    time=st.sampled_from((
        None, None, None, ("delay", 0), ("delay", 10), ("delay", -5), ("at", 60), ("at", -60)
    )),
    after=st.just([]) | st.lists(st.integers(-4, 5), max_size=3),
    named=st.booleans(),
    policy=st.sampled_from(Policy),
    max_attempts=st.sampled_from((2, 1, 3)),
    extra=st.booleans(),
)  # fmt: skip
"""`after`: a stored chain (0 is the newest), a job of the same batch (-1 the first), or one that
is gone (-4)."""

JOB = st.integers(-2, 7)
CLAIM = st.integers(-3, 5)
WORKER = st.integers(-1, 2)
DELAYS = st.sampled_from((0, 10 * SECOND, -SECOND, 2 * MINUTE))
BY = st.sampled_from((None, "ann"))
ENDS = ("completed", "continued", "waiting", "failed", "failed for good", "timeout",
        "timeout for good", "snoozed", "cancelled", "lost", "lost for good", "released",
        "never started")  # fmt: skip
END = st.tuples(CLAIM, st.sampled_from(ENDS), DELAYS, DRAFT)
WHERE = st.fixed_dictionaries(
    {},
    optional={
        "state": st.sampled_from(State),
        "outcome": st.sampled_from(Outcome),
        "task": st.sampled_from(TASKS),
        "queue": st.sampled_from(QUEUES),
        "chain": st.integers(0, 5),
        "key": st.just("k"),
        "label": st.integers(0, 5),
        "since": st.sampled_from((-5, -60)),
        "until": st.sampled_from((0, -30)),
    },
)
AGE = st.sampled_from((MINUTE, None, 10 * MINUTE, 0, DAY))


class Machine(RuleBasedStateMachine):
    """Programs of the whole store."""

    world: ClassVar[World]

    @initialize()
    def begin_program(self) -> None:
        self.world.reset()
        self.names = 0
        self.ever: dict[str, None] = {}  # names that were stored at some time
        self.take("register", "w1", 30 * SECOND)
        self.workers = 1

    def teardown(self) -> None:
        self.world.end()

    def take(self, verb: str, *told: Any) -> None:
        self.world.take(verb, *told)
        self.ever.update(dict.fromkeys(self.tables.jobs))

    @property
    def tables(self) -> Tables:
        return self.world.model.tables

    @property
    def depth(self) -> int:
        return len(self.world.model.outer)

    # ---- who is meant

    def job(self, number: int) -> str | None:
        gone = [name for name in self.ever if name not in self.tables.jobs]
        return pick(list(self.tables.jobs), gone, number)

    def chain(self, number: int) -> str | None:
        gone = [name for name in self.ever if name not in self.tables.chains]
        return pick(list(self.tables.chains), gone, number)

    def claim_of(self, number: int) -> Held | None:
        model = self.world.model
        claims = list(dict.fromkeys(self.tables.claims))
        running = [held for held in claims if model.running(held)]
        return pick(running, [held for held in claims if not model.running(held)], number)

    def worker(self, number: int) -> str:
        found = pick(list(self.tables.workers), self.tables.former_workers, number)
        assert found is not None  # at least one was registered and is known ever after
        return found

    def new(self, draft: Draft, batch: Sequence[str] = (), name: str | None = None) -> New:
        """A job to store; one that follows another has no key of its own."""
        if name is None:
            self.names += 1
            name = f"j{self.names}"
        wanted = (
            batch[-1 - n] if -len(batch) <= n < 0 else self.chain(n if n >= 0 else -1)
            for n in draft.after
        )
        after = tuple((c, f"of {c}" if draft.named else None) for c in wanted if c is not None)
        delay = at = None
        if draft.time is not None:
            kind, seconds = draft.time
            delay = seconds * SECOND if kind == "delay" else None
            at = self.world.now + seconds * SECOND if kind == "at" else None
        return New(
            name, draft.task, f'{{"{name}": 1}}', draft.queue, draft.priority, draft.max_attempts,
            MINUTE if draft.extra else None, delay, at, draft.key if batch else None, *draft.scope,
            draft.on_conflict, after, draft.policy, "trace" if draft.extra else None,
        )  # fmt: skip

    # ---- storing

    @rule(drafts=st.lists(DRAFT, min_size=1, max_size=4))
    def enqueue(self, drafts: list[Draft]) -> None:
        names = [f"j{self.names + n + 1}" for n in range(len(drafts))]
        self.names += len(drafts)
        news = [self.new(draft, names, name) for draft, name in zip(drafts, names, strict=True)]
        self.take("enqueue", tuple(news))

    @rule(draft=DRAFT, after=st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True))
    def enqueue_behind(self, draft: Draft, after: list[int]) -> None:
        name = f"j{self.names + 1}"
        self.names += 1
        draft = Draft(**{**vars(draft), "after": after})
        self.take("enqueue", (self.new(draft, [name], name),))

    # ---- work

    @rule(
        worker=WORKER, queues=st.sampled_from((QUEUES, QUEUES[:1], QUEUES[1:])),
        room=st.integers(1, 4), named=st.sampled_from((True, True, True, False)),
    )  # fmt: skip
    def claim(self, worker: int, queues: tuple[str, ...], room: int, named: bool) -> None:
        self.take("claim", self.worker(worker), queues, room, named)

    @rule(worker=WORKER, room=st.integers(0, 3), ends=st.lists(END, max_size=2))
    def turn(self, worker: int, room: int, ends: list[tuple[int, str, int, Draft]]) -> None:
        self.take("turn", self.worker(worker), QUEUES, room, self.ends(ends, together=False))

    @rule(end=END)
    def finish(self, end: tuple[int, str, int, Draft]) -> None:
        self.finish_all([end], twice=False)

    @rule(ends=st.lists(END, min_size=2, max_size=4), twice=st.booleans())
    def finish_many(self, ends: list[tuple[int, str, int, Draft]], twice: bool) -> None:
        self.finish_all(ends, twice)

    def finish_all(self, ends: list[tuple[int, str, int, Draft]], twice: bool) -> None:
        found = self.ends(ends, together=True)
        if found:
            self.take("finish", found[:1] * twice + found, found[0].held.worker)

    def ends(self, drawn: list[tuple[int, str, int, Draft]], together: bool) -> tuple[End, ...]:
        """Endings, each of another claim. A continuation that waits comes alone, or at the end and
        for a chain that its batch ends: PostgreSQL stores it a turn later than the others."""
        found: dict[Held, End] = {}
        for number, how, delay, draft in drawn:
            held = self.claim_of(number)
            if held is None or held in found:
                continue
            if how != "waiting":
                found[held] = self.end(held, how, delay, draft)
                continue
            alone = [self.end(held, how, delay, draft)]
            if not found:
                return tuple(alone)
            first = next(iter(found))
            if together and self.world.model.running(first):
                chain = self.tables.jobs[first.name].chain
                own = self.tables.jobs.get(held.name)
                if own is not None and own.chain != chain:
                    next_job = self.new(Draft(**{**vars(draft), "after": []}))
                    waits = New(**{**vars(next_job), "after": ((chain, None),)})
                    last = End(held, Outcome.CONTINUED, next=waits)
                    return (*found.values(), last)
        return tuple(found.values())

    def end(self, held: Held, how: str, delay: int, draft: Draft) -> End:
        match how:
            case "completed":
                return End(held, Outcome.COMPLETED, output=f'"{held}"')
            case "continued" | "waiting":
                after = draft.after or [0] if how == "waiting" else []
                following = Draft(**{**vars(draft), "after": after})
                return End(held, Outcome.CONTINUED, next=self.new(following))
            case "failed" | "timeout" | "lost":
                return End(held, Outcome(how), error=f"{held} {how}", delay=delay)
            case "snoozed":
                return End(held, Outcome.SNOOZED, delay=delay, started_at=self.world.now - SECOND)
            case "released":
                return End(held, Outcome.RELEASED)
            case "never started":
                return End(held, Outcome.RELEASED, started=False)
            case _:
                outcome = Outcome(how.removesuffix(" for good"))
                return End(held, outcome, error=f"{held} {how}")

    @rule(worker=WORKER, lease=st.sampled_from((30, 1, 300)), claims=st.lists(CLAIM, max_size=4))
    def renew(self, worker: int, lease: int, claims: list[int]) -> None:
        held = {one for number in claims if (one := self.claim_of(number))}
        told = tuple(sorted(held, key=lambda one: (one.name, one.attempt)))
        self.take("renew", self.worker(worker), lease * SECOND, told)

    @rule(
        claims=st.lists(CLAIM, min_size=1, max_size=3), verb=st.sampled_from(("park", "progress"))
    )
    def of_claims(self, claims: list[int], verb: str) -> None:
        held = tuple(dict.fromkeys(one for number in claims if (one := self.claim_of(number))))
        if verb == "park":
            self.take("park", held)
        else:
            self.take("progress", tuple((one, 0.5, f"half of {one}") for one in held))

    @rule(worker=WORKER, lease=st.sampled_from((30, 1, 300)), leaves=st.booleans())
    def come_or_leave(self, worker: int, lease: int, leaves: bool) -> None:
        if leaves:
            self.take("unregister", self.worker(worker))
        else:
            self.workers += 1
            self.take("register", f"w{self.workers}", lease * SECOND)

    @rule(verb=st.sampled_from(("promote", "unpark")), limit=st.sampled_from((100, 1, 2)),
          tasks=st.sampled_from((TASKS, TASKS[:1], TASKS[1:])))  # fmt: skip
    def look_after(self, verb: str, limit: int, tasks: tuple[str, ...]) -> None:
        self.take(verb, *((limit,) if verb == "promote" else (tasks, limit)))

    @rule(suspects=st.none() | st.lists(WORKER, max_size=2), gone=st.lists(WORKER, max_size=1),
          limit=st.sampled_from((100, 1, 2)))  # fmt: skip
    def sweep(self, suspects: list[int] | None, gone: list[int], limit: int) -> None:
        named = None if suspects is None else tuple(map(self.worker, suspects))
        self.take("expired")
        self.take("sweep", named, tuple(map(self.worker, gone)), limit)

    # ---- from outside

    @rule(verb=st.sampled_from(("cancel", "fail", "complete", "continue", "run_now")), job=JOB,
          by=BY, draft=DRAFT)  # fmt: skip
    def control(self, verb: str, job: int, by: str | None, draft: Draft) -> None:
        name = self.job(job)
        if name is None:
            return
        match verb:
            case "complete":
                self.take("complete", name, f'"{name} from outside"', None, by)
            case "continue":
                self.take("complete", name, None, self.new(draft), by)
            case "run_now":
                self.take("run_now", name)
            case _:
                self.take(verb, name, f"{verb} from outside", by)

    @rule(job=JOB, bad=st.booleans())
    def retry(self, job: int, bad: bool) -> None:
        """Somebody, or one of those that can be."""
        over = [j.name for j in self.tables.jobs.values() if j.shown in ("failed", "cancelled")]
        name = pick(over, over, abs(job)) if bad and over else self.job(job)
        if name is not None:
            self.take("retry", name)

    @rule(queue=st.sampled_from(QUEUES), verb=st.sampled_from(("resume", "pause")))
    def hold_queue(self, queue: str, verb: str) -> None:
        self.take(verb, queue)

    @rule(chain=JOB, cascade=st.booleans())
    def delete(self, chain: int, cascade: bool) -> None:
        name = self.chain(chain)
        if name is not None:
            self.take("delete", name, cascade)

    @rule(keep=st.builds(Keep, AGE, AGE, AGE), limit=st.sampled_from((100, 1, 3)))
    def prune(self, keep: Keep, limit: int) -> None:
        self.take("prune", keep, limit)

    @rule(action=st.sampled_from(("cancel", "retry")), where=WHERE, preview=st.booleans(),
          limit=st.sampled_from((100, 1, 2)), by=BY)  # fmt: skip
    def bulk(
        self, action: str, where: dict[str, Any], preview: bool, limit: int, by: str | None
    ) -> None:
        self.take("bulk", action, self.where(where), preview, limit, by)

    # ---- reading

    @rule(verb=st.sampled_from(("jobs", "chains")), where=WHERE,
          limit=st.sampled_from((100, 1, 2)), newest=st.booleans())  # fmt: skip
    def list(self, verb: str, where: dict[str, Any], limit: int, newest: bool) -> None:
        if verb == "chains" and "state" in where:
            where = {**where, "state": list_of_chain_states[where["state"]]}
        self.take(verb, self.where(where), limit, newest)

    @rule(what=st.sampled_from(("job", "chain", "ended", "attempts", "dependents")), job=JOB)
    def look(self, what: str, job: int) -> None:
        name = self.job(job)
        if name is not None:
            self.take("look", what, name)

    def where(self, drawn: dict[str, Any]) -> Where:
        told = dict(drawn)
        if "chain" in told:
            told["chain"] = self.chain(told["chain"])
        if "label" in told:
            told["label"] = self.job(told["label"])
        for time in ("since", "until"):
            if time in told:
                told[time] = self.world.now + told[time] * SECOND
        return Where(**told)

    # ---- time and the caller

    @rule(seconds=st.sampled_from((1, 11, 31, 61, 700, 100_000, -1, -20, -1700)))
    def move(self, seconds: int) -> None:
        least = self.world.latest - BACK_AT_MOST
        self.world.move(max(seconds, least - self.world.seconds))

    @precondition(lambda self: not self.depth)
    @rule(theirs=st.booleans())
    def begin(self, theirs: bool) -> None:
        """Begin a transaction, or go over to the caller's connection without one, or back."""
        if theirs:
            for side in self.world.sides:
                side.theirs = not side.theirs
            self.world.trace.append("    on the other connection from now on")
        else:
            self.take("begin")

    @precondition(lambda self: self.depth)
    @rule(verb=st.sampled_from(("savepoint", "rollback_to", "release", "commit", "rollback")))
    def go_on(self, verb: str) -> None:
        if verb == "savepoint" and self.depth < DEEP:
            self.take("savepoint")
        elif verb in ("rollback_to", "release") and self.depth > 1:
            self.take(verb)
        else:
            self.take("rollback" if verb == "rollback" else "commit")


list_of_chain_states = dict(zip(State, (*ChainState, *ChainState), strict=False))


def pick(present: Sequence[T], gone: Sequence[T], number: int) -> T | None:
    """Counting back from the newest; a negative number means one that is gone, if there is any."""
    pool = gone if (number < 0 and gone) or not present else present
    return pool[-1 - (number if number >= 0 else -1 - number) % len(pool)] if pool else None
