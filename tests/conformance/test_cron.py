"""Schedules: ticks that have come become jobs, in one commit with the next tick. Every kind.

The clock begins at a full minute; schedules tick every minute unless a case says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.kit import DAY, MINUTE, SECOND, Clock, claim, completed, failed, new, register, states
from towline import Cron
from towline.errors import InvalidState, NotFound
from towline.model import Outcome, State
from towline.operation import Steps
from towline.records import Ending, JobRecord
from towline.schedule import NewSchedule, ScheduleRecord
from towline.store import Store, read
from towline.store.listing import JobFilter
from towline.store.schedule import Fired

EVERY_MINUTE = Cron("* * * * *")
TASKS = ["a"]


def plan(name: str = "s", cron: Cron = EVERY_MINUTE, task: str = "a", **job: Any) -> NewSchedule:
    jitter = round(float(cron.jitter) * SECOND) if isinstance(cron.jitter, int | float) else 0
    return NewSchedule(name, new(task, **job), cron.timing, jitter, cron.catch_up, cron.overlap)


def look(store: Store, name: str = "s") -> Steps[ScheduleRecord]:
    return (yield from store.schedule(name)).record


def jobs_of(store: Store, name: str = "s") -> Steps[list[JobRecord]]:
    """Oldest first."""
    filter = JobFilter(schedule=name)
    return (yield from store.jobs(filter, 10_000, None, newest=False)).records


def counters(store: Store, name: str = "s") -> Steps[tuple[int, int, int]]:
    record = yield from look(store, name)
    return record.ticks, record.skipped, record.missed


def ticks_of(store: Store, name: str = "s") -> Steps[list[int | None]]:
    return [job.tick for job in (yield from jobs_of(store, name))]


def run_all(store: Store) -> Steps[list[int]]:
    """Claim and complete until nothing is pending; the ticks in the order they ran."""
    ran: list[int] = []
    while held := (yield from claim(store, 1)):
        ran += [job.tick or 0 for job in held]
        yield from store.finish([completed(job) for job in held])
    return ran


def test_a_tick_is_a_job_and_the_next_tick_is_stored(
    play: Play, store: Store, clock: Clock
) -> None:
    begin = clock()

    def script() -> Steps[None]:
        seen = yield from store.set_schedule(plan(queue="mail", priority=3, label="x", timeout=9))
        assert seen.record.next_at == begin + MINUTE
        early = yield from store.fire(TASKS)
        assert early == Fired(0, False, begin + MINUTE, begin)
        clock.advance(60)
        assert (yield from store.fire(TASKS)) == Fired(1, False, begin + 2 * MINUTE, clock())
        assert (yield from store.fire(TASKS)).jobs == 0
        (job,) = yield from jobs_of(store)
        assert (job.task, job.queue, job.priority, job.label) == ("a", "mail", 3, "x")
        assert (job.timeout, job.schedule, job.tick, job.state) == (
            9, "s", begin + MINUTE, State.PENDING,
        )  # fmt: skip
        record = yield from look(store)
        assert (record.next_at, record.last_tick) == (begin + 2 * MINUTE, begin + MINUTE)
        assert (record.last_chain, record.ticks) == (job.id, 1)

    play(script)


def test_N1_the_jobs_of_a_tick_and_the_next_tick_are_one_commit(
    play: Play, store: Store, clock: Clock
) -> None:
    class Away(Exception):
        pass

    def broken() -> Steps[None]:
        assert (yield from store.fire(TASKS)).jobs == 1
        raise Away

    def look_at_all() -> Steps[tuple[int, int]]:
        return (yield from look(store)).ticks, len((yield from jobs_of(store)))

    play(lambda: iter(store.set_schedule(plan())))
    clock.advance(60)
    with pytest.raises(Away):
        play(broken)
    assert play(look_at_all) == (0, 0)
    play(lambda: iter(store.fire(TASKS)))
    assert play(look_at_all) == (1, 1)


def test_N2_a_schedule_that_was_rolled_back_never_existed(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from store.set_schedule(plan())

    def fired() -> Steps[int]:
        return (yield from store.fire(TASKS)).jobs

    play.with_own_write(script, keep=False)
    clock.advance(120)
    assert play(fired) == 0
    with pytest.raises(NotFound, match="there is no schedule named 's'"):
        play(lambda: look(store))
    play.with_own_write(script, keep=True)
    clock.advance(60)
    assert play(fired) == 1


def test_N4_as_many_as_are_due_are_fired_and_no_more(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        for n in range(60):
            yield from store.set_schedule(plan(f"due{n}"))
        yield from store.set_schedule(plan("daily", Cron("0 0 * * *")))
        clock.advance(60)
        first = yield from store.fire(TASKS)
        assert (first.jobs, first.next_tick) == (50, clock())
        second = yield from store.fire(TASKS)
        assert (second.jobs, second.next_tick) == (10, clock() + MINUTE)

    play(script)


# ---- catching up


@pytest.mark.parametrize("overlap", ["skip", "queue", "allow"])
@pytest.mark.parametrize(
    ("catch_up", "late", "expected"),
    [
        (0, 10, 1), (0, 60, 1), (0, 61, 0), (1, 10, 1), (1, 61, 1), (3, 10, 3), (3, 61, 3),
        (1000, 61, 10),
    ],
)  # fmt: skip
def test_N5_after_an_outage_the_newest_are_made_good(
    play: Play, store: Store, clock: Clock, overlap: Any, catch_up: int, late: int, expected: int
) -> None:
    """Ten ticks of five minutes, and the outage ends so many seconds after the last of them."""
    begin = clock()
    first = begin - begin % (5 * MINUTE) + 5 * MINUTE
    newest = first + 45 * MINUTE
    due = [first + n * 5 * MINUTE for n in range(10)]

    def script() -> Steps[None]:
        yield from register(store)
        cron = Cron("*/5 * * * *", catch_up=catch_up, overlap=overlap)
        yield from store.set_schedule(plan(cron=cron))
        clock.time = newest + late * SECOND
        assert (yield from store.fire(TASKS)).jobs == expected
        wanted = due[10 - expected :]
        assert (yield from ticks_of(store)) == wanted
        assert (yield from counters(store)) == (expected, 0, 10 - expected)
        found = yield from jobs_of(store)
        waiting = [job.state is State.BLOCKED for job in found]
        if overlap == "allow":
            assert not any(waiting)
        else:
            assert waiting == [False] * bool(expected) + [True] * max(expected - 1, 0)
        assert (yield from run_all(store)) == wanted
        assert (yield from look(store)).next_at == newest + 5 * MINUTE

    play(script)


def test_N5_replace_takes_the_newest_alone(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        cron = Cron("* * * * *", catch_up=3, overlap="replace")
        yield from store.set_schedule(plan(cron=cron))
        clock.advance(600)
        assert (yield from store.fire(TASKS)).jobs == 1
        assert (yield from ticks_of(store)) == [clock()]
        assert (yield from counters(store)) == (1, 2, 7)

    play(script)


@pytest.mark.parametrize("catch_up", [0, 1, 4])
def test_N5_a_year_of_minutes_is_counted(
    play: Play, store: Store, clock: Clock, catch_up: int
) -> None:
    def script() -> Steps[None]:
        cron = Cron("* * * * *", tz="Europe/Berlin", catch_up=catch_up)
        yield from store.set_schedule(plan(cron=cron))
        clock.advance(365 * 86400)
        fired = max(catch_up, 1)  # the newest is on time
        assert (yield from store.fire(TASKS)).jobs == fired
        assert (yield from counters(store)) == (fired, 0, 365 * 24 * 60 - fired)

    play(script)


# ---- overlap


def before_the_tick(store: Store, clock: Clock, how: str) -> Steps[int]:
    """The job of the tick before stands as `how` says; its id."""
    clock.advance(60)
    assert (yield from store.fire(TASKS)).jobs == 1
    (job,) = yield from jobs_of(store)
    if how in ("running", "retry", "continued"):
        (held,) = yield from claim(store)
        if how == "retry":
            yield from store.finish([failed(held, delay=600 * SECOND)])
        elif how == "continued":
            yield from store.finish([Ending(held, Outcome.CONTINUED, next=new("b"))])
    elif how == "cancelled":
        yield from store.cancel(job.id)
    elif how == "completed":
        yield from store.complete(job.id, "1")
    elif how == "deleted":
        yield from store.delete([job.id])
    clock.advance(60)
    return job.id


# What the next tick does: S it is skipped, J a job, B a job behind the first, R a job in its place.
POLICIES = {
    "skip": {"pending": "S", "running": "S", "retry": "S", "continued": "S"},
    "queue": {"pending": "S", "running": "B", "retry": "B", "continued": "B"},
    "allow": {"pending": "J", "running": "J", "retry": "J", "continued": "J"},
    "replace": {"pending": "R", "running": "R", "retry": "R", "continued": "R"},
}


@pytest.mark.parametrize(
    "how", ["pending", "running", "retry", "continued", "cancelled", "completed", "deleted"]
)
@pytest.mark.parametrize("overlap", POLICIES)
def test_N6_what_a_tick_does_while_the_job_before_stands_so(
    play: Play, store: Store, clock: Clock, overlap: Any, how: str
) -> None:
    wanted = POLICIES[overlap].get(how, "J")

    def script() -> Steps[None]:
        yield from register(store)
        yield from store.set_schedule(plan(cron=Cron("* * * * *", overlap=overlap)))
        first = yield from before_the_tick(store, clock, how)
        fired = yield from store.fire(TASKS)
        assert not fired.postponed
        assert fired.jobs == (wanted != "S")
        assert (yield from counters(store)) == ((1, 1, 0) if wanted == "S" else (2, 0, 0))
        record = yield from look(store)
        if wanted == "S":
            assert record.last_chain == first
            assert record.last_tick == clock() - MINUTE
            return
        assert record.last_chain != first
        (second,) = yield from states(store, record.last_chain or 0)
        assert second is (State.BLOCKED if wanted == "B" else State.PENDING)
        if wanted == "R":
            chain, last = yield from store.chain(first)
            assert chain.state == "cancelled"
            assert (last.last_error or "").startswith("replaced by the tick of 2027-")
            assert last.ended_by == "schedule s"
        if wanted == "B":
            yield from store.fail(first, "no matter")
            assert (yield from states(store, record.last_chain or 0)) == [State.PENDING]

    play(script)


def test_N6_of_those_that_wait_behind_one_there_is_one(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from register(store)
        yield from store.set_schedule(plan(cron=Cron("* * * * *", overlap="queue")))
        yield from before_the_tick(store, clock, "running")
        assert (yield from store.fire(TASKS)).jobs == 1
        clock.advance(60)
        assert (yield from store.fire(TASKS)).jobs == 0
        assert (yield from counters(store)) == (2, 1, 0)

    play(script)


# ---- jitter, start and end


def test_N7_jitter_moves_the_start_and_not_the_tick(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        cron = Cron("* * * * *", jitter=50, overlap="allow")
        for n in range(20):
            yield from store.set_schedule(plan(f"s{n}", cron=cron))
        clock.advance(60)
        yield from store.fire(TASKS)
        starts: list[int] = []
        for n in range(20):
            (job,) = yield from jobs_of(store, f"s{n}")
            assert job.tick == clock()
            starts.append((job.run_at or 0) - clock())
        assert min(starts) >= 0
        assert max(starts) <= 50 * SECOND
        assert len(set(starts)) > 15

    play(script)


def test_N12_after_its_last_tick_a_schedule_stays(play: Play, store: Store, clock: Clock) -> None:
    from towline.times import to_datetime

    begin = clock()

    def script() -> Steps[None]:
        start, end = to_datetime(begin + 2 * MINUTE), to_datetime(begin + 3 * MINUTE)
        cron = Cron("* * * * *", start=start, end=end, overlap="allow", catch_up=9)
        seen = yield from store.set_schedule(plan(cron=cron))
        assert seen.record.next_at == begin + 2 * MINUTE
        clock.advance(600)
        fired = yield from store.fire(TASKS)
        assert (fired.jobs, fired.next_tick) == (2, None)
        assert (yield from ticks_of(store)) == [begin + 2 * MINUTE, begin + 3 * MINUTE]
        record = yield from look(store)
        assert (record.next_at, record.ticks) == (None, 2)
        assert (yield from store.fire(TASKS)).jobs == 0

    play(script)


# ---- control


def test_N8_a_pause_is_no_outage(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        yield from store.set_schedule(plan(cron=Cron("* * * * *", catch_up=9)))
        clock.advance(60)
        seen = yield from store.pause_schedule("s", "ann")
        assert (seen.record.paused_at, seen.record.paused_by) == (clock(), "ann")
        again = yield from store.pause_schedule("s", "bob")
        assert again.record.paused_by == "ann"
        assert (yield from store.fire(TASKS)) == Fired(0, False, None, clock())
        clock.advance(600)
        resumed = (yield from store.resume_schedule("s", "bob")).record
        assert (resumed.next_at, resumed.paused_at) == (clock() + MINUTE, None)
        assert (yield from store.fire(TASKS)).jobs == 0
        clock.advance(60)
        assert (yield from store.fire(TASKS)).jobs == 1
        assert (yield from counters(store)) == (1, 0, 0)
        untouched = yield from store.resume_schedule("s")
        assert untouched.record.next_at == clock() + MINUTE
        lines = (yield from store.audit(None, None, 100)).records
        assert [(line.action, line.done_by, line.chosen) for line in reversed(lines)] == [
            ("pause_schedule", "ann", '{"schedule": "s"}'),
            ("pause_schedule", "bob", '{"schedule": "s"}'),
            ("resume_schedule", "bob", '{"schedule": "s"}'),
        ]

    play(script)


def test_N8_run_moves_no_tick_and_is_what_the_next_one_meets(
    play: Play, store: Store, clock: Clock
) -> None:
    begin = clock()

    def script() -> Steps[None]:
        yield from store.set_schedule(plan())
        first = yield from store.run_schedule("s", "ann")
        second = yield from store.run_schedule("s")
        assert (second.schedule, second.tick) == ("s", None)
        record = yield from look(store)
        assert (record.next_at, record.last_chain) == (begin + MINUTE, second.id)
        assert (yield from counters(store)) == (0, 0, 0)
        clock.advance(60)
        assert (yield from store.fire(TASKS)).jobs == 0
        assert (yield from counters(store)) == (0, 1, 0)
        (line,) = (yield from store.audit(first.id, None, 100)).records
        assert (line.action, line.done_by) == ("run_schedule", "ann")

    play(script)


def test_N8_an_edit_keeps_history_and_pause_and_its_tick_unless_the_times_change(
    play: Play, store: Store, clock: Clock
) -> None:
    begin = clock()

    def script() -> Steps[None]:
        yield from store.set_schedule(plan())
        clock.advance(60)
        yield from store.fire(TASKS)
        yield from store.pause_schedule("s", "ann")
        clock.advance(30)
        same = (yield from store.set_schedule(plan(queue="mail"))).record
        assert (same.next_at, same.ticks, same.paused_by) == (begin + 2 * MINUTE, 1, "ann")
        other = yield from store.set_schedule(plan(cron=Cron(every=7)), "bob")
        tick = other.record.next_at or 0
        assert clock() < tick <= clock() + 7 * SECOND
        assert (other.record.ticks, other.record.paused_by) == (1, "ann")

    play(script)


def test_what_was_made_at_run_time_can_be_deleted_and_its_jobs_stay(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from store.set_schedule(plan())
        clock.advance(60)
        yield from store.fire(TASKS)
        yield from store.delete_schedule("s", "ann")
        clock.advance(60)
        assert (yield from store.fire(TASKS)).jobs == 0
        assert len((yield from jobs_of(store))) == 1

    play(script)


UNKNOWN: list[Callable[[Store], Any]] = [
    lambda store: store.schedule("x"),
    lambda store: store.pause_schedule("x"),
    lambda store: store.resume_schedule("x"),
    lambda store: store.run_schedule("x"),
    lambda store: store.delete_schedule("x"),
]


@pytest.mark.parametrize("act", UNKNOWN)
def test_there_is_no_such_schedule(play: Play, store: Store, act: Callable[[Store], Any]) -> None:
    def script() -> Steps[None]:
        yield from act(store)

    with pytest.raises(NotFound, match="there is no schedule named 'x'"):
        play(script)


# ---- tasks that nobody knows


def test_N10_a_task_nobody_knows_waits_until_somebody_does(
    play: Play, store: Store, clock: Clock
) -> None:
    begin = clock()

    def script() -> Steps[None]:
        yield from store.set_schedule(plan(task="strange", cron=Cron("* * * * *", catch_up=2)))
        clock.advance(600)
        assert (yield from store.fire(TASKS)) == Fired(0, False, None, clock())
        assert (yield from look(store)).next_at == begin + MINUTE
        assert (yield from store.fire(["a", "strange"])).jobs == 2
        assert (yield from counters(store)) == (2, 0, 8)

    play(script)


# ---- lists


def test_N11_lists_go_by_name_page_by_page(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        for n in range(7):
            yield from store.set_schedule(plan(f"s{n}", task="a" if n % 2 else "b"))
        page = yield from store.schedules(None, 3)
        assert [r.name for r in page.records] == ["s0", "s1", "s2"]
        page = yield from store.schedules(None, 5, page.cursor)
        assert ([r.name for r in page.records], page.cursor) == (["s3", "s4", "s5", "s6"], None)
        page = yield from store.schedules("b", 3)
        assert [r.name for r in page.records] == ["s0", "s2", "s4"]
        page = yield from store.schedules("b", 3, page.cursor)
        assert [r.name for r in page.records] == ["s6"]

    play(script)


def test_N11_history_is_a_filter_of_jobs(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        cron = Cron("* * * * *", overlap="allow", catch_up=20)
        yield from store.set_schedule(plan(cron=cron))
        yield from store.set_schedule(plan("other", cron=cron))
        clock.advance(600)
        yield from store.fire(TASKS)
        ids = [job.id for job in (yield from jobs_of(store))]
        assert len(ids) == 10
        yield from store.cancel(ids[0])
        found = yield from store.jobs(
            JobFilter(schedule="s", state=State.CANCELLED), 10, None, newest=True
        )
        assert [job.id for job in found.records] == ids[:1]
        assert (yield from read.job(store, ids[1])).schedule == "s"

    play(script)


# ---- declarations


def declared(store: Store, *plans: NewSchedule, digest: str = "d1", tasks: Any = TASKS) -> Any:
    return store.declare(plans, tasks, digest)


def test_N9_declarations_are_added_changed_and_removed(
    play: Play, store: Store, clock: Clock
) -> None:
    begin = clock()

    def script() -> Steps[None]:
        yield from declared(store, plan("one"), plan("two"))
        clock.advance(60)
        assert (yield from store.fire(TASKS)).jobs == 2
        yield from store.pause_schedule("one", "ann")
        clock.advance(1)
        yield from declared(store, plan("one", queue="mail"), plan("three"), digest="d2")
        one = yield from look(store, "one")
        assert (one.ticks, one.paused_by, one.next_at) == (1, "ann", begin + 2 * MINUTE)
        assert one.job().queue == "mail"
        assert (yield from look(store, "three")).ticks == 0
        with pytest.raises(NotFound):
            yield from look(store, "two")
        yield from declared(store, plan("one", Cron(every=5)), digest="d3")
        tick = (yield from look(store, "one")).next_at or 0
        assert clock() < tick <= clock() + 5 * SECOND
        with pytest.raises(InvalidState, match="declared in code: pause it, or take it out of the"):
            yield from store.delete_schedule("one")

    play(script)


def test_N9_an_edit_survives_a_deploy_that_declares_the_same(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from declared(store, plan())
        edited = (yield from store.set_schedule(plan(cron=Cron(every=9)), "ann")).record
        assert edited.plan.digest != edited.declared
        yield from declared(store, plan(), digest="d2")
        assert (yield from look(store)) == edited._replace(declared_in="d2")
        yield from declared(store, plan(queue="mail"), digest="d3")
        record = yield from look(store)
        assert (record.every, record.job().queue) == (None, "mail")
        assert record.plan.digest == record.declared

    play(script)


def test_N9_two_apps_touch_their_own_only(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        yield from declared(store, plan("ours"))
        yield from declared(store, plan("theirs", task="b"), digest="other", tasks=["b"])
        yield from declared(store, digest="d2")
        page = yield from store.schedules(None, 10)
        assert [record.name for record in page.records] == ["theirs"]

    play(script)


def test_N9_what_was_made_at_run_time_is_left_alone(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        made = (yield from store.set_schedule(plan())).record
        answer = yield from declared(store, plan(queue="mail"), plan("new"))
        assert answer == (["s"], False)
        assert (yield from look(store)) == made
        yield from declared(store, digest="d2")
        page = yield from store.schedules(None, 10)
        assert page.records == [made]

    play(script)


def test_N9_a_glance_says_what_was_declared_in_what(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        assert (yield from store.glance(TASKS))[1:4] == (None, [], clock())
        yield from declared(store, plan("x"), plan("y"))
        yield from declared(store, plan("z", task="b"), digest="d2", tasks=["b"])
        glance = yield from store.glance(["a", "b"])
        assert (glance.next_tick, sorted(glance.declared_in)) == (clock() + MINUTE, ["d1", "d2"])
        assert (yield from store.glance(TASKS)).declared_in == ["d1"]
        peeked = yield from store.peek(["default"], 1, TASKS)
        assert peeked.next_tick == clock() + MINUTE
        clock.advance(DAY / SECOND)

    play(script)
