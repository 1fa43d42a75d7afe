"""What a claim takes and in which order; paused queues, parked jobs, the turn. Every kind."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.conftest import Play
from tests.database import Database
from tests.kit import (
    SECOND,
    Clock,
    claim,
    completed,
    continued,
    failed,
    new,
    register,
    rows,
    states,
)
from towline import Towline
from towline.model import Outcome, State
from towline.operation import Op, Steps
from towline.records import Ending
from towline.store import Store
from towline.store.turn import promote, unpark

QUEUES = ("default", "mail", "slow")


def ids(store: Store, room: int, *queues: str) -> Steps[list[int]]:
    """Claim and say which jobs it gave."""
    return [job.job_id for job in (yield from claim(store, room, queues=queues or QUEUES))]


def test_L6_claims_go_by_priority_then_age_across_queues_and_tasks(
    play: Play, store: Store
) -> None:
    def fill() -> Steps[None]:
        yield from store.enqueue([
            new("a", queue="mail", priority=0),  # 1
            new("b", queue="default", priority=5),  # 2
            new("a", queue="slow", priority=-1),  # 3
            new("c", queue="mail", priority=5),  # 4
            new("a", queue="default", priority=0),  # 5
            new("b", queue="mail", priority=2**31 - 1),  # 6
            new("c", queue="slow", priority=0),  # 7
            new("a", queue="elsewhere", priority=9),  # 8
            new("a", queue="slow", priority=-(2**31 - 1)),  # 9
        ])  # fmt: skip

    play(fill)

    def drain() -> Steps[None]:
        assert (yield from ids(store, 0)) == []
        assert (yield from store.claim(1, [], 5)) == []
        assert (yield from ids(store, 3)) == [6, 2, 4]
        assert (yield from ids(store, 1)) == [1]
        assert (yield from ids(store, 1, "slow", "default")) == [5]
        assert (yield from ids(store, 100)) == [7, 3, 9]
        assert (yield from ids(store, 100)) == []
        assert (yield from states(store, 8)) == [State.PENDING]

    play(drain)


def test_L6_only_pending_jobs_are_claimed_and_one_put_back_keeps_its_age(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        yield from store.enqueue([
            new(),  # 1
            new("later", delay=60 * SECOND, priority=9),  # 2
            new("behind", after=[1], priority=9),  # 3
            new(),  # 4
            new(),  # 5
        ])  # fmt: skip
        one, four = yield from claim(store, 2)
        assert (one.job_id, four.job_id) == (1, 4)
        assert (yield from ids(store, 9)) == [5]
        yield from store.enqueue([new()])  # 6
        yield from store.finish([Ending(four, Outcome.RELEASED)])
        assert (yield from ids(store, 9)) == [4, 6]
        yield from store.finish([completed(one)])
        assert (yield from ids(store, 9)) == [3]
        clock.advance(60)
        assert (yield from ids(store, 9)) == []
        yield from promote(store)
        assert (yield from ids(store, 9)) == [2]

    play(script)


def test_L1_each_claim_gives_out_the_next_attempt_number_whatever_came_between(
    play: Play, store: Store, clock: Clock
) -> None:
    """Failed, snoozed, lost, released, never started, parked, cancelled: no number twice."""

    def script() -> Steps[None]:
        yield from store.enqueue([new(timeout=5 * SECOND, label="l", key="k", trace="t")])
        given: list[int] = []
        for outcome in (
            None,
            Outcome.FAILED,
            Outcome.SNOOZED,
            Outcome.TIMEOUT,
            Outcome.LOST,
            Outcome.RELEASED,
        ):
            (held,) = yield from claim(store)
            given.append(held.attempt)
            if outcome is None:
                yield from store.finish([Ending(held, Outcome.RELEASED, started=False)])
            else:
                yield from store.finish([Ending(held, outcome, error="e", delay=0)])
            yield from promote(store)
        (held,) = yield from claim(store)
        given.append(held.attempt)
        assert (held.used, held.lost, held.claimed_at) == (2, 1, clock())
        assert (held.timeout, held.label, held.key, held.trace) == (5 * SECOND, "l", "k", "t")
        yield from store.park([held])
        assert (yield from claim(store)) == []
        yield from unpark(store, ["a"], ["default"])
        (held,) = yield from claim(store)
        given.append(held.attempt)
        yield from store.cancel(1)
        yield from store.retry(1)
        (held,) = yield from claim(store)
        given.append(held.attempt)
        assert given == list(range(1, 10))
        assert (held.used, held.lost) == (0, 0)

    play(script)


def test_L8_a_paused_queue_gives_nothing_until_it_is_resumed(
    play: Play, store: Store, make_app: Callable[..., Towline], clock: Clock
) -> None:
    def pause() -> Steps[None]:
        yield from store.enqueue([
            new(queue="mail", priority=9), new(queue="slow"), new(queue="mail", delay=SECOND),
        ])  # fmt: skip
        (held,) = yield from claim(store, 1, queues=["mail"])
        yield from store.pause("mail", by="ann")
        yield from store.pause("mail", by="bob")
        assert [queue.name for queue in (yield from store.paused())] == ["mail"]
        yield from store.enqueue([new(queue="mail")])
        clock.advance(1)
        assert (yield from promote(store)) == 1
        # What runs may finish, and what it continues with waits like the rest.
        following = new("next", queue="", inherit_queue=True)
        assert (yield from store.finish([continued(held, following)])).accepted == [1]
        assert (yield from ids(store, 9)) == [2]

    play(pause)

    app = make_app(clock=clock)  # another process, or the same after a restart

    def claims_elsewhere() -> Steps[list[int]]:
        return (yield from ids(app.runner.store, 9))

    assert app.paused() == ["mail"]
    assert play(claims_elsewhere) == []

    def resume() -> Steps[None]:
        yield from store.resume("mail")
        yield from store.resume("never paused")
        assert (yield from store.paused()) == []
        assert (yield from ids(store, 9)) == [3, 4, 5]

    play(resume)


def test_L7_a_parked_job_is_pending_with_a_reason_and_waits_for_a_worker_that_knows_it(
    play: Play, store: Store, app: Towline, database: Database
) -> None:
    def park() -> Steps[None]:
        yield from store.enqueue([new("known"), new("x"), new("y"), new("x"), new("x")])
        held = yield from claim(store, 5)
        assert (yield from store.park(held[1:])) == 4
        assert (yield from store.park(held[1:])) == 0  # fenced: nobody holds them any more
        yield from store.enqueue([new("known")])
        assert (yield from ids(store, 9)) == [6]

    play(park)
    job = app.job(2)
    assert (job.state, job.reason) == (State.PENDING, "no running worker knows task x")
    assert (job.record.used, job.record.lost, app.attempts(2)) == (0, 0, [])
    view = "SELECT state, reason, attempt FROM towline_jobs WHERE id IN (1, 2) ORDER BY id"
    assert rows(database, view) == [
        ("running", None, 1),
        ("pending", "no running worker knows task x", 1),
    ]
    assert [found.id for found in app.jobs(state="pending")] == [5, 4, 3, 2]
    assert app.counts() == {"default": {State.PENDING: 4, State.RUNNING: 2}}

    def bring_back() -> Steps[None]:
        assert (yield from unpark(store, ["unheard of"], ["default"])) == 0
        assert (yield from unpark(store, [], ["default"])) == 0
        assert (yield from unpark(store, ["x"], ["elsewhere"])) == 0
        assert (yield from unpark(store, ["x", "z"], QUEUES, limit=2)) == 2
        assert (yield from unpark(store, ["x", "z"], QUEUES, limit=2)) == 1
        assert (yield from unpark(store, ["x", "z"], QUEUES, limit=2)) == 0
        again = yield from claim(store, 9)
        assert [(job.job_id, job.attempt, job.used) for job in again] == [
            (2, 2, 0), (4, 2, 0), (5, 2, 0),
        ]  # fmt: skip
        assert (yield from store.cancel(3)).state is State.CANCELLED
        assert (yield from unpark(store, ["y"], QUEUES)) == 0

    play(bring_back)
    assert app.job(2).reason is None


def test_L7_a_job_that_is_set_aside_for_another_reason_is_left_to_what_ends_that(
    app: Towline, store: Store, database: Database
) -> None:
    """As a limit will do it."""
    run = app.runner.run
    run(store.enqueue([new("x"), new("x")]))
    held = run(store.claim(1, ["default"], 2))
    run(store.park(held))
    by_hand = database.connect()
    by_hand.execute("UPDATE towline_live SET parked_for = 'limit:x' WHERE job_id = 1")
    by_hand.commit()
    by_hand.close()
    assert run(store.parked()) == {"x": 1}
    assert [app.job(id).reason for id in (1, 2)] == [None, "no running worker knows task x"]
    assert rows(database, "SELECT reason FROM towline_jobs ORDER BY id")[0] == (None,)
    assert run(Op("unpark", lambda: unpark(store, ["x"], QUEUES))) == 1
    assert not run(store.peek(QUEUES, tasks=["x"])).parked
    assert [job.job_id for job in run(store.claim(1, QUEUES, 9))] == [2]


def test_L1_a_turn_promotes_finishes_and_claims_in_one_transaction(
    play: Play, store: Store, clock: Clock
) -> None:
    def begin() -> Steps[None]:
        yield from register(store)
        yield from store.enqueue([
            new("a"),  # 1
            new("b", after=[1], priority=1),  # 2: freed by this very turn
            new("c", delay=5 * SECOND),  # 3: due in this very turn
            new("d", delay=65 * SECOND),  # 4
            new("e"),  # 5
        ])  # fmt: skip
        turn = yield from store.turn(1, "w1", ["default"], 1)
        assert [job.job_id for job in turn.claimed] == [1]
        assert (turn.promoted, turn.next_due, turn.blockers) == (0, None, {})
        clock.advance(5)
        (held,) = turn.claimed
        turn = yield from store.turn(1, "w1", ["default"], 9, [completed(held, "[7]")])
        assert (turn.finished.accepted, turn.promoted) == ([1], 1)
        assert [job.job_id for job in turn.claimed] == [2, 3, 5]
        assert turn.next_due == clock() + 60 * SECOND
        ((blocker,),) = turn.blockers.values()
        assert (blocker.job_id, blocker.chain_id, blocker.output) == (2, 1, "[7]")
        (attempt,) = yield from store.attempts(1)
        assert (attempt.worker, attempt.outcome) == ("w1", Outcome.COMPLETED)
        stale = yield from store.turn(1, "w1", ["default"], 0, [failed(held)])
        assert (stale.finished.refused, stale.claimed) == ([1], [])

    play(begin)
