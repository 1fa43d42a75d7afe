"""The state machine: what a program may do next, drawn by hypothesis and shrunk by it.

Who is meant is drawn as a number that counts back from the newest; a negative one means somebody
who is gone: a claim that was lost, a job that was deleted or rolled back. So shrinking keeps its
sense, and stale handles are used on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.kit import DAY, MINUTE, SECOND
from tests.model.program import End, Held, Keep, New, Where, said
from tests.model.tables import Tables
from tests.model.trace import World
from windlass.model import ChainState, Live, Outcome, Policy, State

T = TypeVar("T")

TASKS = ("a", "b")
QUEUES = ("default", "mail")
BACK_AT_MOST = 1700  # seconds; reads by time allow clocks to differ by an hour
DEEP = 4


@dataclass(frozen=True)
class Draft:
    """A job to be stored, before it has a name and its blockers have theirs.

    `after`: a stored chain (0 is the newest), a job of the same batch (-1 the first), or one that
    is gone (-4).
    """

    task: str = "a"
    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    scope: tuple[str, int | None] = ("open", None)
    on_conflict: str = "return"
    time: tuple[str, int] | None = None
    after: Sequence[int] = ()
    named: bool = False
    policy: Policy = Policy.FAIL
    max_attempts: int = 2
    extra: bool = False

    def __repr__(self) -> str:
        return said(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(said(self))


Drawn = tuple[int, str, int, Draft]

CHOICES: dict[str, st.SearchStrategy[Any]] = {
    "after": st.lists(st.integers(-4, 5), min_size=1, max_size=3),
    "policy": st.sampled_from((Policy.WAIT, Policy.RUN)),
    "key": st.sampled_from(("k", "l")),
    "scope": st.sampled_from((("any", None), ("any", 10 * SECOND), ("any", 5 * MINUTE))),
    "on_conflict": st.sampled_from(("replace", "raise")),
    "time": st.sampled_from((
        ("delay", 10), ("delay", 0), ("delay", -5), ("at", 60), ("at", -60)
    )),
    "priority": st.sampled_from((5, 0)),
    "queue": st.sampled_from(("mail", "default")),
    "max_attempts": st.sampled_from((1, 3)),
    "task": st.just("b"),
    "named": st.just(True),
    "extra": st.just(True),
}  # fmt: skip
"""What a draft may say other than usual."""


@st.composite
def drafts_of_jobs(draw: st.DrawFn) -> Draft:
    told = draw(st.lists(st.sampled_from(list(CHOICES)), unique=True, max_size=7))
    return Draft(**{name: draw(CHOICES[name]) for name in told})


@st.composite
def endings(draw: st.DrawFn) -> Drawn:
    """Which claim, how it ended, and what that needs: a delay, or the job that follows."""
    number, how = draw(CLAIM), draw(st.sampled_from(HOW))
    delay = draw(DELAYS) if how in PUT_BACK else 0
    return number, how, delay, draw(DRAFT) if how in GO_ON else Draft()


DRAFT = drafts_of_jobs()
JOB = st.integers(-1, 6)
CLAIM = st.integers(-2, 5)
WORKER = st.sampled_from((0, 1, 2, -1))
DELAYS = st.sampled_from((0, 10 * SECOND, -SECOND, 2 * MINUTE))
LEASE = st.sampled_from((30 * SECOND, SECOND, 5 * MINUTE))
NAMED = st.sampled_from((True, True, True, False))
LIMIT = st.sampled_from((100, 1, 2))
BY = st.sampled_from((None, "ann"))
HOW = ("completed", "completed", "completed", "continued", "continued", "waiting", "failed", "failed for good", "timeout",
       "timeout for good", "snoozed", "cancelled", "lost", "lost for good", "released",
       "never started")  # fmt: skip
PUT_BACK = ("failed", "timeout", "lost", "snoozed")
GO_ON = ("continued", "waiting")
END = endings()
DRAFTS = st.lists(DRAFT, min_size=1, max_size=4)
SOME_QUEUES = st.sampled_from((QUEUES, QUEUES, QUEUES, QUEUES[:1], QUEUES[1:]))
DEEDS = st.one_of(
    st.tuples(st.just("enqueue"), DRAFTS),
    st.tuples(
        st.just("enqueue_behind"), DRAFT, st.lists(st.integers(0, 3), min_size=1, max_size=2)
    ),
    st.tuples(st.just("claim"), WORKER, SOME_QUEUES, st.integers(1, 4), NAMED),
    st.tuples(st.just("turn"), WORKER, st.integers(0, 3), st.lists(END, max_size=2)),
    st.tuples(st.just("finish"), st.lists(END, min_size=1, max_size=4), st.just(0)),
    st.tuples(st.just("finish"), st.lists(END, min_size=1, max_size=4), st.sampled_from((0, 1))),
)
"""What programs are about."""
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
LOOKS = st.sampled_from(("job", "chain", "ended", "attempts", "dependents"))
BESIDE = st.one_of(
    st.tuples(st.just("register"), LEASE),
    st.tuples(st.just("unregister"), WORKER),
    st.tuples(st.just("pause_or_resume"), st.sampled_from(QUEUES)),
    st.tuples(st.just("prune"), st.builds(Keep, AGE, AGE, AGE), st.sampled_from((100, 1, 3))),
    st.tuples(st.just("look"), LOOKS, JOB),
    st.tuples(st.just("page"), st.just("jobs"), WHERE, LIMIT, st.booleans()),
    st.tuples(st.just("page"), st.just("chains"), WHERE, LIMIT, st.booleans()),
    st.tuples(
        st.just("bulk"), st.sampled_from(("cancel", "retry")), WHERE, st.booleans(), LIMIT, BY
    ),
    st.tuples(st.just("switch")),
)
"""What goes on beside."""


class Machine(RuleBasedStateMachine):
    """Programs of the whole store."""

    world: ClassVar[World]

    @initialize(drafts=DRAFTS)
    def begin_program(self, drafts: list[Draft]) -> None:
        self.world.reset()
        self.names = self.workers = 0
        self.ever: dict[str, None] = {}  # names that were stored at some time
        self.register(30 * SECOND)
        self.enqueue(drafts)

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
        """How deep in the caller's transaction and its savepoints; 0 outside."""
        return len(self.world.model.outer)

    # ---- who is meant

    def job(self, number: int) -> str | None:
        gone = [name for name in self.ever if name not in self.tables.jobs]
        return pick(list(self.tables.jobs), gone, number)

    def chain(self, number: int) -> str | None:
        gone = [name for name in self.ever if name not in self.tables.chains]
        return pick(list(self.tables.chains), gone, number)

    def held(self, number: int) -> Held | None:
        model = self.world.model
        claims = list(dict.fromkeys(self.tables.claims))
        running = [held for held in claims if model.running(held)]
        if number >= 0:
            return pick(running, (), number)
        return pick((), [held for held in claims if not model.running(held)], number)

    def all_held(self, numbers: Iterable[int]) -> tuple[Held, ...]:
        found = (self.held(number) for number in numbers)
        return tuple(dict.fromkeys(held for held in found if held is not None))

    def worker(self, number: int) -> str:
        found = pick(list(self.tables.workers), self.tables.former_workers, number)
        assert found is not None  # the first is known ever after
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

    # ---- what programs are about; hypothesis leaves out some rules of each, so there are two

    @rule(deed=DEEDS)
    def go(self, deed: tuple[Any, ...]) -> None:
        verb, *told = deed
        getattr(self, verb)(*told)

    @rule(deed=DEEDS)
    def go_on(self, deed: tuple[Any, ...]) -> None:
        self.go(deed)

    @rule(deed=BESIDE)
    def go_beside(self, deed: tuple[Any, ...]) -> None:
        self.go(deed)

    def enqueue(self, drafts: list[Draft]) -> None:
        names = [f"j{self.names + n + 1}" for n in range(len(drafts))]
        self.names += len(drafts)
        news = [self.new(draft, names, name) for draft, name in zip(drafts, names, strict=True)]
        self.take("enqueue", tuple(news))

    def enqueue_behind(self, draft: Draft, after: list[int]) -> None:
        self.enqueue([replace(draft, after=after)])

    def claim(self, worker: int, queues: tuple[str, ...], room: int, named: bool) -> None:
        """Claim; a worker comes if there is none."""
        if not self.tables.workers:
            self.register(30 * SECOND)
        self.take("claim", self.worker(worker), queues, room, named)

    def turn(self, worker: int, room: int, ends: list[Drawn]) -> None:
        self.take("turn", self.worker(worker), QUEUES, room, self.ends(ends, together=False))

    def finish(self, ends: list[Drawn], twice: int) -> None:
        """Nobody to finish: somebody is claimed."""
        found = self.ends(ends, together=True)
        if found:
            self.take("finish", found[:1] * twice + found, found[0].held.worker)
        else:
            self.claim(0, QUEUES, len(ends), True)

    def ends(self, drawn: list[Drawn], together: bool) -> tuple[End, ...]:
        """Endings, each of another claim. A continuation that waits comes alone, or at the end and
        for a chain that its batch ends: PostgreSQL stores it a turn later than the others."""
        found: dict[Held, End] = {}
        for number, how, delay, draft in drawn:
            held = self.held(number)
            if held is None or held in found:
                continue
            if how != "waiting":
                found[held] = self.end(held, how, delay, draft)
            elif not found:
                return (self.end(held, how, delay, draft),)
            elif together and (chain := self.chain_besides(held, next(iter(found)))):
                following = replace(self.new(replace(draft, after=[])), after=((chain, None),))
                return (*found.values(), End(held, Outcome.CONTINUED, next=following))
        return tuple(found.values())

    def chain_besides(self, held: Held, other: Held) -> str | None:
        """The chain of a running job, for another to wait for."""
        job, running = self.tables.jobs.get(held.name), self.world.model.running(other)
        return running.chain if running and job and job.chain != running.chain else None

    def end(self, held: Held, how: str, delay: int, draft: Draft) -> End:
        match how:
            case "completed":
                return End(held, Outcome.COMPLETED, output=f'"{held}"')
            case "continued" | "waiting":
                after = (draft.after or [0]) if how == "waiting" else []
                following = self.new(replace(draft, after=after))
                return End(held, Outcome.CONTINUED, next=following)
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

    @precondition(lambda self: self.tables.claims)
    @rule(verb=st.sampled_from(("renew", "park", "progress")), worker=WORKER, lease=LEASE,
          claims=st.lists(CLAIM, max_size=4))  # fmt: skip
    def hold(self, verb: str, worker: int, lease: int, claims: list[int]) -> None:
        held = self.all_held(claims)
        if verb == "renew":
            self.take("renew", self.worker(worker), lease, held)
        elif verb == "park":
            self.take("park", held)
        else:
            self.take("progress", tuple((one, 0.5, f"half of {one}") for one in held))

    # ---- upkeep

    def unregister(self, worker: int) -> None:
        self.take("unregister", self.worker(worker))

    def register(self, lease: int) -> None:
        self.workers += 1
        self.take("register", f"w{self.workers}", lease)

    @precondition(lambda self: self.any_live(Live.SCHEDULED, Live.PARKED))
    @rule(limit=LIMIT, tasks=st.sampled_from((TASKS, TASKS[:1], TASKS[1:])))
    def let_go_on(self, limit: int, tasks: tuple[str, ...]) -> None:
        if self.any_live(Live.SCHEDULED):
            self.take("promote", limit)
        if self.any_live(Live.PARKED):
            self.take("unpark", tasks, limit)

    @precondition(lambda self: self.any_live(Live.RUNNING))
    @rule(suspects=st.none() | st.lists(WORKER, max_size=2), gone=st.lists(WORKER, max_size=1),
          limit=LIMIT)  # fmt: skip
    def sweep(self, suspects: list[int] | None, gone: list[int], limit: int) -> None:
        named = None if suspects is None else tuple(map(self.worker, suspects))
        self.take("expired")
        self.take("sweep", named, tuple(map(self.worker, gone)), limit)

    def any_live(self, *states: Live) -> bool:
        return any(job.state in states for job in self.tables.jobs.values())

    # ---- from outside

    @precondition(lambda self: self.ever)
    @rule(verb=st.sampled_from(("cancel", "fail", "complete", "run_now")), job=JOB, by=BY)
    def control(self, verb: str, job: int, by: str | None) -> None:
        name = self.job(job)
        if verb == "complete":
            self.take("complete", name, f'"{name} from outside"', None, by)
        elif verb == "run_now":
            self.take("run_now", name)
        else:
            self.take(verb, name, f"{verb} from outside", by)

    @precondition(lambda self: self.ever)
    @rule(job=JOB, by=BY, draft=DRAFT)
    def continue_from_outside(self, job: int, by: str | None, draft: Draft) -> None:
        self.take("complete", self.job(job), None, self.new(draft), by)

    @precondition(lambda self: self.ever)
    @rule(job=JOB, any_job=st.sampled_from((False, False, True)))
    def retry(self, job: int, any_job: bool) -> None:
        """One of those that can be, or any."""
        over = [j.name for j in self.tables.jobs.values() if j.shown in ("failed", "cancelled")]
        self.take("retry", self.job(job) if any_job or not over else pick(over, over, job))

    def pause_or_resume(self, queue: str) -> None:
        """One queue at a time: nothing happens where all are paused."""
        if self.tables.paused:
            self.take("resume", next(iter(self.tables.paused)))
        else:
            self.take("pause", queue)

    @precondition(lambda self: self.ever)
    @rule(chain=JOB, cascade=st.booleans())
    def delete(self, chain: int, cascade: bool) -> None:
        self.take("delete", self.chain(chain), cascade)

    def prune(self, keep: Keep, limit: int) -> None:
        self.take("prune", keep, limit)

    def bulk(
        self, action: str, where: dict[str, Any], preview: bool, limit: int, by: str | None
    ) -> None:
        self.take("bulk", action, self.where(where), preview, limit, by)

    # ---- reading

    def page(self, verb: str, where: dict[str, Any], limit: int, newest: bool) -> None:
        self.take(verb, self.where(where, of_chains=verb == "chains"), limit, newest)

    def look(self, what: str, job: int) -> None:
        if name := self.job(job):
            self.take("look", what, name)

    def where(self, drawn: dict[str, Any], *, of_chains: bool = False) -> Where:
        told = dict(drawn)
        if "chain" in told:
            told["chain"] = self.chain(told["chain"])
        if "label" in told:
            told["label"] = self.job(told["label"])
        for time in ("since", "until"):
            if time in told:
                told[time] = self.world.now + told[time] * SECOND
        if of_chains and "state" in told:
            told["state"] = OF_CHAINS[told["state"]]
        return Where(**told)

    # ---- time and the caller

    @rule(seconds=st.sampled_from((1, 11, 31, 61, 700, 100_000, -1, -20, -1700)))
    def move(self, seconds: int) -> None:
        least = self.world.latest - BACK_AT_MOST
        self.world.move(max(seconds, least - self.world.seconds))

    def switch(self) -> None:
        """From our connection to the caller's, or back."""
        if not self.depth:
            self.world.switch()

    @precondition(lambda self: not self.depth)
    @rule()
    def begin(self) -> None:
        self.take("begin")

    @precondition(lambda self: self.depth)
    @rule(verb=st.sampled_from(("commit", "rollback", "savepoint", "rollback_to", "release")))
    def transact(self, verb: str) -> None:
        if verb == "savepoint" and self.depth < DEEP:
            self.take("savepoint")
        elif verb in ("rollback_to", "release") and self.depth > 1:
            self.take(verb)
        else:
            self.take("rollback" if verb == "rollback" else "commit")

    # Some come more often than others.
    go_more = go_most = go
    go_on_more = go_on_most = go_on
    control_more = control
    transact_more = transact


OF_CHAINS = dict(zip(State, [*ChainState] * 2, strict=False))
"""States to ask chains for, where one of jobs was drawn."""


def pick(present: Sequence[T], gone: Sequence[T], number: int) -> T | None:
    """Counting back from the newest; a negative number means one that is gone, if there is any."""
    pool = gone if (number < 0 and gone) or not present else present
    return pool[-1 - (number if number >= 0 else -1 - number) % len(pool)] if pool else None
