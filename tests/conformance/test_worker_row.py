"""A worker's registration and lease: register, renew, unregister, sweep, on every kind."""

from __future__ import annotations

from tests.conformance.conftest import Play
from tests.kit import SECOND, Clock, claim, new, register, states
from towline.model import Outcome, State
from towline.operation import Steps
from towline.store import Store
from towline.store.lease import Renewed

LEASE = 30 * SECOND


def names(store: Store) -> Steps[list[str]]:
    return [worker.name for worker in (yield from store.workers())]


def test_W4_a_worker_registers_itself_and_disappears(
    play: Play, store: Store, clock: Clock
) -> None:
    def enter() -> Steps[tuple[int, int]]:
        first = yield from store.register(
            "w1", host="here", pid=11, birth="b", version="0.1", queues=["mail", "é"],
            concurrency=4, lease=LEASE, declares="d",
        )  # fmt: skip
        clock.advance(1)
        return first, (yield from register(store, "w2", lease=2 * LEASE))

    first, second = play(enter)
    assert first != second

    def leave() -> Steps[None]:
        one, two = yield from store.workers()
        began = clock() - SECOND
        assert one == (
            first, "w1", "here", 11, "b", "0.1", '["mail","\\u00e9"]', 4, began, began,
            began + LEASE, "d",
        )  # fmt: skip
        assert (two.id, two.lease_until) == (second, clock() + 2 * LEASE)
        yield from store.unregister(first)
        yield from store.unregister(first)
        assert (yield from names(store)) == ["w2"]

    play(leave)


def test_W4_a_worker_that_still_runs_something_stays_until_it_is_swept(
    play: Play, store: Store, clock: Clock
) -> None:
    def leave() -> Steps[None]:
        worker = yield from register(store)
        yield from store.enqueue([new()])
        yield from claim(store, worker=worker)
        yield from store.unregister(worker)
        assert (yield from names(store)) == ["w1"]
        clock.advance(30)
        assert (yield from store.sweep()) == 1
        assert (yield from names(store)) == []
        (attempt,) = yield from store.attempts(1)
        assert (attempt.outcome, attempt.worker) == (Outcome.LOST, "w1")

    play(leave)


def test_L2_one_renewal_extends_the_lease_of_all_that_a_worker_holds(
    play: Play, store: Store, clock: Clock
) -> None:
    def hold() -> Steps[None]:
        worker = yield from register(store)
        other = yield from register(store, "w2")
        yield from store.enqueue([new(), new(), new()])
        held = {(job.job_id, job.attempt) for job in (yield from claim(store, 2, worker))}
        yield from claim(store, 1, other)
        for _ in range(3):
            clock.advance(20)
            renewed = yield from store.renew(worker, "w1", LEASE, held)
            assert renewed == Renewed(True, [])
        assert (yield from store.expired()).workers == {other}
        assert (yield from store.sweep()) == 1
        assert (yield from states(store, 1, 2, 3)) == [
            State.RUNNING,
            State.RUNNING,
            State.SCHEDULED,
        ]
        (only,) = yield from store.workers()
        assert (only.name, only.seen_at, only.lease_until) == ("w1", clock(), clock() + LEASE)

    play(hold)


def test_L3_a_renewal_says_what_was_lost_and_puts_back_what_nobody_knows_of(
    play: Play, store: Store, clock: Clock
) -> None:
    """Lost: cancelled, completed from outside, taken over. Stray: it runs in its name only."""

    def mix() -> Steps[None]:
        worker = yield from register(store)
        yield from store.enqueue([new(), new(), new(), new(max_attempts=7)])
        one, two, three, four = yield from claim(store, 4, worker)
        yield from store.cancel(one.job_id)
        yield from store.complete(two.job_id, "null")
        held = {(job.job_id, job.attempt) for job in (one, two, three)}
        renewed = yield from store.renew(worker, "w1", LEASE, held)
        assert renewed == Renewed(True, [(1, 1), (2, 1)])
        stray = yield from store.job(four.job_id)
        assert (stray.state, stray.attempt, stray.used, stray.lost) == (State.PENDING, 1, 0, 0)
        assert (stray.worker, stray.started_at) == (None, None)
        assert (yield from store.attempts(four.job_id)) == []
        assert (yield from store.job(three.job_id)).state is State.RUNNING
        (again,) = yield from claim(store, 9, worker)
        assert (again.job_id, again.attempt) == (4, 2)
        renewed = yield from store.renew(worker, "w1", LEASE, {(3, 1), (4, 1)})
        assert renewed == Renewed(True, [(4, 1)])

    play(mix)


def test_L3_a_worker_that_is_no_longer_registered_is_told_that_it_lost_all(
    play: Play, store: Store, clock: Clock
) -> None:
    """Its number is drawn by lot, so another does not have it, in whose name it could go on
    claiming: not even after a database lost what it knew of the first."""

    def sleep_over() -> Steps[None]:
        worker = yield from register(store, drawn=True)
        yield from store.enqueue([new(), new()])
        (held,) = yield from claim(store, 1, worker)
        clock.advance(31)
        yield from store.sweep()
        mine = {(held.job_id, held.attempt)}
        assert (yield from store.renew(worker, "w1", LEASE, mine)) == Renewed(False, [(1, 1)])
        heir = yield from register(store, "w2", drawn=True)
        assert heir != worker
        (theirs,) = yield from claim(store, 1, heir)
        assert (yield from store.renew(worker, "w1", LEASE, mine)) == Renewed(False, [(1, 1)])
        assert (yield from store.job(theirs.job_id)).state is State.RUNNING
        (only,) = yield from store.workers()
        assert (only.name, only.lease_until) == ("w2", clock() + LEASE)

    play(sleep_over)


def test_L9_a_lease_is_taken_only_from_suspects_and_from_the_provably_gone(
    play: Play, store: Store, clock: Clock
) -> None:
    def sweep() -> Steps[None]:
        workers: list[int] = []
        for name in ("w1", "w2", "w3"):
            worker = yield from register(store, name)
            workers.append(worker)
            yield from store.enqueue([new()])
            yield from claim(store, 1, worker)
        first, second, third = workers
        assert (yield from store.expired()) == (set(), False)
        assert (yield from store.sweep()) == 0
        assert (yield from store.sweep(gone={second: "its process is gone"})) == 1
        assert (yield from names(store)) == ["w1", "w3"]
        clock.advance(30)
        assert (yield from store.expired()).workers == {first, third}
        assert (yield from store.sweep(suspects=[])) == 0
        # A suspect that renewed in time is no longer expired, so it keeps what it has.
        yield from store.renew(first, "w1", LEASE, {(1, 1)})
        assert (yield from store.sweep(suspects=[first, third])) == 1
        assert (yield from states(store, 1, 2, 3)) == [
            State.RUNNING,
            State.SCHEDULED,
            State.SCHEDULED,
        ]
        assert (yield from names(store)) == ["w1"]

    play(sweep)


def test_L5_a_sweep_takes_a_bounded_number_and_the_worker_goes_with_its_last_job(
    play: Play, store: Store, clock: Clock
) -> None:
    def sweep() -> Steps[None]:
        worker = yield from register(store)
        yield from store.enqueue([new() for _ in range(5)])
        yield from claim(store, 5, worker)
        clock.advance(31)
        seen: list[tuple[int, int]] = []
        for _ in range(4):
            taken = yield from store.sweep(limit=2)
            seen.append((taken, len((yield from store.workers()))))
        assert seen == [(2, 1), (2, 1), (1, 0), (0, 0)]

    play(sweep)


def test_L4_jobs_of_a_worker_whose_row_is_gone_are_taken_back(
    play: Play, store: Store, clock: Clock
) -> None:
    def vanish() -> Steps[None]:
        yield from store.enqueue([new()])
        yield from claim(store, 1, worker=7)
        assert (yield from store.sweep(suspects=[])) == 1
        (attempt,) = yield from store.attempts(1)
        assert (attempt.outcome, attempt.worker) == (Outcome.LOST, None)
        assert "unknown" in (attempt.error or "")

    play(vanish)


def test_L3_a_worker_that_was_swept_claims_nothing_until_it_registers_again(
    play: Play, store: Store, clock: Clock
) -> None:
    """What it claimed would be lost at once, and count against jobs that did no harm."""

    def wake_up() -> Steps[None]:
        worker = yield from register(store)
        clock.advance(31)
        yield from store.sweep()
        yield from store.enqueue([new()])
        asleep = yield from store.turn(worker, "w1", ["default"], 5)
        assert asleep.claimed == []
        again = yield from register(store)
        awake = yield from store.turn(again, "w1", ["default"], 5)
        assert [job.attempt for job in awake.claimed] == [1]

    play(wake_up)
