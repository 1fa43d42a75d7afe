"""The state machine: programs of the whole store, drawn by hypothesis and shrunk by it.

One rule that does any deed: with a rule for each, hypothesis would leave most of them out of most
programs. Here numbers become names.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.kit import MINUTE, SECOND
from tests.model.flow_deeds import FlowDeeds
from tests.model.program import OLD_SNAPSHOT, End, Held, Keep, New, Where
from tests.model.strategies import (
    DRAFTS,
    LEFT_OUT,
    LIMITED,
    QUEUES,
    TASKS,
    Draft,
    Drawn,
    operations,
)
from tests.model.tables import Tables
from tests.model.trace import World
from towline.model import ChainState, Live, Outcome, Policy, State

T = TypeVar("T")

BACK_AT_MOST = 1700  # seconds; reads by time allow clocks to differ by an hour
DEEP = 4  # savepoints


class Machine(FlowDeeds, RuleBasedStateMachine):
    """Programs of the whole store."""

    world: ClassVar[World]

    @initialize(drafts=DRAFTS, left_out=LEFT_OUT, limited=LIMITED)
    def begin_program(self, drafts: list[Draft], left_out: set[str], limited: bool) -> None:
        self.world.reset()
        self.begin_flow(limited)
        self.left_out = left_out
        self.names = 0
        self.ever: dict[str, None] = {}  # names that were stored at some time
        self.ever_workers: list[str] = []
        self.ever_held: dict[Held, None] = {}
        self.refused: list[tuple[Any, ...]] = []  # steps that the caller's level did not allow
        self.register(30 * SECOND)
        self.enqueue(drafts)

    def teardown(self) -> None:
        self.world.end()

    def take(self, verb: str, *told: Any) -> None:
        if self.world.take(verb, *told) == OLD_SNAPSHOT:
            self.refused.append((verb, *told))
        self.ever.update(dict.fromkeys(self.tables.jobs))
        self.ever_held.update(dict.fromkeys(self.tables.claims))

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
        """A claim that stands, or one that does not, also by a rollback: its number may be given
        out again then, to somebody else."""
        model = self.world.model
        stored = (held for held in self.ever_held if held.name in self.tables.jobs)
        claims = list(dict.fromkeys((*stored, *self.tables.claims)))
        running = [held for held in claims if model.running(held)]
        if number >= 0:
            return pick(running, (), number)
        return pick((), [held for held in claims if not model.running(held)], number)

    def all_held(self, numbers: Iterable[int]) -> tuple[Held, ...]:
        found = (self.held(number) for number in numbers)
        return tuple(dict.fromkeys(held for held in found if held is not None))

    def worker(self, number: int) -> str:
        """A worker by number; one that is gone may be so by a rollback."""
        gone = [name for name in self.ever_workers if name not in self.tables.workers]
        found = pick(list(self.tables.workers), gone, number)
        assert found is not None  # the first is known ever after
        return found

    def new(self, draft: Draft, batch: Sequence[str] = (), name: str | None = None) -> New:
        """A job to store; one that follows another has no key of its own."""
        if name is None:
            self.names += 1
            name = f"j{self.names}"
        draft = self.allowed(draft)
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
            (), self.lane_of(draft), draft.weight if self.limited else None, draft.expires,
        )  # fmt: skip

    @rule(deed=operations())
    def go(self, deed: tuple[Any, ...]) -> None:
        name, *told = deed
        if name not in self.left_out:
            getattr(self, name)(*told)

    def nothing(self) -> None:
        pass

    # ---- storing and working

    def enqueue(self, drafts: list[Draft]) -> None:
        names = [f"j{self.names + n + 1}" for n in range(len(drafts))]
        self.names += len(drafts)
        news = [self.new(draft, names, name) for draft, name in zip(drafts, names, strict=True)]
        refusing = [new for new in news if new.on_conflict == "raise"]
        self.take("enqueue", tuple(  # which of several is refused first is nobody's promise
            replace(new, on_conflict="return") if new in refusing[1:] else new for new in news
        ))  # fmt: skip

    def enqueue_behind(self, draft: Draft, after: list[int]) -> None:
        """Behind chains that will soon end: the oldest that are open."""
        chains = [c.name for c in self.tables.chains.values() if c.state is ChainState.OPEN]
        names = {chain: None for n in after if (chain := pick(chains[::-1], (), n))}
        name = f"j{self.names + 1}"
        new = self.new(replace(draft, after=[]), [name], name)
        self.names += 1
        self.take("enqueue", (replace(new, after=tuple(names.items())),))

    def claim(
        self, worker: int, queues: tuple[str, ...], room: int, named: bool, ahead: int
    ) -> None:
        """Claim; a worker comes if there is none."""
        if not self.tables.workers:
            self.register(30 * SECOND)
        self.take("claim", self.worker(worker), queues, self.room(room), named, ahead)

    def turn(
        self, worker: int, room: int, ends: list[Drawn], unpark: bool, ahead: int,
        begun: list[int], told: list[int],
    ) -> None:  # fmt: skip
        """Which of many parked jobs a turn takes back is its choice, so there is room for all."""
        found = self.ends(ends, together=False)
        room = self.room(room)
        parked = sum(job.is_parked for job in self.tables.jobs.values())
        tasks = TASKS if unpark and parked <= room else ()
        self.take(
            "turn", self.worker(worker), QUEUES, room, found, tasks, ahead, self.begins(begun),
            self.reports(told), self.gated,
        )  # fmt: skip

    def begin(self, claims: list[int]) -> None:
        if begins := self.begins(claims):
            self.take("mark_begun", begins)

    def begins(self, claims: list[int]) -> tuple[tuple[Held, int], ...]:
        """Of what was claimed ahead, if there is any, of whatever is held otherwise."""
        held = self.all_held(claims)
        ahead = [one for one in self.ever_held if self.is_ahead(one)]
        found = [(pick(ahead, held, number) or held[0]) for number in claims] if held else []
        return tuple((one, self.world.now - SECOND // 2) for one in dict.fromkeys(found))

    def is_ahead(self, held: Held) -> bool:
        job = self.world.model.running(held)
        return job is not None and job.is_ahead

    def fail_over(self, room: int, end: Drawn) -> None:
        """The database forgets its last claims and gives their numbers out again, to another."""
        if self.depth:
            return
        self.register(30 * SECOND)
        worker, known, room = self.ever_workers[-1], set(self.ever_held), self.room(room)
        self.take("begin")
        self.take("claim", worker, QUEUES, room, True, 0)
        self.take("rollback")
        self.register(30 * SECOND)
        self.take("claim", self.ever_workers[-1], QUEUES, room, True, 0)
        stale = [held for held in self.ever_held if held not in known and held.worker == worker]
        for held in stale[:1]:
            self.take("finish", (self.end(held, *end[1:]),), worker)
            self.take("mark_begun", ((held, self.world.now),))
            self.take("progress", ((held, 0.9, "stale"),))
            self.take("park", (held,))

    def finish(self, ends: list[Drawn], twice: int) -> None:
        """Nobody to finish: somebody is claimed."""
        found = self.ends(ends, together=True)
        if found:
            self.take("finish", found[:1] * twice + found, found[0].held.worker)
        else:
            self.claim(0, QUEUES, len(ends), True, 0)

    def ends(self, drawn: list[Drawn], together: bool) -> tuple[End, ...]:
        """Endings, each of another claim. A continuation that waits comes alone, or at the end and
        for a chain that its batch ends: PostgreSQL stores it a turn later than the others. Whether
        a level is noticed where nothing would change, for claims that are lost, nobody promises."""
        found: dict[Held, End] = {}
        model = self.world.model
        for number, how, delay, draft in drawn:
            held = self.held(number)
            if held is None or held in found or (model.level and not model.running(held)):
                continue
            if how not in ("waiting", "fanned out"):
                found[held] = self.end(held, how, delay, draft)
            elif not found:
                return (self.end(held, how, delay, draft),)
            elif (
                how == "waiting"
                and together
                and (chain := self.chain_besides(held, next(iter(found))))
            ):
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
            case "fanned out":
                return End(held, Outcome.CONTINUED, next=self.fan_out(draft))
            case "failed" | "timeout" | "lost":
                kind = f"shop.{how}"
                return End(held, Outcome(how), error=f"{held} {how}", delay=delay, error_type=kind)
            case "snoozed":
                return End(held, Outcome.SNOOZED, delay=delay, started_at=self.world.now - SECOND)
            case "released":
                return End(held, Outcome.RELEASED)
            case "never started":
                return End(held, Outcome.RELEASED, started=False)
            case _:
                outcome = Outcome(how.removesuffix(" for good"))
                return End(held, outcome, error=f"{held} {how}", error_type=f"shop.{outcome}")

    def fan_out(self, draft: Draft) -> New:
        """A continuation with two children: the first is perhaps behind a stored chain, the second
        behind the first."""
        first = self.new(draft)
        alone = replace(draft, after=[])
        second = replace(self.new(alone), after=((first.name, None),))
        after = ((second.name, "second"), (first.name, None))
        return replace(self.new(alone), after=after, children=(first, second))

    def renew(self, worker: int, lease: int, claims: list[int]) -> None:
        self.take("renew", self.worker(worker), lease, self.all_held(claims))

    def park(self, claims: list[int]) -> None:
        self.take("park", self.all_held(claims))

    def progress(self, claims: list[int]) -> None:
        self.take("progress", self.reports(claims))

    def reports(self, claims: list[int]) -> tuple[tuple[Held, float, str], ...]:
        return tuple((one, 0.5, f"half of {one}") for one in self.all_held(claims))

    # ---- upkeep

    def register(self, lease: int) -> None:
        name = f"w{len(self.ever_workers) + 1}"
        self.ever_workers.append(name)
        self.take("register", name, lease)

    def unregister(self, worker: int) -> None:
        self.take("unregister", self.worker(worker))

    def ask(self, worker: int, claim: int, most: int) -> None:
        """What a worker asks without changing anything."""
        self.take("peek", QUEUES[:most], most, TASKS[-most:])
        self.take("runs", self.worker(worker))
        self.take("parked")
        if held := self.held(claim):
            self.take("still_running", held)

    def promote(self, limit: int) -> None:
        if self.tables.next_due() is not None:
            self.take("promote", limit)

    def unpark(self, tasks: tuple[str, ...], queues: tuple[str, ...], limit: int) -> None:
        if any(job.is_parked for job in self.tables.jobs.values()):
            self.take("unpark", tasks, queues, limit)

    def drop_orphans(self, queue: str, number: int) -> None:
        self.take("drop_orphans", queue, number)

    def sweep(
        self, suspects: list[int] | None, gone: list[int], limit: int, begun: str | None
    ) -> None:
        named = None if suspects is None else tuple(map(self.worker, suspects))
        self.take("expired")
        self.take("sweep", named, tuple(map(self.worker, gone)), limit, self.known_begun(begun))

    def known_begun(self, which: str | None) -> tuple[tuple[str, tuple[Held, ...]], ...]:
        """What is known of workers: nothing, or which of their claims they had begun."""
        if which is None:
            return ()
        running = [held for held in self.ever_held if self.world.model.running(held)]
        begun = {"none": [], "some": running[::2], "all": running}[which]
        return tuple(
            (name, tuple(held for held in begun if held.worker == name))
            for name in self.ever_workers
        )

    def crash(self, times: int, ahead: int, begun: str | None) -> None:
        """A job kills one worker after the other, and with it what was claimed ahead."""
        for _ in range(times):
            self.register(30 * SECOND)
            worker = self.ever_workers[-1]
            self.take("turn", worker, QUEUES, self.room(1), (), (), ahead, (), (), self.gated)
            self.take("sweep", (), (worker,), 100, self.known_begun(begun))
            self.move(11)

    # ---- from outside

    def control(self, verb: str, job: int, by: str | None) -> None:
        name = self.job(job)
        if name is not None and verb == "complete":
            self.take("complete", name, f'"{name} from outside"', None, by)
        elif name is not None:
            self.take(verb, name, f"{verb} from outside", by)

    def go_on(self, job: int, by: str | None, drafts: list[Draft]) -> None:
        """Continue a job from outside, and what follows it."""
        name = self.job(job)
        for draft in drafts:
            if name is not None:
                following = self.fan_out(draft) if draft.extra else self.new(draft)
                self.take("complete", name, None, following, by)
                name = following.name if following.name in self.tables.jobs else None

    def topple(self, after: list[int], verb: str, drafts: list[Draft], again: bool) -> None:
        """A chain fails that others wait for, and is perhaps retried."""
        for draft in drafts[:2]:
            self.enqueue_behind(draft, after)
        chains = [c.name for c in self.tables.chains.values() if c.state is ChainState.OPEN]
        if name := pick(chains[::-1], (), after[0]):
            self.take(verb, self.tables.tail(name).name, None if verb == "cancel" else verb, None)
            if again:
                self.take("retry", name)

    def entangle(self, policy: Policy) -> None:
        """A job that ended waits for a chain that goes on behind it: a circle, were it retried."""
        held = self.held(0)
        if held is None:
            return
        chain = self.tables.jobs[held.name].chain
        behind = self.new(Draft(policy=policy))
        self.take("enqueue", (replace(behind, after=((chain, None),)),))
        self.take("cancel", behind.name, None, None)
        following = replace(self.new(Draft(policy=policy)), after=((behind.name, None),))
        self.take("finish", (End(held, Outcome.CONTINUED, next=following),), held.worker)
        self.take("retry", behind.name)

    def run_now(self, job: int) -> None:
        """One that is scheduled, or any."""
        waits = [j.name for j in self.tables.jobs.values() if j.state is Live.SCHEDULED]
        if name := pick(waits, waits, job) if job % 4 else self.job(job):
            self.take("run_now", name)

    def retry(self, job: int, any_job: bool) -> None:
        """One of those that can be, or any."""
        over = [j.name for j in self.tables.jobs.values() if j.shown in ("failed", "cancelled")]
        if name := self.job(job) if any_job else pick(over, over, job):
            self.take("retry", name)

    def pause_or_resume(self, queue: str) -> None:
        """One queue at a time: nothing happens where all are paused."""
        if self.tables.paused:
            self.take("resume", next(iter(self.tables.paused)))
        else:
            self.take("pause", queue)

    def delete(self, chain: int, cascade: bool) -> None:
        if name := self.chain(chain):
            self.take("delete", name, cascade)

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

    def move(self, seconds: int) -> None:
        least = self.world.latest - (0 if self.rates else BACK_AT_MOST)
        self.world.move(max(seconds, least - self.world.seconds))

    def switch(self) -> None:
        """From our connection to the caller's, or back."""
        if not self.depth:
            self.world.switch()

    def transact(self, verb: str, level: str | None) -> None:
        """Begin at some level, or go on to the end."""
        if not self.depth:
            self.take("begin", *([level] if level else []))
        elif verb in ("rollback_to", "release") and self.depth == 1:
            self.take("savepoint")
        elif verb == "savepoint" and self.depth == DEEP:
            self.take("release")
        else:
            self.take(verb)
        if not self.depth:
            self.try_again()

    def try_again(self) -> None:
        """Do what was refused as the refusal says: without the caller's transaction, after it."""
        refused, self.refused = self.refused, []
        for verb, *told in refused:
            if verb == "turn":  # which is drawn for the jobs as they stood
                continue
            if verb == "finish" and any(end.held.name not in self.tables.jobs for end in told[0]):
                continue  # claimed in the transaction, and rolled back with it: the id is free
            self.take(verb, *told)


OF_CHAINS = dict(zip(State, [*ChainState] * 2, strict=False))
"""States to ask chains for, where one of jobs was drawn."""


def pick(present: Sequence[T], gone: Sequence[T], number: int) -> T | None:
    """Counting back from the newest; a negative number means one that is gone, if there is any."""
    pool = gone if (number < 0 and gone) or not present else present
    return pool[-1 - (number if number >= 0 else -1 - number) % len(pool)] if pool else None
