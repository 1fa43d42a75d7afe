"""Why a job does not run, in one sentence, for every state it can be in."""

from __future__ import annotations

import asyncio

import pytest

from tests.conformance.conftest import Play
from tests.kit import SECOND, Clock, claim, completed, continued, failed, new, put, register
from towline import Outcome, Towline
from towline.app.why import sentence
from towline.errors import NotFound
from towline.model import Policy
from towline.operation import Steps
from towline.records import Ending
from towline.store import Store
from towline.store.why import MOST_BEFORE

# The clock of a test begins at 2027-01-15 08:00:00 UTC.
BEGAN = "2027-01-15 08:00:00 UTC"


def ask(play: Play, store: Store, job: int) -> str:
    def script() -> Steps[str]:
        return sentence((yield from store.why(job)))

    return play(script)


def test_nobody_works(play: Play, store: Store) -> None:
    (job,) = play(lambda: put(store, new()))
    assert ask(play, store, job) == "no worker is running"


def test_a_worker_whose_lease_is_over_serves_nothing(
    play: Play, store: Store, clock: Clock
) -> None:
    play(lambda: register(store))
    (job,) = play(lambda: put(store, new()))
    clock.advance(31)
    assert ask(play, store, job) == "no worker is running"


def test_the_queue_is_served_by_nobody(play: Play, store: Store) -> None:
    play(lambda: register(store))
    (job,) = play(lambda: put(store, new(queue="mail")))
    expected = "no worker serves queue mail: those that run serve default"
    assert ask(play, store, job) == expected


@pytest.mark.parametrize(("by", "words"), [("ops", " by ops"), (None, "")])
def test_the_queue_is_paused(
    play: Play, store: Store, clock: Clock, by: str | None, words: str
) -> None:
    play(lambda: register(store))
    (job,) = play(lambda: put(store, new()))
    play(lambda: iter(store.pause("default", by)))
    clock.advance(20)
    assert ask(play, store, job) == f"queue default is paused{words} since {BEGAN}, 20 s ago"


def test_others_are_before_it_by_priority_and_by_age(play: Play, store: Store) -> None:
    play(lambda: register(store))
    first, job, _, urgent = play(
        lambda: put(store, new(), new(), new(), new(priority=5), new(queue="mail"))
    )[:4]
    assert ask(play, store, job) == "2 jobs are before it in queue default"
    assert ask(play, store, first) == "1 job is before it in queue default"
    expected = "it is the next of queue default: a worker takes it when a slot is free"
    assert ask(play, store, urgent) == expected


def test_R2_the_jobs_before_it_are_counted_up_to_a_limit(app: Towline, store: Store) -> None:
    app.runner.run(store.enqueue([new() for _ in range(MOST_BEFORE + 5)]))
    last = app.jobs(limit=1)[0].id
    assert app.runner.run(store.why(last)).before == MOST_BEFORE

    app.runner.run(store.register(
        "w", host="h", pid=1, birth=None, version="0", queues=["default"], concurrency=1,
        lease=3600 * SECOND,
    ))  # fmt: skip
    expected = f"at least {MOST_BEFORE} jobs are before it in queue default"
    assert app.why(last) == expected == asyncio.run(app.awhy(last))


def test_no_worker_knows_its_task(play: Play, store: Store) -> None:
    def script() -> Steps[int]:
        worker = yield from register(store)
        (job,) = yield from put(store, new("shop.mail"))
        yield from store.park((yield from claim(store, 1, worker)))
        return job

    job = play(script)
    expected = "no running worker knows task shop.mail: start one of a release that has it"
    assert ask(play, store, job) == expected


def test_it_was_claimed_ahead(play: Play, store: Store) -> None:
    def script() -> Steps[int]:
        worker = yield from register(store)
        (job,) = yield from put(store, new())
        yield from store.claim(worker, ["default"], 0, ahead=1)
        return job

    job = play(script)
    expected = "worker w1 has claimed it, and begins it when a slot is free"
    assert ask(play, store, job) == expected


def test_it_is_due_later_or_since(play: Play, store: Store, clock: Clock) -> None:
    play(lambda: register(store, lease=3600 * SECOND))
    (job,) = play(lambda: put(store, new(delay=90 * SECOND)))
    assert ask(play, store, job) == "it is due in 1 min 30 s (2027-01-15 08:01:30 UTC)"
    clock.advance(100)
    assert ask(play, store, job) == "it is due since 2027-01-15 08:01:30 UTC"
    play(lambda: iter(store.pause("default", "ops")))
    expected = "it is due since 2027-01-15 08:01:30 UTC; queue default is paused by ops since "
    assert ask(play, store, job) == expected + "2027-01-15 08:01:40 UTC, 0 ms ago"


@pytest.mark.parametrize(
    ("outcome", "error_type", "words"),
    [
        (Outcome.FAILED, "builtins.ValueError", "it waits for its back-off after ValueError, "),
        (Outcome.FAILED, "shop.Refused", "it waits for its back-off after shop.Refused, "),
        (Outcome.FAILED, None, "it waits for its back-off after a failure, "),
        (Outcome.TIMEOUT, None, "it waits for its back-off after a timeout, "),
        (Outcome.TIMEOUT, "asyncio.CancelledError", "it waits for its back-off after a timeout, "),
        (Outcome.SNOOZED, None, "its handler has put it off: "),
    ],
)
def test_it_waits_for_its_next_try(
    play: Play, store: Store, outcome: Outcome, error_type: str | None, words: str
) -> None:
    def script() -> Steps[int]:
        worker = yield from register(store)
        (job,) = yield from put(store, new(max_attempts=5))
        (held,) = yield from claim(store, 1, worker)
        ending = Ending(held, outcome, error="boom", delay=30 * SECOND, error_type=error_type)
        yield from store.finish([ending])
        return job

    job = play(script)
    attempt = "" if outcome is Outcome.SNOOZED else "attempt 1 of 5: "
    expected = f"{words}{attempt}due in 30 s (2027-01-15 08:00:30 UTC)"
    assert ask(play, store, job) == expected


def test_its_worker_was_lost(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[int]:
        worker = yield from register(store)
        (job,) = yield from put(store, new())
        yield from claim(store, 1, worker)
        clock.advance(60)
        yield from store.sweep()
        yield from register(store, "w2")
        return job

    assert ask(play, store, play(script)).startswith(
        "its worker was lost, for the first time: due in "
    )


def test_it_waits_for_chains(play: Play, store: Store) -> None:
    def script() -> Steps[list[int]]:
        worker = yield from register(store)
        first = yield from put(store, new(), new(), new())
        (job,) = yield from put(store, new(after=first, policy=Policy.WAIT))
        one, two, _ = yield from claim(store, 3, worker)
        yield from store.finish([completed(one), failed(two)])
        return [*first, job]

    _, second, third, job = play(script)
    assert ask(play, store, job) == f"it waits for chains {second} (failed), {third} (open)"
    play(lambda: iter(store.retry(second)))
    play(lambda: iter(store.complete(second, None)))
    assert ask(play, store, job) == f"it waits for chain {third} (open)"


def test_of_many_chains_a_few_are_named(play: Play, store: Store) -> None:
    def script() -> Steps[list[int]]:
        first = yield from put(store, *(new() for _ in range(8)))
        return [*first, *(yield from put(store, new(after=first)))]

    *chains, job = play(script)
    named = ", ".join(f"{chain} (open)" for chain in chains[:5])
    assert ask(play, store, job) == f"it waits for chains {named}, and 3 more"


def test_it_runs(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[int]:
        worker = yield from register(store)
        (job,) = yield from put(store, new(max_attempts=3))
        yield from claim(store, 1, worker)
        return job

    job = play(script)
    clock.advance(12)
    running = "it runs on w1, attempt 1 of 3, begun {} ago (" + BEGAN + ")"
    assert ask(play, store, job) == running.format("12 s")
    clock.advance(28)
    late = "; that worker has not renewed its lease: {} takes the job over"
    assert ask(play, store, job) == running.format("40 s") + late.format("one that starts")
    play(lambda: register(store, "w2"))
    assert ask(play, store, job) == running.format("40 s") + late.format("another")


def test_it_has_ended(play: Play, store: Store, clock: Clock) -> None:
    def script() -> Steps[list[int]]:
        worker = yield from register(store)
        ids = yield from put(store, *(new() for _ in range(6)))
        one, two, three = yield from claim(store, 3, worker)
        bad = Ending(two, Outcome.FAILED, error="boom", error_type="builtins.KeyError")
        yield from store.finish([completed(one), bad, continued(three, new("next"))])
        yield from store.cancel(ids[3], "not wanted", "ops")
        yield from store.fail(ids[4], "broken", "ops")
        yield from store.complete(ids[5], None, by="ops")
        return ids

    done, bad, on, cancelled, broken, told = play(script)
    clock.advance(15)
    ago = f"15 s ago ({BEGAN})"
    assert ask(play, store, done) == f"it was completed {ago}"
    assert ask(play, store, bad) == f"it failed {ago} with KeyError"
    assert ask(play, store, on).startswith(f"it ended {ago} and was continued by job ")
    assert ask(play, store, cancelled) == f"it was cancelled by ops {ago}"
    assert ask(play, store, broken) == f"it was failed by ops {ago}"
    assert ask(play, store, told) == f"it was completed by ops {ago}"


def test_a_chain_that_it_waited_for_failed(play: Play, store: Store) -> None:
    def script() -> Steps[tuple[int, int]]:
        (first,) = yield from put(store, new())
        (job,) = yield from put(store, new(after=[first]))
        yield from store.fail(first, "broken")
        return first, job

    first, job = play(script)
    expected = f"it failed 0 ms ago ({BEGAN}): chain {first}, for which it waited, did not complete"
    assert ask(play, store, job) == expected


def test_there_is_no_such_job(play: Play, store: Store) -> None:
    with pytest.raises(NotFound, match="there is no job 12345"):
        ask(play, store, 12345)
