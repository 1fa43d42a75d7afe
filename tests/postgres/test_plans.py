"""L6, R1, S4: no statement reads more of a big table than it needs, whatever the planner knows.

On 25,000 jobs of each kind, without statistics, with statistics of everything, and with those of a
time when there were hardly any jobs; with plans made for the parameters and with plans made for
any; on our own connections and, for what callers run, on theirs, where no setting is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import psycopg
import pytest
from msgspec.structs import replace

from bench.seed import BLOCKED, FINISHED, PENDING, PREFIX, SCHEDULED, STRANGER, TASK, Numbers
from tests import servers
from tests.kit import completed, continued, failed, new
from tests.postgres.plans import BIG_TABLES, QUEUES, Explained, explain, fill
from tests.speed import by_speed
from towline import Cron, Towline
from towline.model import ChainState, Outcome, Policy, State
from towline.operation import Op, Query, Steps
from towline.postgres.store import PostgresStore
from towline.postgres.transaction import SETTINGS
from towline.records import Claimed, Ending, NewBlocker
from towline.schedule import NewSchedule
from towline.store import Store, gate
from towline.store.ground import host_clock
from towline.store.limit import Numbers as Limits
from towline.store.listing import ChainFilter, JobFilter
from towline.store.retention import KeepFor
from towline.store.schedule import ADVANCE
from towline.store.stats import StatsFilter
from towline.store.turn import promote, unpark
from towline.store.waiting import BLOCK_AGAIN

EACH = 25_000
NUMBERS = Numbers.each(EACH, len(QUEUES))
STATISTICS = ("of 100 jobs", "none", "of everything")
MODES = ("force_custom_plan", "force_generic_plan")
MOST = 2_000  # rows that a statement may look at; a few in a hundred of any kind

# By design read from one end on: by probing, or up to a number (R2: 100,000). Parked jobs of a
# queue are counted by going through all that are parked; whether there is any at all is the first
# entry of their index, and so is when the next job is due.
WALKED = {
    "live_strips", "job_strips", "id_bounds", "count_live", "count_strip", "count_strips",
    "count_tasks", "next_due", "next_due_above", "peek_pending",
    "peek_pending_above", "count_parked",
}  # fmt: skip
COUNTED = {"count_strip", "count_strips", "count_tasks", "count_live"}
# With statistics of a time long gone, or in a plan for any parameters, the ids may be taken too.
MISLED = {f"{order} jobs by queue: walk_strip_{order}" for order in ("newest", "oldest")}
# Without any, those of a task are thought to be fewer than a page: all are sorted.
NOT_KNOWN = {"schedules: list_schedules_of_task"}
# Asked only when open jobs are few, or when somebody else holds a row.
NOT_RUN = {"open_chain_ids", "still_running"}

Ops = Sequence[Callable[[], Op[Any]]]


def store_of(url: str) -> Store:
    return Towline(url).runner.store


def one(op: Callable[[Store, Numbers], Op[Any]]) -> Callable[[Store, Numbers], Ops]:
    return lambda store, numbers: [lambda: op(store, numbers)]


def with_held(
    script: Callable[[Store, list[Claimed]], Steps[Any]], room: int = 10
) -> Callable[[Store, Numbers], Ops]:
    """Claim, and do something with what was claimed."""

    def ops(store: Store, numbers: Numbers) -> Ops:
        def steps() -> Steps[None]:
            held = yield from store.claim(1, QUEUES, room)
            assert len(held) == room
            yield from script(store, held)

        return [lambda: Op("script", steps)]

    return ops


def turn(store: Store, held: list[Claimed]) -> Steps[None]:
    after = yield from store.turn(1, "w1", QUEUES, 10, [completed(job) for job in held])
    assert len(after.finished.accepted) == len(after.claimed) == 10


def finish_all_ways(store: Store, held: list[Claimed]) -> Steps[None]:
    endings = [
        *map(completed, held[:2]),
        *(failed(job, delay=1) for job in held[2:4]),
        *(failed(job) for job in held[4:6]),
        *(continued(job, new(queue="queue0")) for job in held[6:8]),
        *(continued(job, new(after=[1, 50])) for job in held[8:]),
    ]
    assert len((yield from store.finish(endings, "w1", 1)).accepted) == 10


def park_and_unpark(store: Store, held: list[Claimed]) -> Steps[None]:
    assert (yield from store.park(held)) == 10
    assert (yield from unpark(store, [STRANGER], QUEUES, 10)) == 10


def renew(store: Store, held: list[Claimed]) -> Steps[None]:
    yield from store.progress([(job, 0.5, "half") for job in held])
    yield from store.renew(1, "w1", 1, [(job.job_id, job.attempt) for job in held])


def end_with_dependents(how: str) -> Callable[[Store, Numbers], Ops]:
    """A chain that somebody waits for: each scheduled one has a job behind it."""

    def ops(store: Store, numbers: Numbers) -> Ops:
        chain = numbers.ids(SCHEDULED)[0]

        def steps() -> Steps[None]:
            if how == "completed":
                yield from store.complete(chain, "null")
            else:
                yield from store.fail(chain, "broken")
                yield from store.retry(chain)

        return [lambda: Op("script", steps)]

    return ops


def keyed(**fields: Any) -> Callable[[Store, Numbers], Ops]:
    job = new(TASK, queue="queue0", **fields)
    return lambda store, numbers: [lambda: store.enqueue([job]), lambda: store.enqueue([job])]


def jobs(newest: bool, **where: Any) -> Callable[[Store, Numbers], Ops]:
    return lambda store, numbers: [lambda: store.jobs(JobFilter(**where), 50, None, newest)]


def chains(newest: bool, **where: Any) -> Callable[[Store, Numbers], Ops]:
    return lambda store, numbers: [lambda: store.chains(ChainFilter(**where), 50, None, newest)]


def lists(newest: bool) -> dict[str, Callable[[Store, Numbers], Ops]]:
    """A page by each filter there is, from the newest or the oldest on."""
    by_state = {f"{state} jobs": jobs(newest, state=state) for state in State}
    by_end = {f"{state} chains": chains(newest, state=state) for state in ChainState}
    found = {
        "jobs": jobs(newest),
        **by_state,
        "jobs by outcome": jobs(newest, outcome=Outcome.COMPLETED),
        "jobs by task": jobs(newest, task=TASK),
        "first jobs of chains": jobs(newest, roots=True),
        "jobs by the task of their chain": jobs(newest, chain_task=TASK),
        "jobs by queue": jobs(newest, queue="queue0"),
        "pending jobs of a queue": jobs(newest, queue="queue0", state=State.PENDING),
        "jobs by key": jobs(newest, key="k7"),
        "jobs by label": jobs(newest, label="l7"),
        "jobs by schedule": jobs(newest, schedule="s7"),
        "jobs of a chain": jobs(newest, chain=7),
        "jobs since": jobs(newest, since=0, until=2**60),
        "jobs by their end": jobs(newest, ended_since=0, ended_until=2**60),
        "chains": chains(newest),
        **by_end,
        "chains by task": chains(newest, task=TASK),
    }
    order = "newest" if newest else "oldest"
    return {f"{order} {name}": ops for name, ops in found.items()}


def script(steps: Callable[[Store], Steps[Any]]) -> Callable[[Store, Numbers], Ops]:
    return lambda store, numbers: [lambda: Op("script", lambda: steps(store))]


def a_key_through_its_life(store: Store) -> Steps[None]:
    ((job, _),) = yield from store.enqueue([new(TASK, key="mine")])
    yield from store.fail(job.id, "broken")
    yield from store.retry(job.id)
    yield from store.complete(job.id, "null")


def a_line_of_a_key(store: Store) -> Steps[None]:
    line = new(TASK, key="line", on_conflict="after", policy=Policy.RUN)
    jobs = yield from store.enqueue([line] * 5)
    first, second, third, fourth, fifth = [job.id for job, _ in jobs]
    for how in ("latest", "replace"):
        yield from store.enqueue([replace(line, on_conflict=how)])
    yield from store.cancel(third)
    yield from store.fail(first, "broken")
    yield from store.retry(first)
    declared = [NewBlocker(chain_id=fifth)]
    yield from store.enqueue([replace(line, blockers=declared)])
    anew = replace(line, blockers=declared, on_conflict="replace", given=["blockers"])
    yield from store.enqueue([anew])
    for id in (second, fourth, fifth):
        yield from store.cancel(id)


def complete_a_running_one(store: Store) -> Steps[None]:
    (held,) = yield from store.claim(1, QUEUES, 1)
    yield from store.complete(held.job_id, "null")


def finish_what_others_wait_for(store: Store) -> Steps[None]:
    for ending in (completed, failed):
        ((root, _),) = yield from store.enqueue([new(queue="mine")])
        yield from store.enqueue([new(after=[root.id]) for _ in range(3)])
        (held,) = yield from store.claim(1, ["mine"], 1)
        assert (yield from store.finish([ending(held)], "w1", 1)).accepted


def schedules(store: Store) -> Steps[None]:
    """All that is done to schedules but firing."""
    cron = Cron("* * * * *")
    yield from store.set_schedule(NewSchedule("mine", new(TASK), cron.timing))
    yield from store.schedules(None, 50, "s5")
    yield from store.schedules("t1", 50, "s5")
    yield from store.pause_schedule("s7")
    yield from store.resume_schedule("s7")
    yield from store.run_schedule("s7")
    yield from store.delete_schedule("mine")


def fire_and_declare(store: Store) -> Steps[None]:
    """The job before of one schedule has not ended, and is replaced."""
    ((before, _),) = yield from store.enqueue([new(queue="mine")])
    row = (60_000_000, None, before.chain_id, 0, 0, 0, "s7")
    yield store.sql.advance_schedules.many(ADVANCE, [row])
    assert (yield from store.fire(["t1", "t2"])).jobs == 1
    yield from store.glance(["t1", "t2"])
    yield from store.peek(QUEUES, 5, ["t1", "t2"])
    declared = [NewSchedule(f"s{n}", new("t0"), Cron("* * * * *").timing) for n in (1000, 2000)]
    yield from store.declare(declared, ["t0"], "d2")
    yield from store.declare(declared, ["t0"], "d3")
    yield from store.share_now(before.chain_id)


def begin_what_was_claimed_ahead(store: Store) -> Steps[None]:
    held = yield from store.claim(1, QUEUES, 1, None, 9)
    yield from store.progress((), [(job, job.claimed_at) for job in held])


def promote_ten(store: Store) -> Steps[None]:
    text = "UPDATE towline_live SET run_at = 1 WHERE job_id = "
    for job, _ in (yield from store.enqueue([new(delay=2**50) for _ in range(10)])):
        yield Query("due", f"{text}{job.id}")()
    assert (yield from promote(store)) == 10


def under_an_old_snapshot(store: Store) -> Steps[None]:
    """From where the last claim and the last promotion began, once they have passed anything. Time
    stands still: a quarter of a second later they would begin from the very beginning."""
    moment = host_clock()
    still = PostgresStore(store.sql, None, lambda: moment)
    still.many_passed = 0
    for _ in range(2):
        assert len((yield from still.turn(1, "w1", QUEUES, 10)).claimed) == 10
    yield from still.turn(1, "w1", ["of none"], 10)
    yield from still.peek(QUEUES, 5, [], 1)


def first(kind: str, op: Callable[..., Op[Any]], *more: Any) -> Callable[[Store, Numbers], Ops]:
    """An operation on the first job of a kind."""
    return lambda store, numbers: [lambda: op(store, numbers.ids(kind)[0], *more)]


def work_in_lanes(store: Store) -> Steps[None]:
    """Beside thousands of lanes, half of them closed: turns, looks, notes, changes."""
    held = yield from store.claim(1, ["laned"], 20)
    assert len(held) == 20
    rest, *others = held
    ends = [Ending(rest, Outcome.SNOOZED, delay=10, rests=True), *map(completed, others)]
    turn = yield from store.turn(1, "w1", ["laned", "queue0"], 20, ends, gated=["laned"])
    assert len(turn.claimed) == 20
    yield from store.enqueue([new(queue="laned", lane=f"l{n}") for n in range(50)])
    yield from store.enqueue([new(queue="fresh", lane="a", key="laned")])
    assert len((yield from store.claim(1, ["fresh"], 2))) == 1
    assert (yield from store.peek(["laned"], 5)).pending
    yield from store.declare_limits({("fresh", "*"): Limits(1)}, ["laned"], "d")
    yield from store.declare_limits({}, ["fresh"], "d")


def look_at_lanes(store: Store) -> Steps[None]:
    yield from store.limits()
    yield from store.lanes("laned", 50)
    ((job, _),) = yield from store.enqueue([new(queue="laned", lane="l1")])
    yield from store.why(job.id)
    yield from store.set_limit("laned", "l1", Limits(0))
    yield from store.why(job.id)
    yield from store.set_limit("laned", "l1", Limits())
    yield from store.set_limit("other", None, Limits(1, 2, 1000000))
    yield from store.parked(100)
    yield from gate.find(store, ["laned", "queue0"])


def groups(store: Store, blocked: int) -> Steps[None]:
    """What is behind a job, as a group: its members, how many have ended, those that failed."""
    yield from store.group(blocked)
    yield from store.members(blocked, 0, 50)
    yield from store.failed_members(blocked)
    yield from store.bad_members(blocked, 5)
    yield from store.chain_ends([1, 2, blocked])


def rare(store: Store, blocked: int) -> Steps[None]:
    """Statements of branches that the tables here do not lead to."""
    yield store.sql.inner_jobs(chain_id=1, limit=10)
    yield store.sql.count_strips(state=0, limit=100)
    yield store.sql.later_jobs(chains="[1, 2, 3]", limit=100)
    yield from store.hold_key("k7")
    yield store.sql.block_again.many(BLOCK_AGAIN, [(1, 2, "queue0", 0, blocked)])


# What callers run on connections of their own.
CALLERS: dict[str, Callable[[Store, Numbers], Ops]] = {
    "enqueue": one(lambda store, n: store.enqueue([new(queue="queue0")])),
    "enqueue 100": one(lambda store, n: store.enqueue([new(queue="queue0") for _ in range(100)])),
    "enqueue with a new key": keyed(key="fresh"),
    "enqueue with a key once taken": keyed(key="k7"),
    "enqueue with a key for ever": keyed(key="k7", scope="any"),
    "enqueue and replace": keyed(key="fresh", on_conflict="replace"),
    "enqueue behind chains": one(
        lambda store, n: store.enqueue([new(after=[1, 2, n.ids(SCHEDULED)[5], n.ids(PENDING)[0]])])
    ),
    "enqueue behind a failed one": one(lambda store, n: store.enqueue([new(after=[50])])),
    "cancel": first(PENDING, Store.cancel),
    "cancel what others wait for": first(SCHEDULED, Store.cancel),
    "complete what others wait for": end_with_dependents("completed"),
    "fail and retry what others wait for": end_with_dependents("failed"),
    "retry": one(lambda store, n: store.retry(5 * len(n.ids(FINISHED)) + 50)),
    "run now": first(SCHEDULED, Store.run_now),
    "delete": one(lambda store, n: store.delete([n.ids(FINISHED)[0]])),
    "delete with what it waits for": one(
        lambda store, n: store.delete([n.ids(BLOCKED)[0]], cascade=True)
    ),
    "what only long chains and many queues need": one(
        lambda store, n: Op("rare", lambda: rare(store, n.ids(BLOCKED)[0]))
    ),
    "groups": one(lambda store, n: Op("groups", lambda: groups(store, n.ids(BLOCKED)[0]))),
    "one job": first(PENDING, Store.job),
    "one chain": first(FINISHED, Store.chain),
    "attempts": first(FINISHED, Store.attempts),
    "attempts of many": one(lambda store, n: store.attempts_of(n.ids(FINISHED)[:50])),
    "blockers": one(lambda store, n: store.blockers([n.ids(BLOCKED)[0]])),
    "dependents": first(SCHEDULED, Store.dependents),
    "cancel by filter": one(
        lambda store, n: store.bulk("cancel", JobFilter(state=State.BLOCKED), False, None, 10)
    ),
    "a key through its life": script(a_key_through_its_life),
    "a line of a key": script(a_line_of_a_key),
    "complete a running one": script(complete_a_running_one),
    "counts": one(lambda store, n: store.counts()),
    "counts by task": one(lambda store, n: store.counts(by_task=True)),
    "why": first(PENDING, Store.why),
    "schedules": script(schedules),
    "graph": one(lambda store, n: store.graph(n.ids(BLOCKED)[0], 50)),
    "failures": one(lambda store, n: store.failures(StatsFilter())),
    "look at lanes": script(look_at_lanes),
    **lists(newest=True),
    **lists(newest=False),
}
# What workers do, on our own connections.
WORKERS: dict[str, Callable[[Store, Numbers], Ops]] = {
    "claim 10 of 5 queues": one(lambda store, n: store.claim(1, QUEUES, 10)),
    "claim under an old snapshot": script(under_an_old_snapshot),
    "claim 10 of one queue": one(lambda store, n: store.claim(1, QUEUES[:1], 10)),
    "begin what was claimed ahead": script(begin_what_was_claimed_ahead),
    "drop orphans": one(lambda store, n: store.drop_orphans(QUEUES[:1])),
    "turn": with_held(turn),
    "finish in every way": with_held(finish_all_ways),
    "park and unpark": with_held(park_and_unpark),
    "progress and renew": with_held(renew),
    "finish what others wait for": script(finish_what_others_wait_for),
    "promote": script(promote_ten),
    "work in lanes": script(work_in_lanes),
    "peek": one(lambda store, n: store.peek(QUEUES, 5)),
    "fire and declare": script(fire_and_declare),
    "enqueue many": one(lambda store, n: store.enqueue([new(TASK, queue="queue0")] * 600)),
    "sweep": one(lambda store, n: store.sweep(gone=[1], limit=100)),
    "prune": one(lambda store, n: store.prune(KeepFor(0, 0, 0), 10)),
}
OPERATIONS = {**CALLERS, **WORKERS}


# ---- databases


class Filled(NamedTuple):
    url: str
    numbers: Numbers
    statistics: str


def cases() -> list[tuple[str, int, str]]:
    """Everything on the newest server; on the others that the statements are the same there. What
    misleads the planner most is always tried, the rest in a proof."""
    *others, newest = servers.servers()
    found = [(newest, EACH, statistics) for statistics in STATISTICS]
    found += [(name, 10_000, "of everything") for name in others]
    return by_speed(found[:1], found)


def name_of(case: tuple[str, int, str]) -> str:
    return f"{case[0]}, {case[2]}"


@pytest.fixture(scope="session")
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    """A database and what is in it; shared, since nothing that is done there stays."""
    name, each, statistics = request.param
    server = servers.server(name)
    stale = statistics == "of 100 jobs"
    template = server.template(
        "plans_stale" if stale else "plans",
        lambda url: fill(url, each, statistics if stale else "none"),
    )
    with server.database(template) as url:
        if statistics == "of everything":
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute("ANALYZE")
        yield Filled(url, Numbers.each(each, len(QUEUES)), statistics)


# ---- what is asserted


def faults(explained: Explained) -> list[str]:
    """What a statement read that it should not have."""
    found = []
    if explained.name not in WALKED:
        found += explained.whole()
    if explained.name not in COUNTED:
        number = max(explained.examined(), explained.sorted())
        found += [f"{number} rows"] if number > MOST else []
    return [f"{fault}\n{explained}" for fault in found]


WAYS = {
    "ours, for the parameters": (OPERATIONS, f"{SETTINGS}; SET LOCAL plan_cache_mode = {MODES[0]}"),
    "ours, for any": (OPERATIONS, f"{SETTINGS}; SET LOCAL plan_cache_mode = {MODES[1]}"),
    # Nothing is prepared there, so a plan is always for the parameters.
    "a caller's": (CALLERS, ""),
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("filled", cases(), indirect=True, ids=name_of)
def test_L6_R1_S4_no_statement_reads_the_backlog(filled: Filled) -> None:
    store = store_of(filled.url)
    for way in (
        by_speed(list(WAYS)[1:], list(WAYS)) if filled.numbers == NUMBERS else ["ours, for any"]
    ):
        operations, settings = WAYS[way]
        found: dict[str, list[str]] = {}
        seen: set[str] = set()
        for name, ops in operations.items():
            for explained in explain(filled.url, ops(store, filled.numbers), settings):
                seen.add(explained.name)
                if wrong := faults(explained):
                    found.setdefault(f"{name}: {explained.name}", wrong)
        misled = way == "ours, for any" or filled.statistics == "of 100 jobs"
        for name in MISLED if misled else ():
            found.pop(name, None)
        for name in NOT_KNOWN if filled.statistics == "none" else ():
            found.pop(name, None)
        told = "\n\n".join(line for lines in found.values() for line in lines)
        assert found == {}, f"{way}\n\n{told}"
        if operations is OPERATIONS:
            assert on_big_tables(store) - seen == NOT_RUN, way


def on_big_tables(store: Store) -> set[str]:
    """The names of all statements that touch one."""
    tables = "|".join(BIG_TABLES)
    return {query.name for query in store.sql if re.search(rf"{PREFIX}({tables})\b", query.text)}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("filled", cases()[:1], indirect=True, ids=name_of)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT job_id FROM towline_live WHERE state + 0 = 0 LIMIT 1 OFFSET 5000",
        "SELECT job_id FROM towline_live WHERE state = 0 ORDER BY attempt, job_id LIMIT 1",
        "SELECT count(*) FROM towline_live WHERE state = 0 AND queue = 'queue0'",
    ],
)
def test_the_count_finds_a_statement_that_reads_too_much(filled: Filled, text: str) -> None:
    """The test of the test."""

    def steps() -> Steps[None]:
        yield Query("bad", text)()

    def op() -> Op[None]:
        return Op("bad", steps)

    (explained,) = explain(filled.url, [op], SETTINGS)
    assert faults(explained)
