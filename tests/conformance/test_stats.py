"""R2: roll-ups over time: what ended when, by queue, task and outcome, and how long it ran."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.kit import DAY, HOUR, MINUTE, SECOND, Clock, claim, completed, failed, new
from towline import Outcome, Towline
from towline.errors import InvalidSetting
from towline.operation import Steps
from towline.records import Claimed, Ending
from towline.store import Store
from towline.store.retention import KeepFor
from towline.store.stats import RollupRecord, StatsFilter
from towline.store.turn import promote
from towline.times import to_datetime

FAST = (1, 0, 0, 0, 0, 0, 0, 0)  # all of them below a millisecond
KEEP = KeepFor(999 * DAY, 999 * DAY, 999 * DAY)


def run(
    store: Store, clock: Clock, task: str, seconds: float, queue: str = "default", wait: float = 0
) -> Steps[int]:
    """One job that waits and takes so long; answers the minute in which it ended."""
    yield from store.enqueue([new(task, queue=queue)])
    clock.advance(wait)
    (held,) = yield from claim(store, 1, queues=[queue])
    clock.advance(seconds)
    yield from store.finish([completed(held)], "w", 7)
    return clock() // MINUTE


def test_ended_jobs_are_read_by_minute_queue_task_and_outcome(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        first = yield from run(store, clock, "a", 0.05)
        clock.advance(300)
        second = yield from run(store, clock, "a", 5)
        yield from run(store, clock, "b", 0.0005, queue="mail")
        yield from store.enqueue([new("a"), new("a")])
        bad, other = yield from claim(store, 2)
        yield from store.finish([failed(bad), Ending(other, Outcome.CANCELLED)])
        waiting = (yield from store.enqueue([new("a")]))[0].record.id
        yield from store.cancel(waiting)  # it never ran
        last = clock() // MINUTE

        found = yield from store.stats(StatsFilter(), 1)
        assert [r for r in found if r.minute == first] == [
            RollupRecord(first, "default", "a", 1, 1, 50_000, (0, 0, 1, 0, 0, 0, 0, 0), 0, FAST)
        ]
        assert [(r.minute, r.queue, r.task, r.outcome, r.ended) for r in found] == [
            (first, "default", "a", "completed", 1),
            (second, "default", "a", "completed", 1),
            (last, "default", "a", "failed", 1),
            (last, "default", "a", "cancelled", 2),
            (last, "mail", "b", "completed", 1),
        ]
        assert [sum(r.histogram) for r in found] == [1, 1, 1, 1, 1]
        assert found[-1].histogram == FAST

        whole = yield from store.stats(StatsFilter(), 1, whole=True)
        assert [(r.minute, r.queue, r.task, r.outcome, r.ended) for r in whole] == [
            (first, "", "", "completed", 1),
            (last, "", "", "completed", 2),
            (last, "", "", "failed", 1),
            (last, "", "", "cancelled", 2),
        ]
        (mail,) = yield from store.stats(StatsFilter(queue="mail"), whole=True)
        assert (mail.ended, mail.histogram, mail.queue) == (1, FAST, "")

        def some(unit: int | None = 1, **where: Any) -> Steps[list[tuple[int, str, int]]]:
            found = yield from store.stats(StatsFilter(**where), unit)
            return [(r.minute, r.task, r.ended) for r in found]

        assert (yield from some(queue="mail")) == [(last, "b", 1)]
        assert (yield from some(task="b", outcome=Outcome.FAILED)) == []
        assert (yield from some(outcome=Outcome.FAILED)) == [(last, "a", 1)]
        assert (yield from some(until=first * MINUTE)) == []
        assert (yield from some(until=first * MINUTE + 1)) == [(first, "a", 1)]
        assert (yield from some(since=(first + 1) * MINUTE - 1, task="a"))[0] == (first, "a", 1)
        assert (yield from some(since=(first + 1) * MINUTE, task="a"))[0] == (second, "a", 1)
        assert (yield from some(None, task="b")) == [(0, "b", 1)]
        hours = yield from some(60, outcome=Outcome.COMPLETED, task="a")
        assert {minute % 60 for minute, *_ in hours} == {0}
        assert sum(number for *_, number in hours) == 2

    play(script)


def test_R2_a_job_waits_from_when_on_it_could_begin_until_its_last_attempt_begins(
    play: Play, store: Store, clock: Clock
) -> None:
    """Not while it is not due, blocked, or waits for another try; what never ran did not wait."""

    def start(queue: str) -> Steps[Claimed]:
        yield from promote(store)
        (held,) = yield from claim(store, 1, queues=[queue])
        return held

    def waited(queue: str) -> Steps[tuple[int, int, int]]:
        """How many ended, how many of them have a wait, and how long that was together."""
        (found,) = yield from store.stats(StatsFilter(queue=queue))
        assert sum(found.wait_histogram) == sum(found.histogram)
        return found.ended, sum(found.wait_histogram), found.waited // SECOND

    def script() -> Steps[None]:
        yield from store.enqueue([new(queue="due"), new(queue="due")])
        clock.advance(5)
        held = yield from claim(store, 2, queues=["due"])
        clock.advance(1)
        begun = Ending(held[0], Outcome.COMPLETED, "1", started_at=clock())  # claimed ahead
        yield from store.finish([begun, completed(held[1])], "w", 7)
        assert (yield from waited("due")) == (2, 2, 6 + 5)

        yield from store.enqueue([new(queue="delayed", delay=100 * SECOND)])
        clock.advance(102)
        yield from store.finish([completed((yield from start("delayed")))], "w", 7)
        assert (yield from waited("delayed")) == (1, 1, 2)

        yield from store.enqueue([new(queue="tried")])
        clock.advance(20)
        yield from store.finish([failed((yield from start("tried")), delay=60 * SECOND)], "w", 7)
        clock.advance(63)
        yield from store.finish([completed((yield from start("tried")))], "w", 7)
        assert (yield from waited("tried")) == (1, 1, 3)

        (first,) = yield from store.enqueue([new(queue="before")])
        yield from store.enqueue([new(queue="blocked", after=[first.record.id])])
        clock.advance(50)
        yield from store.finish([completed((yield from start("before")))], "w", 7)
        clock.advance(4)
        yield from store.finish([completed((yield from start("blocked")))], "w", 7)
        assert (yield from waited("before")) == (1, 1, 50)
        assert (yield from waited("blocked")) == (1, 1, 4)

        yield from store.enqueue([new(queue="back")])
        clock.advance(8)
        ahead = Ending((yield from start("back")), Outcome.RELEASED, started=False)
        yield from store.finish([ahead], "w", 7)
        clock.advance(8)
        yield from store.finish([Ending((yield from start("back")), Outcome.RELEASED)], "w", 7)
        clock.advance(2)
        yield from store.finish([completed((yield from start("back")))], "w", 7)
        assert (yield from waited("back")) == (1, 1, 2)

        yield from store.enqueue([new(queue="handed on")])
        clock.advance(8)
        ahead = Ending((yield from start("handed on")), Outcome.RELEASED, started=False)
        yield from store.finish([ahead], "w", 7)
        clock.advance(3)
        yield from store.finish([completed((yield from start("handed on")))], "w", 7)
        assert (yield from waited("handed on")) == (1, 1, 11)

        (never,) = yield from store.enqueue([new(queue="never")])
        clock.advance(9)
        yield from store.cancel(never.record.id)
        assert (yield from waited("never")) == (1, 0, 0)

    play(script)


def test_what_was_deleted_or_retried_since_has_ended_all_the_same(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([new(), new()])
        held = yield from claim(store, 2)
        yield from store.finish([failed(job) for job in held])
        clock.advance(600)
        yield from store.retry(held[0].job_id)
        yield from store.delete([held[1].job_id])
        (found,) = yield from store.stats(StatsFilter(), 1)
        assert (found.outcome, found.ended) == (Outcome.FAILED, 2)

    play(script)


def test_folding_makes_buckets_coarser_and_changes_no_sum(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        clock.time = clock.time // DAY * DAY + 3 * HOUR
        for _ in range(4):
            yield from run(store, clock, "a", 20, wait=0.3)
            clock.advance(30 * 60)
        before = yield from store.stats(StatsFilter(), 60)
        total = yield from store.stats(StatsFilter())
        assert (len(before), total[0].ended, total[0].duration) == (2, 4, 80 * SECOND)
        assert (total[0].waited, total[0].wait_histogram[3]) == (1.2 * SECOND, 4)
        for days, buckets in ((3, before), (100, (yield from store.stats(StatsFilter(), 1440)))):
            clock.advance(days * 86400)
            yield from store.prune(KEEP)
            assert (yield from store.stats(StatsFilter(), 1)) == buckets
            assert (yield from store.stats(StatsFilter())) == total

    play(script)


def test_the_face_says_seconds_and_percentiles(app: Towline, store: Store, clock: Clock) -> None:
    for seconds in (0.02, 0.03, 5.0):
        app.runner.run(store.enqueue([new("a")]))
        clock.advance(10 * seconds)
        (held,) = app.runner.run(store.claim(1, ["default"], 1))
        clock.advance(seconds)
        app.runner.run(store.finish([completed(held)], "w", 7))
    now = to_datetime(clock())
    (all_of_it,) = app.stats()
    assert (all_of_it.start, all_of_it.queue, all_of_it.task) == (None, "default", "a")
    assert (all_of_it.outcome, all_of_it.count) == (Outcome.COMPLETED, 3)
    run = all_of_it.run
    assert run.total == pytest.approx(5.05)
    assert run.histogram == (0, 0, 2, 0, 1, 0, 0, 0)
    wait = all_of_it.wait
    assert wait.total == pytest.approx(50.5)
    assert wait.histogram == (0, 0, 0, 2, 0, 1, 0, 0)
    assert wait.p50 == pytest.approx(10 * (run.p50 or 0), rel=0.001)
    p50, p95, p99 = run.p50, run.p95, run.p99
    assert p50 is not None
    assert p95 is not None
    assert p99 is not None
    assert 0.01 <= p50 <= 0.1 < 1 <= p95 <= p99 <= 10
    (minute, *_) = app.stats(by="minute", since=now - timedelta(minutes=5), task="a")
    assert isinstance(minute.start, datetime)
    assert minute.start.second == 0
    assert now - timedelta(minutes=2) < minute.start <= now
    assert app.stats(since=now + timedelta(minutes=1)) == []
    assert app.stats(outcome="failed") == []
    assert asyncio.run(app.astats(by="day")) == app.stats(by="day")
    wrong: list[dict[str, Any]] = [
        {"by": "week"}, {"by": 1}, {"since": 5}, {"outcome": "well"}, {"colour": "red"},
    ]  # fmt: skip
    for asked in wrong:
        with pytest.raises(InvalidSetting):
            app.stats(**asked)
