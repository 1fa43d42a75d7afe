"""Groups: jobs that belong together, and the job behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.conformance.conftest import Play
from tests.conformance.statements import Answer, watched
from tests.kit import Clock, beat, claim, completed, continued, finish_all, new, put
from towline import (
    INJECTED,
    ChainCancelled,
    ChainFailed,
    Context,
    Failure,
    Next,
    NotFound,
    Task,
    Towline,
    WaitTimeout,
)
from towline.app import group as group_module
from towline.app.group import Group
from towline.app.groups import MOST_MEMBERS
from towline.errors import InvalidSetting, InvalidTask, StillNeeded
from towline.model import ChainState, Policy
from towline.operation import Op, Steps
from towline.store import Store
from towline.task import GROUP
from towline.testing import drain


@pytest.fixture
def double(app: Towline) -> Task[[int], int]:
    @app.task(max_attempts=1)
    def double(n: int) -> int:
        if n < 0:
            raise ValueError(f"{n} is negative")
        return 2 * n

    return double


@pytest.fixture
def publish(app: Towline) -> Task[[int], str]:
    @app.task
    def publish(album: int) -> str:
        return f"album {album}"

    return publish


# ---- F1: the last job runs once, after every member's last


@pytest.mark.parametrize("size", [0, 1, 3])
def test_F1_the_last_job_runs_once_after_every_member(
    app: Towline, double: Any, publish: Any, size: int
) -> None:
    group = app.enqueue_group([double.call(n) for n in range(size)], then=publish.call(7))
    assert (group.total, group.ended) == (size, 0)
    assert group.state == ("blocked" if size else "pending")
    for ended in range(size):
        drain(app, until=app.job(app.blockers(group.id)[ended].chain_id))
        assert group.refresh().ended == ended + 1
    drain(app)
    assert (group.refresh().state, group.last.result(0)) == ("completed", "album 7")
    assert list(group.results(0)) == [2 * n for n in range(size)]
    assert [attempt.outcome for attempt in app.attempts(group.id)] == ["completed"]


def test_F1_without_then_a_job_that_does_nothing_is_behind(app: Towline, double: Any) -> None:
    """Of a task that every worker knows and that is listed nowhere, in the first one's queue."""
    group = app.enqueue_group([double.using(queue="x").call(1), double.call(2)])
    assert (group.task, group.queue, group.total) == (GROUP, "x", 2)
    assert GROUP not in app.registry
    drain(app)
    assert (group.refresh().state, group.last.result(0)) == ("completed", None)


def test_F1_an_empty_group_is_claimed_where_the_app_has_tasks(app: Towline) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    assert app.enqueue_group([]).queue == "mail"

    @app.task
    def plain() -> None: ...

    assert app.enqueue_group([]).queue == "default"


def test_F1_members_are_waited_for_to_their_last_job(play: Play, store: Store) -> None:
    def script() -> Steps[None]:
        ids = yield from put(store, new(), new())
        (last,) = yield from put(store, new("last", after=ids, policy=Policy.RUN))
        one, two = yield from claim(store, 2)
        yield from store.finish([completed(one), continued(two, new("goes on"))])
        assert (yield from store.group(last))[1] == 1
        assert (yield from store.job(last)).state == "blocked"
        ran = yield from finish_all(store)
        assert ran[-1] == last
        assert (yield from store.group(last))[1] == 2

    play(script)


BAD = {
    "failed": lambda app, id: app.fail(id, "broken"),
    "cancelled": lambda app, id: app.cancel(id),
}


@pytest.mark.parametrize("how", BAD)
@pytest.mark.parametrize("policy", ["fail", "wait", "run", "none"])
def test_F1_F2_a_member_that_fails(
    app: Towline, double: Any, publish: Any, how: str, policy: Any
) -> None:
    """Progress stays exact, whatever the last job makes of it; a retry of the member goes on."""
    then = None if policy == "none" else publish.using(on_blocker_failure=policy).call(7)
    group = app.enqueue_group([double.call(n) for n in range(4)], then=then)
    members = [blocker.chain_id for blocker in app.blockers(group.id)]
    BAD[how](app, members[1])
    assert (group.refresh().ended, group.failed()) == (1, 1)
    assert group.state == ("failed" if policy == "fail" else "blocked")
    drain(app)
    assert (group.refresh().ended, group.failed()) == (4, 1)
    wanted = {"fail": "failed", "wait": "blocked", "run": "completed", "none": "completed"}[policy]
    assert group.state == wanted
    if policy in ("fail", "wait"):
        app.retry(members[1])
        drain(app)
        assert (group.refresh().state, group.ended, group.failed()) == ("completed", 4, 0)


def test_F1_a_member_cannot_be_deleted_while_the_last_job_is_open(
    app: Towline, double: Any, clock: Clock
) -> None:
    group = app.enqueue_group([double.call(n) for n in range(3)])
    first = app.blockers(group.id)[0].chain_id
    drain(app, until=app.job(first))
    with pytest.raises(StillNeeded, match=f"job {group.id} wait"):
        app.delete(first)
    clock.advance(10 * 24 * 3600)
    app.prune()
    assert app.job(first).state == "completed"
    drain(app)
    app.delete(first)
    assert (group.refresh().ended, group.total) == (3, 3)
    with pytest.raises(NotFound, match=f"member 0 of group {group.id} is gone"):
        list(group.results(0))


# ---- F2: progress, from anywhere


def test_F2_progress_is_one_row_however_many_members(app: Towline, store: Store) -> None:
    def steps(size: int) -> Steps[int]:
        ids = yield from put(store, *[new() for _ in range(size)])
        (last,) = yield from put(store, new("last", after=ids, policy=Policy.RUN))
        yield from store.complete(ids[0], "1")
        yield from store.fail(ids[1], "no")
        return last

    for size in (3, 300):
        last = app.runner.run(Op("put", steps, size))
        answers: list[Answer] = []
        op = Op("group", watched(partial(iter, store.group(last)), answers))
        assert app.runner.run(op).ended == 2
        assert [(name, len(rows)) for (name, _), rows in answers] == [("job_records", 1)]


def test_F2_a_group_is_found_and_cancelled_from_anywhere(
    app: Towline, url: str, double: Any, publish: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job behind first, then the open members by page; what has ended stays as it is."""
    monkeypatch.setattr(group_module, "CANCEL_PAGE", 2)
    made = app.enqueue_group([double.call(n) for n in range(5)], then=publish.call(1))
    drain(app, until=app.job(app.blockers(made.id)[0].chain_id))
    other = Towline(url)
    try:
        found = other.group(made.id)
        assert (found.id, found.total, found.ended, found.state) == (made.id, 5, 1, "blocked")
        cancelled = asyncio.run(found.acancel("not wanted", by="ops"))
        assert (cancelled.state, cancelled.ended, cancelled.failed()) == ("cancelled", 5, 4)
        assert [str(b.state) for b in other.blockers(made.id)] == ["completed", *["cancelled"] * 4]
        assert {line.by for line in other.audit()} == {"ops"}
    finally:
        other.close()
    assert drain(app) == 0
    assert made.cancel().state == "cancelled"  # again: nothing is left to do
    with pytest.raises(NotFound, match="no job 999"):
        app.group(999)


def test_F2_a_cancel_goes_on_to_the_members_when_what_is_behind_them_has_just_ended(
    app: Towline, double: Task[[int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = app.enqueue_group(
        [double.using(delay=999).call(n) for n in range(3)],
        then=double.using(on_blocker_failure="run").call(4),
    )
    cancel = Store.cancel

    def late(self: Store, job: int, *given: Any) -> Op[Any]:
        if job == group.id:
            app.complete(group.id, 8)  # somebody else ends it at this moment
        return cancel(self, job, *given)

    monkeypatch.setattr(Store, "cancel", late)
    group.cancel("not wanted")
    assert group.failed() == 3


def test_F2_a_cancel_ends_what_is_behind_the_members_also_when_that_has_gone_on(
    app: Towline, double: Task[[int], int]
) -> None:
    @app.task
    def first() -> Next[int]:
        return double.using(delay=999).then(1)

    group = app.enqueue_group([double.call(1)], then=first.call())
    drain(app)
    assert str(app.chain(group.id).state) == "open"
    group.cancel("not wanted")
    assert str(app.chain(group.id).state) == "cancelled"


def test_F2_a_job_without_members_is_a_group_of_none(app: Towline, double: Any) -> None:
    job = double.enqueue(1)
    assert (app.group(job.id).total, app.group(job.id).ended) == (0, 0)


def test_F2_why_says_what_a_group_waits_for_in_few_words(
    app: Towline, double: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = app.enqueue_group([double.call(n) for n in range(8)])
    drain(app, until=app.job(app.blockers(group.id)[0].chain_id))
    first = app.blockers(group.id)[1].chain_id
    assert app.why(group.id).startswith(
        f"it waits for 7 of the 8 members of its group: {first} (open), "
    )
    assert app.why(group.id).endswith(", and 2 more")
    monkeypatch.setattr("towline.store.why.MOST_NAMED", 4)
    monkeypatch.setattr("towline.app.why.MOST_NAMED", 4)
    assert app.why(group.id) == "it waits for 7 of its 8 chains"


# ---- F3: results


def collected(group: Group[Any], awaits: bool, **options: Any) -> Iterator[Any]:
    """The results on either face, as far as they come."""
    if not awaits:
        yield from group.results(**options)
        return

    async def gather() -> list[Any]:
        return [output async for output in group.aresults(**options)]

    yield from asyncio.run(gather())


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_F3_results_stream_in_order_and_in_pages(
    app: Towline, double: Any, awaits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_module, "PAGE", 4)
    group = app.enqueue_group([double.call(n) for n in range(11)])
    drain(app)
    assert list(collected(group, awaits, timeout=0)) == [2 * n for n in range(11)]


def test_F3_each_result_comes_as_soon_as_those_before_it_are_there(
    app: Towline, double: Any
) -> None:
    group = app.enqueue_group([double.call(n) for n in range(6)])
    ids = [blocker.chain_id for blocker in app.blockers(group.id)]
    for id in (ids[0], ids[1], ids[3]):
        app.complete(id, 100 + id)
    results = group.results(0)
    assert [next(results), next(results)] == [100 + ids[0], 100 + ids[1]]
    app.complete(ids[2], 5)
    assert [next(results), next(results)] == [5, 100 + ids[3]]
    with pytest.raises(WaitTimeout, match="4 of 6 results were given out; it goes on"):
        next(results)


@pytest.mark.parametrize("awaits", [False, True], ids=["blocking", "awaiting"])
def test_F3_a_failure_raises_or_arrives_as_one(app: Towline, double: Any, awaits: bool) -> None:
    group = app.enqueue_group([double.call(n) for n in (1, -2, 3, 4)])
    ids = [blocker.chain_id for blocker in app.blockers(group.id)]
    app.cancel(ids[2], reason="not wanted")
    drain(app, raising=False)
    one, two, three, four = collected(group, awaits, timeout=0, failures="return")
    assert (one, four) == (2, 8)
    assert isinstance(two, Failure)
    assert (two.chain_id, two.state) == (ids[1], ChainState.FAILED)
    assert "-2 is negative" in (two.reason or "")
    assert three == Failure(ids[2], ChainState.CANCELLED, "not wanted")
    results = group.results(0)
    assert next(results) == 2
    with pytest.raises(ChainFailed, match=r"failed \(double\): .*") as caught:
        next(results)
    assert caught.value.chain_id == ids[1]
    with pytest.raises(ChainCancelled):
        list(app.enqueue_group([double.call(1)]).cancel().results(0))


def test_F3_a_blocker_above_a_thousand_is_read_by_page(
    app: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim brings none of them; the handler sees them all the same, by page or awaited."""
    for place in ("towline.store.turn", "towline.worker.attempt", "towline.testing.draining"):
        monkeypatch.setattr(f"{place}.MOST_LOADED", 5)
    monkeypatch.setattr("towline.worker.blocker_pages.PAGE", 3)

    @app.task
    def part(n: int) -> int:
        return n

    @app.task
    def total(ctx: Context = INJECTED) -> list[Any]:
        blockers = ctx.blockers
        assert (len(blockers), blockers[-1], blockers[2:4]) == (8, 7, [2, 3])
        with pytest.raises(IndexError):
            blockers[8]
        assert 5 in blockers
        return [*blockers, blockers.get("last"), blockers.keys()[0]]

    @app.task
    async def atotal(ctx: Context = INJECTED) -> list[int]:
        return list(await ctx.ablockers())

    for size, wanted in ((8, True), (4, False)):
        calls = {str(n): part.call(n) for n in range(size)}
        names = {("last" if n == str(size - 1) else n): call for n, call in calls.items()}
        job = atotal.using(after=names).enqueue()
        drain(app)
        assert job.result(0) == list(range(size))
        if wanted:
            job2 = total.using(after={**names}).enqueue()
            drain(app)
            assert job2.result(0) == [*range(8), 7, "0"]
    (held,) = app.runner.run(Op("put", _claimed_behind, app.runner.store, 6))
    assert held == ()


def _claimed_behind(store: Store, size: int) -> Steps[list[Any]]:
    """What a turn brings along for a job with so many blockers."""
    ids = yield from put(store, *[new() for _ in range(size)])
    (last,) = yield from put(store, new("last", after=ids))
    for id in ids:
        yield from store.complete(id, "1")
    turn = yield from beat(store, 5)
    assert [job.job_id for job in turn.claimed] == [last]
    return [tuple(turn.blockers.get(last, ()))]


# ---- the caller's transaction, and bad input


def test_E1_a_group_of_a_rolled_back_transaction_never_was(
    app: Towline, double: Any, database: Any
) -> None:
    connection = database.connect()
    try:
        group = app.enqueue_group([double.call(1)], on=connection)
        assert group.refresh(on=connection).total == 1
        connection.rollback()
    finally:
        connection.close()
    assert list(app.jobs()) == []
    with pytest.raises(NotFound):
        group.refresh()


def test_one_call_given_twice_is_two_members(app: Towline, double: Any) -> None:
    call = double.call(4)
    group = app.enqueue_group([call, call])
    drain(app)
    assert list(group.results(0)) == [8, 8]


def test_members_bring_what_they_wait_for(app: Towline, double: Any, publish: Any) -> None:
    first = double.call(1)
    group = app.enqueue_group([publish.using(after=[first]).call(2), double.call(3)])
    assert len(list(app.jobs())) == 4
    drain(app)
    assert list(group.results(0)) == ["album 2", 6]


def test_a_group_that_is_too_large_is_refused(app: Towline, double: Any) -> None:
    with pytest.raises(InvalidSetting, match="at most 100,000 members, not 100,001"):
        app.enqueue_group([double.call(1)] * (MOST_MEMBERS + 1))


def test_then_has_no_blockers_of_its_own(app: Towline, double: Any, publish: Any) -> None:
    then = publish.using(after=[5]).call(1)
    with pytest.raises(InvalidSetting, match="then= waits for the members of its group and takes"):
        app.enqueue_group([double.call(1)], then=then)
    with pytest.raises(InvalidSetting, match="then= is a call such as"):
        app.enqueue_group([double.call(1)], then=publish)
    assert list(app.jobs()) == []


def test_failures_is_one_of_two_words(app: Towline, double: Any) -> None:
    with pytest.raises(InvalidSetting, match='failures is "raise" or "return"'):
        app.enqueue_group([double.call(1)]).results(failures="ignore")  # type: ignore[call-overload] # pyright: ignore[reportCallIssue, reportArgumentType]


def test_the_name_of_the_built_in_task_is_taken(app: Towline) -> None:
    with pytest.raises(InvalidTask, match=r"a task named towline\.group already"):
        app.task(name=GROUP)(lambda: None)
