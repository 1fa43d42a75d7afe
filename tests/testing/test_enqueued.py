"""`assert_enqueued` finds what was enqueued, and says what is there instead."""

from __future__ import annotations

from datetime import timedelta

import pytest

from towline import Task, Towline
from towline.errors import InvalidSetting
from towline.testing import Clock, assert_enqueued, drain, enqueued


@pytest.fixture
def mail(app: Towline) -> Task[[int, str], None]:
    @app.task(queue="mail")
    def mail(to: int, subject: str = "hello") -> None: ...

    return mail


@pytest.fixture
def pack(app: Towline) -> Task[[], None]:
    @app.task
    def pack() -> None: ...

    return pack


def test_it_finds_a_task_a_call_and_what_was_said(
    app: Towline, hand: Clock, mail: Task[[int, str], None]
) -> None:
    first = mail.using(key="k", label="nightly", delay=60).enqueue(1, "hello")
    second = mail.using(priority=3, max_attempts=1, timeout=5).enqueue(2, "late")
    third = mail.using(at=hand.now + timedelta(hours=1)).enqueue(3, "at")

    assert [job.id for job in assert_enqueued(mail)] == [first.id, second.id, third.id]
    assert [job.id for job in assert_enqueued(mail.call(1, "hello"))] == [first.id]
    for said in (
        mail.using(key="k", label="nightly").call(1, "hello"),
        mail.using(delay=60, queue="mail").call(1, "hello"),
        mail.using(priority=3, max_attempts=1, timeout=timedelta(seconds=5)).call(2, "late"),
        mail.using(at=hand.now + timedelta(hours=1)).call(3, "at"),
    ):
        assert_enqueued(said, times=1)
    for said in (
        mail.using(key="other").call(1, "hello"),
        mail.using(delay=61).call(1, "hello"),
        mail.using(priority=4).call(2, "late"),
        mail.using(timeout=6).call(2, "late"),
        mail.using(at=hand.now).call(3, "at"),
        mail.call(4, "hello"),
    ):
        assert assert_enqueued(said, times=0) == []
        with pytest.raises(AssertionError, match="was not enqueued"):
            assert_enqueued(said)


def test_it_finds_jobs_that_have_run(app: Towline, pack: Task[[], None]) -> None:
    pack.enqueue()
    drain(app)
    assert_enqueued(pack.call(), times=1)


def test_a_failure_lists_what_is_there(
    app: Towline, mail: Task[[int, str], None], pack: Task[[], None]
) -> None:
    app.enqueue_many([mail.using(key="k", priority=2).call(1, "x"), pack.call(), pack.call()])
    with pytest.raises(AssertionError) as caught:
        assert_enqueued(mail.using(queue="slow").call(7, "y"))
    assert str(caught.value).splitlines() == [
        "mail(to=7, subject='y') with queue='slow' was not enqueued; these jobs of mail are there:",
        "  job 1 mail(to=1, subject='x') pending, queue='mail', key='k', priority=2",
        "and others: pack × 2",
    ]


def test_a_failure_says_that_there_is_nothing(
    app: Towline, mail: Task[[int, str], None], pack: Task[[], None]
) -> None:
    with pytest.raises(AssertionError, match="there is no job of mail, nor of any other"):
        assert_enqueued(mail)
    pack.enqueue()
    with pytest.raises(AssertionError, match="there is no job of mail, only pack × 1"):
        assert_enqueued(mail)


def test_the_number_counts(app: Towline, pack: Task[[], None]) -> None:
    app.enqueue_many([pack.call(), pack.call()])
    assert len(assert_enqueued(pack, times=2)) == 2
    with pytest.raises(AssertionError, match="pack was enqueued 2 times, not once"):
        assert_enqueued(pack, times=1)
    with pytest.raises(AssertionError, match=r"pack\(\) was enqueued 2 times, not 0 times"):
        assert_enqueued(pack.call(), times=0)


def test_a_long_list_is_cut(app: Towline, mail: Task[[int, str], None]) -> None:
    app.enqueue_many([mail.call(n, "x") for n in range(25)])
    with pytest.raises(AssertionError, match="… and 5 more"):
        assert_enqueued(mail.call(99, "x"))


def test_what_is_not_compared_is_refused(app: Towline, pack: Task[[], None]) -> None:
    job = pack.enqueue()
    with pytest.raises(InvalidSetting, match="not compared"):
        assert_enqueued(pack.using(after=[job]).call())


def test_enqueued_gives_every_page_oldest_first(
    app: Towline, pack: Task[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R1"""
    monkeypatch.setattr("towline.testing.inventory.PAGE", 2)
    jobs = app.enqueue_many([pack.call() for _ in range(5)])
    assert [job.id for job in enqueued(app)] == [job.id for job in jobs]
    assert enqueued(app, state="completed") == []
