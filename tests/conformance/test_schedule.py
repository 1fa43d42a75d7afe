"""Time: a job does not start before its own, and later ones are in nobody's way."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tests.conformance.conftest import Play
from tests.kit import (
    HOUR,
    SECOND,
    Clock,
    beat,
    claim,
    continued,
    failed,
    new,
    put,
    states,
)
from towline import Towline
from towline.errors import InvalidState, NotFound
from towline.model import State
from towline.operation import Steps
from towline.store import Store, read
from towline.store.turn import promote
from towline.task.batch import new_jobs

# ---- S1: not before its time


def test_S1_a_past_time_means_now(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        now = clock.time
        ids = yield from put(
            store, new(at=now - HOUR), new(at=0), new(at=now), new(delay=0), new(delay=-HOUR), new()
        )
        records = yield from read.records(store, ids)
        assert {(r.state, r.run_at) for r in records} == {(State.PENDING, now)}
        assert (yield from store.peek(())).next_due is None
        assert [held.job_id for held in (yield from claim(store, 10))] == ids

    play(script)


def test_S1_a_job_does_not_start_before_its_time(play: Play, store: Store, clock: Clock) -> None:
    def turn() -> Steps[list[int]]:
        return [job.job_id for job in (yield from beat(store, 10)).claimed]

    def script() -> Steps[None]:
        start = clock.time
        late, soon, also = yield from put(
            store,
            new(at=start + HOUR, priority=9),
            new(delay=10 * SECOND),
            new(delay=10 * SECOND, priority=1),
        )
        records = yield from read.records(store, [late, soon, also])
        assert [(r.state, r.run_at) for r in records] == [
            ("scheduled", start + HOUR),
            ("scheduled", start + 10 * SECOND),
            ("scheduled", start + 10 * SECOND),
        ]
        clock.advance(9.999999)
        first = yield from beat(store, 10)
        assert (first.claimed, first.promoted, first.next_due) == ([], 0, start + 10 * SECOND)
        # At its time, not a microsecond sooner; then by priority as ever.
        clock.advance(0.000001)
        second = yield from beat(store, 10)
        assert [job.job_id for job in second.claimed] == [also, soon]
        assert (second.promoted, second.next_due) == (2, start + HOUR)
        clock.advance(3589.999999)
        assert (yield from turn()) == []
        clock.advance(0.000001)
        assert (yield from turn()) == [late]

    play(script)


def test_S1_the_time_of_a_claim_is_not_before_the_time_of_the_job(
    play: Play, store: Store, clock: Clock
) -> None:
    """A clock that is set back makes a job late, never early."""

    def script() -> Steps[None]:
        (job,) = yield from put(store, new(delay=HOUR))
        due = clock.time + HOUR
        clock.advance(-600)
        assert (yield from promote(store)) == 0
        clock.advance(600 + 3600 + 120)
        assert (yield from promote(store)) == 1
        (held,) = yield from claim(store)
        assert held.job_id == job
        assert held.claimed_at >= due

    play(script)


def test_S1_what_is_due_is_promoted_oldest_first_in_bounded_batches(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        ids = yield from put(store, *[new(delay=(5 - n) * SECOND) for n in range(5)])
        clock.advance(60)
        assert (yield from promote(store, 2)) == 2
        assert (yield from states(store, *ids)) == ["scheduled"] * 3 + ["pending"] * 2
        assert (yield from promote(store, 2)) == 2
        assert (yield from promote(store, 2)) == 1
        assert (yield from promote(store, 2)) == 0

    play(script)


def test_S1_delay_and_at_say_the_same_in_every_time_zone(
    play: Play, store: Store, clock: Clock, app: Towline
) -> None:
    @app.task
    def nothing() -> None: ...

    moment = datetime.fromtimestamp(clock.time / SECOND, UTC) + timedelta(hours=1)
    far = timezone(timedelta(hours=-11, minutes=-30))
    calls = [
        nothing.using(at=moment).call(),
        nothing.using(at=moment.astimezone(far)).call(),
        nothing.using(delay=3600).call(),
        nothing.using(delay=timedelta(hours=1)).call(),
        nothing.using(at=moment - timedelta(hours=2)).call(),
    ]

    def script() -> Steps[None]:
        answers = yield from store.enqueue(new_jobs(calls))
        assert [(a.record.state, a.record.run_at) for a in answers] == [
            *[("scheduled", clock.time + HOUR)] * 4,
            ("pending", clock.time),
        ]

    play(script)


# ---- S2: run now


def test_S2_run_now_works_on_a_waiting_job(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[None]:
        (first,) = yield from put(store, new(delay=HOUR))
        record = yield from store.run_now(first)
        assert (record.id, record.state, record.run_at) == (first, State.PENDING, clock.time)
        (held,) = yield from claim(store)
        # One that waits for its next try: the attempts it has used stay used.
        yield from store.finish([failed(held, delay=HOUR)])
        record = yield from store.run_now(first)
        assert (record.state, record.used, record.attempt) == (State.PENDING, 1, 1)
        (held,) = yield from claim(store)
        assert held.attempt == 2
        # A continuation that waits.
        yield from store.finish([continued(held, new("next", delay=HOUR))])
        _, last = yield from store.chain(first)
        assert (yield from store.run_now(last.id)).state is State.PENDING

    play(script)


def test_S2_run_now_on_any_other_job_is_an_error_that_names_its_state(
    play: Play, store: Store
) -> None:
    def begin() -> Steps[dict[str, int]]:
        jobs = {}
        for state in ("completed", "failed", "cancelled"):
            (jobs[state],) = yield from put(store, new())
        yield from store.complete(jobs["completed"], "null")
        yield from store.fail(jobs["failed"], "broken")
        yield from store.cancel(jobs["cancelled"])
        (jobs["running"],) = yield from put(store, new())
        yield from claim(store)
        jobs["pending"], jobs["blocked"] = yield from put(
            store, new(), new(after=[jobs["running"]], delay=HOUR)
        )
        return jobs

    def look() -> Steps[list[State]]:
        return (yield from states(store, *jobs.values()))

    jobs = play(begin)
    for state, job in jobs.items():
        if state == "pending":  # finding D3: it is as it should be
            assert play(lambda job=job: iter(store.run_now(job))).state is State.PENDING  # type: ignore[misc]
            continue
        with pytest.raises(InvalidState, match=rf"job {job} is {state}\b"):
            play(lambda job=job: iter(store.run_now(job)))  # type: ignore[misc]
    assert play(look) == list(jobs)
    with pytest.raises(NotFound, match="no job 99"):
        play(lambda: iter(store.run_now(99)))
