"""Ten tours that together run every statement of an operation, in every form.

Each is a script in one transaction, on the database that the tours before it have left. What they
find is compared with what our own connection finds, row by row; what is right about it, the cases
of this folder say there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from tests.kit import DAY, HOUR, SECOND, Clock, claim, completed, continued, failed, new, put
from tests.kit import register as enter
from towline.errors import DuplicateKey, InvalidState
from towline.model import ChainState, Claimed, Ending, Outcome, Policy, State
from towline.operation import Steps
from towline.store import Store, read
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


def keys(world: World) -> Steps[None]:
    """Keys that are taken, found, replaced, freed and taken back."""
    store = world.store
    (first,) = yield from put(store, new(key=TEXT, queue="key"))
    assert (yield from put(store, new(key=TEXT, queue="key"))) == [first]
    yield from store.enqueue(
        [new(key=TEXT, arguments="[1]", delay=HOUR, on_conflict="replace", queue="key")]
    )
    assert (yield from store.job(first)).arguments == "[1]"
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
    yield from store.resume("control")
    touched = yield from store.bulk("retry", JobFilter(queue="control"), False, None, 100)
    assert touched.number == 2
    assert (yield from store.why(waiting)).before == touched.number
    assert (yield from store.bulk("cancel", JobFilter(queue="control"), False, None, 1)).number
    yield from world.on_database_clock.pause("other")
    yield from store.resume("other")


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
    yield from store.counts()
    yield from store.stats(StatsFilter(), 60)
    assert (yield from store.stats(StatsFilter(0, now, "plain", TEXT, Outcome.COMPLETED)))
    assert (yield from store.failures(StatsFilter(now - DAY, now + DAY, "plain", TEXT))).complete
    yield from store.workers()


TOURS: Sequence[Tour] = (
    deleting, plain_jobs, many_jobs, chains, blockers, keys, leases, parking, control, lists,
)  # fmt: skip
