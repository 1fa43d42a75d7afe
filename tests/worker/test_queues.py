"""Which queues a worker serves, in which order, and with how many slots for each."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import pytest

from tests.database import Database
from tests.until import until
from tests.worker.gate import LIMIT
from towline import Towline
from towline.errors import InvalidSetting, InvalidTask
from towline.model import State
from towline.store.served import Portion
from towline.worker.preference import OTHERS_FIRST, Preference
from towline.worker.settings import check_settings


def shares(queues: Any, **more: Any) -> list[tuple[tuple[str, ...], int | None]]:
    settings = check_settings(["a"], queues=queues, **more)
    return [(share.queues, share.slots) for share in settings.shares]


def test_a_list_is_an_order_of_preference_and_nothing_else_is() -> None:
    assert shares(None) == shares(["a"]) == shares(["*"]) == shares(["*", "-slow"]) == []
    assert shares("*") == shares("-slow") == []
    assert shares(["b", "a"]) == [(("b",), None), (("a",), None)]
    assert shares(["b", "*", "-slow"]) == [(("b",), None), (("*", "-slow", "-b"), None)]
    assert shares({"b": 2, "*": 3}) == [(("b",), 2), (("*", "-b"), 3)]
    assert check_settings(["a"], queues=["-slow"]).queues == ("-slow", "*")
    assert check_settings(["a"], queues={"b": 2, "*": 3}).concurrency == 5
    assert check_settings(["a"], queues={"b": 2}, concurrency=7).concurrency == 7


@pytest.mark.parametrize(
    ("queues", "words"),
    [
        ({"mail": 0}, "slots of queue 'mail' are a number from 1, not 0"),
        ({"mail": True}, "slots of queue 'mail' are a number from 1, not True"),
        ({"mail": "2"}, "slots of queue 'mail' are a number from 1, not '2'"),
        ({"-mail": 2}, "queue '-mail' is left out: it has no slots"),
        ({}, "queues= is a list of names"),
        ("mail", "queues= is a list of names"),
        (["-"], "all but which"),
    ],
)
def test_what_makes_no_sense_is_refused(app: Towline, queues: Any, words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        app.worker(queues=queues)


@pytest.mark.parametrize("name", ["*", "-slow"])
def test_a_word_for_several_queues_is_no_name_of_one(app: Towline, name: str) -> None:
    @app.task
    def one() -> None:
        pass

    with pytest.raises(InvalidSetting, match="cannot be a name"):
        one.using(queue=name).enqueue()
    with pytest.raises((InvalidSetting, InvalidTask), match="cannot be a name"):
        app.task(queue=name, name="two")(lambda: None)


def test_a_later_queue_comes_first_now_and_then() -> None:
    """So it stands still for no backlog of those before it."""
    preference = Preference(check_settings(["a"], queues=["a", "b", "c"]))
    firsts = [preference.portions([], 5)[0] for _ in range(4 * OTHERS_FIRST)]
    assert Counter(firsts) == {
        Portion(("a",), 5): 4 * OTHERS_FIRST - 4,
        Portion(("b",), 1): 2,
        Portion(("c",), 1): 2,
    }


def test_slots_of_a_queue_are_not_exceeded_when_it_comes_first() -> None:
    preference = Preference(check_settings(["a"], queues={"a": 5, "b": 2}))
    for _ in range(3 * OTHERS_FIRST):
        portions = preference.portions([], 7)
        assert sum(portion.most for portion in portions if portion.queues == ("b",)) == 2


def ran_in_order(app: Towline, queues: Any, **settings: Any) -> list[str]:
    """Two jobs of each of three queues, run one after the other; of which queue each was."""
    order: list[str] = []

    @app.task
    def note(queue: str) -> None:
        order.append(queue)

    calls = [note.using(queue=q).call(q) for q in ("slow", "default", "mail") for _ in range(2)]
    app.enqueue_many(calls)
    worker = app.worker(queues=queues, concurrency=1, prefetch=0, drain=True, **settings)
    worker.run()
    return order


@pytest.mark.each_engine
def test_the_first_queue_of_a_list_is_emptied_before_the_next(
    app: Towline, trouble: object
) -> None:
    order = ran_in_order(app, ["mail", "default", "slow"])
    assert order == ["mail", "mail", "default", "default", "slow", "slow"]


@pytest.mark.each_engine
def test_a_preferred_queue_comes_before_all_others_but_one(app: Towline, trouble: object) -> None:
    order = ran_in_order(app, ["default", "-slow"])
    assert order == ["default", "default", "mail", "mail"]
    assert app.counts()["slow"] == {State.PENDING: 2}


@pytest.mark.each_engine
def test_every_queue_is_served_also_one_that_is_used_for_the_first_time(app: Towline) -> None:
    @app.task
    def one(n: int) -> int:
        return n

    with app.worker(queues="*"):
        for number in range(3):
            job = one.using(queue=f"queue{number}").enqueue(number)
            assert job.result(timeout=LIMIT) == number
        (row,) = app.workers()
        assert row.queues == ("*",)
        assert row.serves("anything")


@pytest.mark.each_engine
def test_a_queue_has_no_more_slots_than_it_was_given(app: Towline) -> None:
    running, most = 0, 0
    mutex = threading.Lock()
    others = threading.Semaphore(0)

    @app.task(queue="mail")
    def mail() -> None:
        nonlocal running, most
        with mutex:
            running += 1
            most = max(most, running)
        assert others.acquire(timeout=LIMIT)  # while mail is full, the other queue goes on
        with mutex:
            running -= 1

    @app.task(queue="other")
    def other() -> None:
        others.release()

    mails = app.enqueue_many([mail.call() for _ in range(20)])
    with app.worker(queues={"mail": 2, "other": 2}):
        until(lambda: running == 2)
        rest = app.enqueue_many([other.call() for _ in range(20)])
        app.wait([*mails, *rest], timeout=LIMIT)
    assert most == 2


def test_a_full_queue_goes_on_when_a_handler_has_completed_its_job_itself(
    app: Towline, sqlite: Database
) -> None:
    """There is no ending to write then, whose turn would claim the next."""
    from towline import INJECTED, Context

    @app.task(queue="mail")
    def mail(ctx: Context = INJECTED) -> None:
        with ctx.transaction():
            pass

    jobs = app.enqueue_many([mail.call() for _ in range(30)])
    with app.worker(queues={"mail": 1, "other": 1}):
        app.wait(jobs, timeout=LIMIT)


@pytest.mark.each_engine
def test_a_resume_of_every_queue_wakes_workers(app: Towline) -> None:
    @app.task(queue="mail")
    def one() -> int:
        return 1

    app.pause("*")
    with app.worker():
        job = one.enqueue()
        until(app.workers)
        assert app.job(job.id).state is State.PENDING
        app.resume("*")
        assert job.result(timeout=LIMIT) == 1
