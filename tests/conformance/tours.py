"""Eleven tours that together run every statement of an operation, in every form.

Each is a script in one transaction, on the database that the tours before it have left. What they
find is compared with what our own connection finds, row by row; what is right about it, the cases
of this folder say there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from tests.kit import DAY, HOUR, SECOND, Clock, claim, completed, continued, failed, new, put
from tests.kit import register as enter
from towline import Cron
from towline.connections.psycopg import COPY_FROM
from towline.errors import DuplicateKey, InvalidState
from towline.model import ChainState, Outcome, Policy, State
from towline.operation import Steps
from towline.postgres import heads
from towline.postgres.store import PostgresStore
from towline.records import Claimed, Ending, NewBlocker, NewJob
from towline.schedule import NewSchedule
from towline.store import Store, audit, gate, read
from towline.store.limit import Numbers
from towline.store.listing import ChainFilter, JobFilter
from towline.store.retention import KeepFor
from towline.store.stats import StatsFilter
from towline.store.turn import unpark

MANY = 250  # rows, which psycopg sends by COPY
TEXT = 'ä "☃" \\ % ? :x $1 %s \U0001f40b'
LARGE = 2**53 + 1


@dataclass
class World:
    """What a tour finds: the store on a clock that it moves, and one on the database's clock."""

    store: Store
    on_database_clock: Store
    clock: Clock


Tour = Callable[[World], Steps[None]]


def take(store: Store, queue: str, room: int = 10) -> Steps[list[Claimed]]:
    """A new worker of the queue's name takes what is pending there."""
    worker = yield from enter(store, queue)
    return (yield from store.claim(worker, [queue], room))


def deleting(world: World) -> Steps[None]:
    """One chain with what it waited for; then old ones, of which one is too long for a batch."""
    store = world.store
    (first,) = yield from put(store, new(queue="old"))
    (second,) = yield from put(store, new(queue="old", key="gone", after=[first]))
    assert (yield from store.delete([second], cascade=True, force=False)) == [first, second]
    (long,) = yield from put(store, new(queue="old"))
    for _ in range(3):
        (held,) = yield from take(store, "old")
        yield from store.finish([continued(held, new(queue="old"))])
    yield from store.complete(long, "null")
    (needed,) = yield from put(store, new(queue="old", key="old"))
    yield from put(store, new(queue="old", after=[needed], policy=Policy.WAIT))
    yield from store.fail(needed, TEXT)
    world.clock.advance(3600 * 24 * 900)
    yield from store.prune(KeepFor(None, None, None))
    for _ in range(9):
        if (yield from store.prune(KeepFor(HOUR, HOUR, HOUR), limit=3)).done:
            break
    yield from store.counts()


def plain_jobs(world: World) -> Steps[None]:
    """Stored, claimed and ended in turns, with values of every type."""
    store = world.store
    yield from put(store, new(queue="plain"))
    yield from put(
        store,
        new(TEXT, queue="plain", label=TEXT, arguments=f'{{"a":"{"x" * 9000}"}}', trace="t"),
        new(queue="plain", priority=-7, timeout=LARGE, max_attempts=1),
        new(queue="plain", delay=SECOND),
        new(queue="plain", at=LARGE),
    )
    worker = yield from enter(store, "plain", lease=LARGE)
    turn = yield from store.turn(worker, "plain", ["plain"], 10)
    assert len(turn.claimed) == 3
    world.clock.advance(2)
    assert (yield from store.peek(["plain"], 5)).next_due is not None
    endings = [
        Ending(held, Outcome.COMPLETED, output=f'"{TEXT}"', started_at=held.claimed_at + 1)
        for held in turn.claimed
    ]
    turn = yield from store.turn(worker, "plain", ["plain"], 10, endings)
    assert (len(turn.finished.accepted), turn.promoted, len(turn.claimed)) == (3, 1, 1)
    refused = yield from store.finish([endings[0]])
    assert refused.accepted == []
    for record in (yield from read.records(store, [held.job_id for held in turn.claimed])):
        yield from store.attempts(record.id)
        yield from store.job(record.id, record.created_at)
    yield from store.finish([Ending(turn.claimed[0], Outcome.SNOOZED, delay=SECOND, error=TEXT)])


def old_snapshot(world: World) -> Steps[None]:
    """Claimed and promoted from where it was done before, as PostgreSQL does when many entries of
    its indexes lie before that."""
    store = world.store
    if isinstance(store, PostgresStore):
        store.many_passed = -(10**6)
    worker = yield from enter(store, "snapshot", lease=LARGE)
    yield from put(store, *[new(queue="snapshot") for _ in range(6)])
    yield from put(store, new(queue="snapshot", delay=SECOND // 10))
    for _ in range(3):
        turn = yield from store.turn(worker, "snapshot", ["snapshot"], 2)
        assert len(turn.claimed) == 2
    yield from store.peek(["snapshot"], 1, [], worker)
    world.clock.advance(0.2)
    turn = yield from store.turn(worker, "snapshot", ["snapshot"], 2)
    assert len(turn.claimed) == 1
    if isinstance(store, PostgresStore):
        store.many_passed = heads.MANY


def many_jobs(world: World) -> Steps[None]:
    """So many that they are sent in bulk, each behind another chain."""
    store = world.store
    (first,) = yield from put(store, new(queue="many"))
    yield from put(store, *[new("b", queue="many", key=f"{n}", after=[first]) for n in range(MANY)])
    assert len((yield from store.dependents(first))) == MANY
    (held,) = yield from take(store, "many")
    yield from store.finish([completed(held)])
    found = yield from store.jobs(JobFilter(task="b", state=State.PENDING), MANY)
    assert len(found.records) == MANY
    (first, *_) = yield from put(store, *[new("c", queue="many") for _ in range(MANY)])
    yield from store.complete(first, "null")


def chains(world: World) -> Steps[None]:
    """Jobs that go on, by a worker and from outside."""
    store = world.store
    first, second = yield from put(store, new(queue="chain"), new(queue="chain"))
    held, _ = yield from take(store, "chain")
    yield from store.finish([continued(held, new("next", delay=HOUR, trace=TEXT))])
    yield from store.complete(second, None, new("next", queue="chain"))
    chain, tail = yield from store.chain(first)
    assert (chain.state, tail.position) == (ChainState.OPEN, 1)
    assert (yield from store.run_now(tail.id)).state is State.PENDING
    assert (yield from store.cancel(first, TEXT, TEXT)).id == tail.id
    assert (yield from store.retry(first)).state is State.PENDING
    for newest in (True, False):
        assert len((yield from store.jobs(JobFilter(chain=first), 9, None, newest)).records) == 2


def blockers(world: World) -> Steps[None]:
    """Jobs behind chains that complete, fail, and are retried."""
    store = world.store
    one, two, three = yield from put(store, *[new(queue="block") for _ in range(3)])
    names = [new("d", queue="block", after=[one, two], policy=policy) for policy in Policy]
    waiting = yield from put(store, *names)
    (last,) = yield from put(store, new("e", queue="block", after=[waiting[0]]))
    held = {h.job_id: h for h in (yield from take(store, "block"))}
    assert sorted(held) == [one, two, three]
    yield from store.blockers([*waiting, last])
    going_on = continued(held[three], new("goes on", after=[last]))
    assert (yield from store.finish([going_on])).accepted == [three]
    yield from store.finish([completed(held[one]), failed(held[two], TEXT)])
    assert (yield from store.job(last)).state is State.FAILED
    with pytest.raises(InvalidState):
        yield from store.retry(last)
    yield from store.retry(two)
    assert (yield from store.job(last)).state is State.BLOCKED
    (behind,) = yield from put(store, new("f", queue="block", after=[last]))
    assert (yield from store.job(behind)).state is State.BLOCKED
    yield from store.cancel(two)
    (doomed,) = yield from put(store, new("g", queue="block", after=[two]))
    assert (yield from store.job(doomed)).state is State.FAILED
    many = [new(TEXT, queue="block", arguments=f'["{TEXT}"]') for _ in range(9)]
    behind_all = new("h", queue="block", blockers=[NewBlocker(index=n) for n in range(9)])
    *_, waits = yield from put(store, *many, behind_all)
    assert (yield from store.job(waits)).open_blockers == 9


def groups(world: World) -> Steps[None]:
    """Members that complete, fail, go on and are cancelled; a fan-out by return."""
    store = world.store
    ids = yield from put(store, *[new(queue="group", label=TEXT) for _ in range(5)])
    (last,) = yield from put(store, new("d", queue="group", after=ids, policy=Policy.WAIT))
    held = yield from take(store, "group")
    assert [each.job_id for each in held] == ids
    child = new("c", queue="group", priority=-1)
    following = new("e", children=[child], blockers=[NewBlocker(index=0, name=TEXT)])
    endings = [
        completed(held[0], f'"{TEXT}"'),
        failed(held[1], TEXT),
        continued(held[2], following),
    ]
    assert len((yield from store.finish(endings)).accepted) == 3
    assert (yield from store.group(last)).ended == 2
    assert (yield from store.failed_members(last)) == 1
    assert [member.position for member in (yield from store.bad_members(last, 9))] == [1]
    page = yield from store.members(last, 1, 3)
    assert [member.chain_id for member in page] == ids[1:4]
    assert [end.chain_id for end in (yield from store.chain_ends([last, *ids, 10**9]))]
    assert (yield from store.cancel_members(last, 0, 4, TEXT, TEXT)) == (2, 4)
    assert (yield from store.cancel_members(last, 4, 4)) == (1, None)
    assert (yield from store.group(last)).ended == 5


def keys(world: World) -> Steps[None]:
    """Keys that are taken, found, replaced, freed and taken back."""
    store = world.store
    yield from store.hold_key(TEXT)
    (first,) = yield from put(store, new(key=TEXT, queue="key"))
    assert (yield from put(store, new(key=TEXT, queue="key"))) == [first]
    yield from store.enqueue(
        [new(key=TEXT, arguments="[1]", delay=HOUR, on_conflict="replace", queue="key")]
    )
    assert (yield from store.job(first)).arguments == "[1]"
    (other,) = yield from put(store, new(queue="key other"))
    anew = new(key=TEXT, delay=HOUR, on_conflict="replace", queue="key", policy=Policy.RUN)
    yield from put(store, replace(anew, given=["policy"]))
    waits = replace(anew, blockers=[NewBlocker(chain_id=other)], given=["blockers", "policy"])
    assert (yield from put(store, waits)) == [first]
    assert (yield from store.job(first)).state is State.BLOCKED
    yield from store.cancel(other)
    yield from store.run_now(first)
    (held,) = yield from take(store, "key")
    yield from store.finish([failed(held)])
    assert (yield from store.retry(first)).state is State.PENDING
    yield from store.fail(first, TEXT)
    (second,) = yield from put(store, new(key=TEXT, queue="key"))
    with pytest.raises(DuplicateKey):
        yield from store.retry(first)
    (found,) = yield from put(store, new(key=TEXT, scope="any", window=DAY, queue="key"))
    assert found == second
    line = new("line", key=TEXT, queue="key", on_conflict="after", policy=Policy.RUN)
    first, second, third = yield from put(store, line, line, line)
    yield from put(store, new("line", key=TEXT, queue="key", on_conflict="latest"))
    yield from store.fail(first, TEXT)
    yield from store.retry(first)
    (fourth,) = yield from put(store, replace(line, blockers=[NewBlocker(chain_id=third)]))
    yield from store.cancel(second)
    yield from store.cancel(third)
    assert (yield from store.job(fourth)).state is State.BLOCKED
    yield from store.cancel(fourth)


def leases(world: World) -> Steps[None]:
    """Workers that renew, lose what they hold, and are swept."""
    store = world.store
    yield from put(store, *[new(queue="lease") for _ in range(4)])
    one, two, three, four = yield from take(store, "lease")
    worker = one.worker
    assert worker is not None
    known = {(held.job_id, held.attempt) for held in (one, two, three)}
    assert (yield from store.renew(worker, "lease", SECOND, known)).registered
    assert (yield from store.running(worker)) == known
    assert (yield from store.still_running(one))
    assert not (yield from store.still_running(four))
    released = [Ending(two, Outcome.RELEASED, started=False), Ending(four, Outcome.RELEASED)]
    assert (yield from store.finish(released)).accepted == [two.job_id]
    world.clock.advance(10)
    assert worker in (yield from store.expired()).workers
    assert (yield from store.sweep()) == 2
    assert not (yield from store.renew(worker, "lease", SECOND, known)).registered
    yield from store.unregister((yield from enter(store, "another")))


def parking(world: World) -> Steps[None]:
    """Jobs claimed ahead, that report, and whose task is unknown."""
    store = world.store
    yield from put(store, *[new(TEXT, queue="park") for _ in range(3)])
    worker = yield from enter(store, "park", lease=LARGE)
    held = yield from store.claim(worker, ["park"], 1, "park", 2)
    yield from store.counts()
    reports = [(held[1], 0.1 + 0.2, TEXT), (held[0], None, None)]
    assert (yield from store.progress(reports, [(held[1], world.clock())]))
    assert (yield from store.park(held)) == 3
    assert (yield from store.parked()) == {TEXT: 3}
    assert (yield from store.peek(["park"], 1, [TEXT])).parked
    assert (yield from unpark(store, [TEXT], ["park"])) == 3
    turn = yield from store.turn(worker, "park", ["park"], 3, unpark=[TEXT])
    assert len(turn.claimed) == 3
    yield store.sql.delete_jobs.many(("id",), [(held[0].job_id,)])  # as somebody would by hand
    yield from store.finish([Ending(turn.claimed[0], Outcome.RELEASED)])
    assert (yield from store.drop_orphans(["park"])) == 1


def control(world: World) -> Steps[None]:
    """What people do to jobs that run or wait; queues that stand still."""
    store = world.store
    yield from put(store, *[new(queue="control") for _ in range(4)])
    held = yield from take(store, "control")
    yield from store.complete(held[1].job_id, f'"{TEXT}"', by=TEXT)
    yield from store.cancel(held[2].job_id, TEXT)
    yield from store.fail(held[3].job_id, TEXT)
    yield from store.attempts(held[1].job_id)
    yield from store.pause("control", TEXT)
    assert [tuple(queue)[::2] for queue in (yield from store.paused())] == [("control", TEXT)]
    (waiting,) = yield from put(store, new(queue="control", priority=-1))
    why = yield from store.why(waiting)
    assert (why.before, why.paused is not None) == (0, True)
    assert (yield from claim(store, 1, held[0].worker or 0, ["control"])) == []
    yield from store.resume("control", TEXT)
    touched = yield from store.bulk("retry", JobFilter(queue="control"), False, None, 100, TEXT)
    assert touched.number == 2
    assert (yield from store.why(waiting)).before == touched.number
    assert (yield from store.bulk("cancel", JobFilter(queue="control"), False, None, 1)).number
    yield from world.on_database_clock.pause("other")
    yield from store.resume("other")
    lines = yield from store.audit(None, None, 2)
    assert [line.done_by for line in lines.records] == [TEXT, TEXT]
    assert len((yield from store.audit(None, "control", 9, lines.cursor)).records) == 1
    (line,) = (yield from store.audit(held[2].job_id, None, 9)).records
    assert (line.action, line.number) == ("retry", None)
    assert (yield from store.needed([waiting])) == {}
    each = [waiting] * COPY_FROM
    yield from audit.note(store, TEXT, "retry", number=COPY_FROM, each=each)


def lists(world: World) -> Steps[None]:
    """Every way to walk through jobs and chains, both ways; counts."""
    store = world.store
    jobs: Sequence[JobFilter] = [
        JobFilter(),
        JobFilter(key=TEXT),
        JobFilter(label=TEXT),
        JobFilter(task=TEXT, queue="plain"),
        JobFilter(outcome=Outcome.COMPLETED),
        JobFilter(state=State.PENDING, queue="control"),
        JobFilter(state=State.FAILED),
        JobFilter(roots=True),
        JobFilter(chain_task=TEXT),
        JobFilter(worker=TEXT),
    ]
    chains: Sequence[ChainFilter] = [
        ChainFilter(),
        ChainFilter(task=TEXT),
        ChainFilter(state=ChainState.FAILED),
        ChainFilter(state=ChainState.OPEN),
    ]
    for newest in (True, False):
        for filter in jobs:
            yield from store.jobs(filter, 5, None, newest)
        for of_chains in chains:
            yield from store.chains(of_chains, 5, None, newest)
    now = world.clock()
    found = yield from store.jobs(JobFilter(since=now - DAY, until=now + DAY), 5)
    assert len(found.records) == 5
    yield from store.jobs(JobFilter(), 5, found.cursor)
    yield from store.jobs(JobFilter(ended_since=now - DAY, ended_until=now + DAY), 5)
    yield from store.counts()
    yield from store.counts(by_task=True)
    yield from store.peek(["*"])
    yield from store.resize(1, TEXT, 3)
    yield from store.stats(StatsFilter(), 60)
    yield from store.stats(StatsFilter(), 60, whole=True)
    assert (yield from store.stats(StatsFilter(0, now, "plain", TEXT, Outcome.COMPLETED)))
    assert (yield from store.failures(StatsFilter(now - DAY, now + DAY, "plain", TEXT))).complete
    yield from store.workers()


def schedules(world: World) -> Steps[None]:
    """Set, declared, fired in each way, and all that is done to them."""
    store = world.store
    for overlap in ("skip", "queue", "allow", "replace"):
        cron = Cron(every=60, overlap=overlap, catch_up=3, tz="Europe/Berlin")
        job = new(TEXT, queue="cron", label=TEXT, priority=-3, timeout=LARGE)
        plan = NewSchedule(f"{overlap} {TEXT}", job, cron.timing, 7, 3, overlap)
        yield from store.set_schedule(plan, TEXT)
        yield from store.run_schedule(plan.name)
    yield from take(store, "cron", 2)
    for _ in range(2):
        world.clock.advance(300)
        yield from store.fire([TEXT], 3)
        yield from store.fire([TEXT])
    skip = f"skip {TEXT}"
    yield from store.pause_schedule(skip, TEXT)
    yield from store.schedule(skip)
    yield from store.resume_schedule(skip)
    for task in (None, TEXT):
        page = yield from store.schedules(task, 2)
        yield from store.schedules(task, 9, page.cursor)
    yield from store.jobs(JobFilter(schedule=skip), 5)
    yield from store.jobs(JobFilter(schedule=skip), 5, None, newest=False)
    yield from store.delete_schedule(skip)
    declared = [NewSchedule(name, new("d"), Cron("@daily").timing) for name in ("one", "two")]
    yield from store.declare(declared, ["d"], "first")
    yield from store.declare(declared[:1], ["d"], "second")
    yield from store.glance(["d", TEXT], ["lanes", TEXT], ["lanes", "new", TEXT])
    yield from store.peek(["cron"], 1, ["d", TEXT])


def lanes(world: World) -> Steps[None]:
    """Limits and lanes: filled, served, full, resting, empty, dropped; what is said of them."""
    store, clock = world.store, world.clock

    def job(lane: str | None = TEXT, queue: str = "lanes", **more: Any) -> NewJob:
        return new(queue=queue, lane=lane, **more)

    yield from put(store, job())
    yield from put(store, job(), job("b", weight=2), job("b"), job("c", key="laned"), job(None))
    yield from put(store, job("d", delay=5 * SECOND), *[job("many") for _ in range(MANY)])
    yield from put(store, *[job(f"k{n}", queue="wide", key=f"wide {n}") for n in range(MANY)])
    assert (yield from gate.find(store, ["lanes", "default"])) == ["lanes"]
    yield from store.set_limit("lanes", TEXT, Numbers(1), TEXT)
    yield from store.set_limit("lanes", None, Numbers(20, LARGE % 1000, SECOND))
    yield from store.set_limit("lanes", "gone", Numbers(1))
    yield from store.set_limit("lanes", "gone", Numbers())
    declared = {("lanes", "*"): Numbers(None, 3, SECOND), ("new", ""): Numbers(1)}
    assert not (yield from store.declare_limits(declared, ["lanes"], "first")).postponed
    yield from store.declare_limits({("new", ""): Numbers(1)}, ["lanes"], "second")
    yield from store.declare_limits(declared, ["lanes"], "first")
    held = yield from take(store, "lanes", 12)
    assert len(held) == 8
    clock.advance(6)
    worker = yield from enter(store, "laned")
    turn = yield from store.turn(worker, "laned", ["lanes", "default"], 30, gated=["lanes"])
    assert turn.gated is not None
    waiting = yield from store.jobs(JobFilter(state=State.PENDING, lane=TEXT), 5)
    for record in waiting.records:
        yield from store.why(record.id)
    first, *rest = held
    end = Ending(first, Outcome.SNOOZED, delay=SECOND, rests=True)
    yield from store.finish([end, *[completed(each) for each in rest]])
    yield from store.cancel(turn.claimed[0].job_id)
    yield from store.peek(["lanes"], 5)
    yield from store.limits()
    yield from store.limits("lanes")
    yield from store.lanes("lanes", 5)
    yield from store.drop_orphans(["lanes"])
    yield from store.parked()
    clock.advance(60)
    for _ in range(3):
        more = yield from store.claim(worker, ["lanes"], 200, "laned")
        yield from store.finish([completed(each) for each in more])
    yield from store.set_limit("lanes", None, Numbers())


TOURS: Sequence[Tour] = (
    deleting, plain_jobs, old_snapshot, many_jobs,
    chains, blockers, groups, keys, leases, parking, control, lists, schedules,
    lanes,
)  # fmt: skip
