"""Words for several queues, the order of claims between them, the pause of all. Every kind."""

from __future__ import annotations

from tests.conformance.conftest import Play
from tests.kit import Clock, claim, completed, new, put, register
from towline import Towline
from towline.model import State
from towline.operation import Op, Statement, Steps
from towline.store import Store
from towline.store.served import Portion
from towline.store.turn import Turn

EVERY = ["*"]


def three_queues(store: Store) -> Steps[int]:
    """Jobs 1 to 6, two in each queue, the newer of each more urgent."""
    number = yield from register(store)
    queues = ("mail", "default", "slow")
    yield from store.enqueue([new(queue=queue, priority=p) for p in (0, 1) for queue in queues])
    return number


def test_every_queue_is_served_also_one_that_was_not_used_before(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        worker = yield from three_queues(store)
        assert (yield from store.peek(EVERY, 10)).pending == 6
        taken = yield from store.turn(worker, "w1", EVERY, 5)
        assert [job.job_id for job in taken.claimed] == [4, 5, 6, 1, 2]
        yield from store.enqueue([new(queue="new")])
        taken = yield from store.turn(worker, "w1", EVERY, 5)
        assert [job.queue for job in taken.claimed] == ["slow", "new"]
        assert (yield from store.turn(worker, "w1", EVERY, 5)).claimed == []
        assert (yield from store.peek(EVERY)).pending == 0

    play(script)


def test_all_but_some_queues_are_served(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        worker = yield from three_queues(store)
        words = ["*", "-slow", "-mail"]
        assert (yield from store.peek(words, 10)).pending == 2
        taken = yield from store.turn(worker, "w1", words, 5)
        assert [job.queue for job in taken.claimed] == ["default", "default"]

    play(script)


def test_a_job_that_comes_due_in_a_new_queue_is_claimed_by_the_same_turn(
    play: Play, store: Store, clock: Clock
) -> None:
    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from store.enqueue([new(queue="later", delay=1_000_000)])
        clock.advance(2)
        taken = yield from store.turn(worker, "w1", EVERY, 5)
        assert [job.queue for job in taken.claimed] == ["later"]

    play(script)


def test_parked_jobs_and_orphans_of_every_queue_are_found(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        worker = yield from register(store)
        yield from store.enqueue([new("strange", queue="far")])
        yield from store.park((yield from claim(store, 1, queues=EVERY)))
        assert (yield from store.peek(EVERY, 1, ["strange"])).parked
        assert not (yield from store.peek(["*", "-far"], 1, ["strange"])).parked
        taken = yield from store.turn(worker, "w1", EVERY, 5, (), ["strange"])
        assert [job.task for job in taken.claimed] == ["strange"]
        assert (yield from store.drop_orphans(EVERY)) == 0

    play(script)


def test_portions_are_claimed_one_after_the_other_each_up_to_its_number(
    play: Play, store: Store
) -> None:
    def script() -> Steps[None]:
        worker = yield from three_queues(store)
        order = [Portion(["slow"], 9), Portion(["mail"], 1), Portion(["*", "-slow", "-mail"], 9)]
        queues = ["slow", "mail", "*"]
        taken = yield from store.turn(worker, "w1", queues, 2, ahead=2, portions=order)
        assert [job.job_id for job in taken.claimed] == [6, 3, 4, 5]
        assert taken.begun == 2
        for id, state in ((6, State.RUNNING), (3, State.RUNNING), (4, State.PENDING)):
            assert (yield from store.job(id)).state is state
        endings = [completed(job) for job in taken.claimed]
        taken = yield from store.turn(worker, "w1", queues, 9, endings, portions=order)
        assert len(taken.finished.accepted) == 4
        assert [job.job_id for job in taken.claimed] == [1, 2]

    play(script)


def test_L8_a_pause_of_every_queue_is_also_one_of_those_not_used_yet(
    play: Play, store: Store, app: Towline
) -> None:
    def pause() -> Steps[None]:
        worker = yield from three_queues(store)
        yield from store.pause("slow")
        yield from store.pause("*", by="ann")
        yield from store.enqueue([new(queue="new")])
        for queues in (["mail", "new"], EVERY):
            assert (yield from store.peek(queues, 10)).pending == 0
            assert (yield from store.turn(worker, "w1", queues, 9)).claimed == []
            assert (yield from claim(store, 9, queues=queues)) == []

    def resume() -> Steps[None]:
        yield from store.resume("*")
        found = yield from claim(store, 9, queues=EVERY)
        assert {job.queue for job in found} == {"mail", "default", "new"}  # slow stays paused

    play(pause)
    assert app.paused() == ["*", "slow"]
    assert app.why(1).startswith("every queue is paused by ann since ")
    play(resume)


def test_a_turn_on_every_queue_looks_up_their_names_once(play: Play, store: Store) -> None:
    """For what it unparks, claims and sees next alike: one look for each of two states."""
    asked: list[str] = []

    def noted(op: Op[Turn]) -> Steps[Turn]:
        running = iter(op)
        try:
            step = next(running)
            while True:
                if isinstance(step, Statement):
                    asked.append(step.query.name)
                step = running.send((yield step))
        except StopIteration as stop:
            turn: Turn = stop.value
            return turn

    def script() -> Steps[None]:
        worker = yield from register(store, "w")
        (id,) = yield from put(store, new(queue="media"))
        (held,) = yield from claim(store, queues=["media"])
        yield from store.park([held])
        turn = yield from noted(store.turn(worker, "w", EVERY, 3, (), [held.task]))
        assert [job.job_id for job in turn.claimed] == [id]

        assert asked.count("live_strips") == 2

    play(script)
