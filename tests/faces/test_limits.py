"""Limits and lanes as an application says them: refusals with their words, lanes of calls, workers
that keep limits, drains, the clock of a test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.until import until
from towline import INJECTED, Context, InvalidState, Next, Snooze, Tasks, Towline
from towline.errors import InvalidSetting, InvalidTask
from towline.testing import Clock, drain, isolated


@pytest.fixture
def app(make_app: Callable[..., Towline]) -> Towline:
    return make_app()


# ---- refused before the database is touched


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"concurrency": -1}, "concurrency is a whole number from 0, not -1"),
        ({"concurrency": 1.5}, "concurrency is a whole number from 0, not 1.5"),
        ({"concurrency": True}, "concurrency is a whole number from 0, not True"),
        ({"concurrency": 2**31}, "is no limit: leave it out"),
        ({"rate": 0}, "rate is a whole number from 1 to 1000000, not 0"),
        ({"rate": 1_000_001}, "rate is a whole number from 1 to 1000000, not 1000001"),
        ({"rate": 1, "per": 0.05}, "per is at least 0.1 seconds, not 0.05"),
        ({"lane": "", "concurrency": 1}, 'lane "" is no name'),
        ({"lane": 1.5, "concurrency": 1}, "lane is text or a whole number, not float"),
        ({"lane": "a\n", "concurrency": 1}, "printable characters"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused(
    app: Towline, given: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidSetting, match=words.replace("*", r"\*")):
        app.set_limit("mail", **given)
    with pytest.raises(InvalidSetting, match=words.replace("*", r"\*")):
        app.declare_limit("mail", **given)
    assert app.limits() == []


def test_a_declared_limit_needs_a_number_and_is_declared_once(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match="needs concurrency= or rate="):
        app.declare_limit("mail")
    app.declare_limit("mail", lane="*", concurrency=2)
    with pytest.raises(InvalidSetting, match="each lane of queue mail is declared already"):
        app.declare_limit("mail", lane="*", concurrency=3)


@pytest.mark.parametrize("queue", ["*", "-mail"])
def test_a_limit_is_of_one_queue(app: Towline, queue: str) -> None:
    with pytest.raises(InvalidSetting, match="cannot be a name"):
        app.set_limit(queue, concurrency=1)
    with pytest.raises(InvalidSetting, match="cannot be a name"):
        app.declare_limit(queue, concurrency=1)
    assert app.limits() == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lane": ""}, 'lane "" is no name: leave it out for a job outside of lanes'),
        ({"lane": "*"}, 'lane "\\*" stands for each lane and cannot be the name of one'),
        ({"lane": True}, "lane is text or a whole number, not bool"),
        ({"weight": 0}, "weight is a whole number from 1 to 1000000, not 0"),
        ({"weight": 1.0}, "weight is a whole number from 1 to 1000000, not 1.0"),
    ],
)
def test_a_lane_or_weight_that_makes_no_sense_is_refused(
    app: Towline, given: dict[str, Any], words: str
) -> None:
    @app.task
    def send() -> None: ...

    with pytest.raises(InvalidSetting, match=words):
        send.using(**given)


def test_a_weight_above_the_declared_limit_is_refused(app: Towline) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    app.declare_limit("mail", concurrency=5)
    app.declare_limit("mail", lane="*", concurrency=2)
    app.declare_limit("mail", lane="big", rate=4)
    assert send.using(weight=2).enqueue("acme").weight == 2
    assert send.using(weight=4).enqueue("big").weight == 4
    for tenant, weight, words in [
        ("acme", 3, "weight 3 is above the declared limit of each lane of queue mail, which is 2"),
        ("big", 5, "weight 5 is above the declared limit of lane big of queue mail, which is 4"),
        ("big", 6, "weight 6 is above the declared limit of queue mail, which is 5"),
    ]:
        with pytest.raises(InvalidSetting, match=words):
            send.using(weight=weight).enqueue(tenant)


def test_a_weight_above_the_declared_limit_is_refused_for_schedules_and_continuations(
    app: Towline,
) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    @app.task(queue="mail", lane="tenant", max_attempts=1)
    def prepare(tenant: str, weight: int, child: bool) -> Next[None]:
        if child:
            return note.using(after=[send.using(weight=weight).call(tenant)]).then()
        return note.using(weight=weight).then()  # which stays in this lane

    @app.task
    def note() -> None: ...

    app.declare_limit("mail", lane="*", concurrency=2)
    words = "weight 3 is above the declared limit of each lane of queue mail, which is 2"
    heavy = send.using(weight=3).call("acme")
    with pytest.raises(InvalidSetting, match=words):
        app.set_schedule("hourly", heavy, "@hourly")
    with pytest.raises(InvalidSetting, match=words):
        app.complete(note.enqueue().id, note.using(after=[heavy]).then())
    jobs = [prepare.enqueue("acme", weight, child) for weight in (2, 3) for child in (False, True)]
    app.worker(drain=True).run()
    assert [job.refresh().state for job in jobs] == ["completed"] * 2 + ["failed"] * 2
    assert all(words in (job.error or "") for job in jobs[2:])
    app.declare_schedule("hourly", heavy, "@hourly")
    with pytest.raises(InvalidSetting, match=words):
        app.worker(drain=True).run()


def test_a_lane_parameter_must_exist_and_name_a_lane(app: Towline) -> None:
    with pytest.raises(InvalidTask, match="send has no parameter 'tenant' to name its lane"):

        @app.task(lane="tenant")
        def send(to: str) -> None: ...

    @app.task(lane="tenant")
    def other(tenant: float) -> None: ...

    with pytest.raises(InvalidTask, match="lane='tenant' is neither str nor int, but float"):
        other.enqueue(1.5)
    assert list(app.jobs()) == []


def test_run_now_in_a_lane_says_what_lets_it_go(app: Towline) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    job = send.enqueue("acme")
    with pytest.raises(
        InvalidState,
        match=rf"job {job.id} waits in lane acme of queue mail \(0 running\); set_limit lets it go",
    ):
        app.run_now(job.id)


# ---- lanes of calls


def test_the_lane_of_a_call_is_the_value_of_its_parameter_or_what_it_says(app: Towline) -> None:
    tasks = Tasks()

    @tasks.task(queue="mail", lane="tenant")
    def send(to: str, tenant: int | str | None = "usual") -> None: ...

    app.include(tasks)
    assert send.enqueue("a").lane == "usual"
    assert send.enqueue("a", 7).lane == "7"
    assert send.enqueue("a", tenant="acme").lane == "acme"
    assert send.enqueue("a", None).lane is None
    assert send.using(lane="other").enqueue("a", "acme").lane == "other"
    jobs = app.enqueue_many([send.call("a", tenant=n) for n in range(3)])
    assert [job.lane for job in jobs] == ["0", "1", "2"]
    assert [job.lane for job in app.jobs(lane="1")] == ["1"]


@pytest.mark.each_engine
def test_N9_a_lane_that_is_a_number_has_the_limit_of_its_text(app: Towline) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: int) -> int:
        return tenant

    app.declare_limit("mail", lane=7, concurrency=5)
    app.declare_limit("mail", lane="*", concurrency=1)
    with pytest.raises(InvalidSetting, match="lane 7 of queue mail is declared already"):
        app.declare_limit("mail", lane="7", concurrency=3)
    for concurrency in (5, 6):
        job = send.using(weight=5).enqueue(7)
        app.worker(drain=True).run()
        assert job.refresh().output == 7
        found = [(limit.lane, limit.concurrency, limit.declared) for limit in app.limits()]
        assert sorted(found) == [("*", 1, True), ("7", concurrency, True)]
        app.set_limit("mail", lane=7, concurrency=6)


# ---- workers


class Busy:
    """How many handlers run at once, at most, by lane."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now: dict[str, int] = {}
        self.most: dict[str, int] = {}

    def run(self, *lanes: str, seconds: float = 0.01) -> None:
        with self._lock:
            for lane in lanes:
                self._now[lane] = self._now.get(lane, 0) + 1
                self.most[lane] = max(self.most.get(lane, 0), self._now[lane])
        time.sleep(seconds)
        with self._lock:
            for lane in lanes:
                self._now[lane] -= 1


@pytest.mark.each_engine
def test_G1_G11_two_workers_keep_declared_limits_and_one_that_is_set_later(app: Towline) -> None:
    busy = Busy()

    @app.task(queue="mail", lane="tenant")
    def send(tenant: str | None) -> None:
        busy.run("all", tenant or "-")

    app.declare_limit("mail", concurrency=3)
    app.declare_limit("mail", lane="*", concurrency=2)
    app.runner.store.backstop = None
    calls = [send.call(tenant) for tenant in ("a", "b", "c", None) for _ in range(15)]
    jobs = app.enqueue_many(calls)
    with app.worker(concurrency=6, name="one"), app.worker(concurrency=6, name="two"):
        for job in jobs:
            job.result(timeout=60)
        assert busy.most["all"] == 3
        assert busy.most["a"] <= 2
        app.set_limit("mail", concurrency=1)
        busy.most.clear()
        for job in app.enqueue_many(calls[:20]):
            job.result(timeout=60)
        assert busy.most["all"] == 1
    assert app.limits("mail")[0].edited


@pytest.mark.each_engine
def test_G2_a_limit_of_one_goes_on_by_itself_whatever_ends_a_job(app: Towline) -> None:
    """A handler that ends its job in a transaction of its own leaves no ending to write."""

    @app.task(queue="mail")
    def inside(ctx: Context = INJECTED) -> str:
        with ctx.transaction() as tx:
            tx.complete("done")
        return "ignored"

    @app.task(queue="mail", max_attempts=1)
    def fails() -> None:
        raise ValueError("no")

    app.set_limit("mail", concurrency=1)
    app.runner.store.backstop = None
    jobs = [(inside if n % 2 else fails).enqueue() for n in range(12)]
    began = time.monotonic()
    with app.worker(concurrency=4):
        until(lambda: not list(app.jobs(state=["pending", "running"])), "all of it")
    assert time.monotonic() - began < 30  # looks come every 5 s: one for each would be a minute
    assert {app.job(job.id).state for job in jobs} == {"completed", "failed"}


@pytest.mark.each_engine
def test_G14_a_handler_lets_its_lane_rest(app: Towline) -> None:
    began: list[tuple[str, float]] = []

    @app.task(queue="mail", lane="tenant")
    def send(tenant: str, ctx: Context = INJECTED) -> None:
        began.append((tenant, time.monotonic()))
        if [name for name, _ in began] in (["acme"], ["other", "acme"]):
            raise Snooze(1, lane=True)

    app.set_limit("mail", lane="*", concurrency=1)
    jobs = [send.enqueue("acme"), send.enqueue("acme"), send.enqueue("other")]
    with app.worker(concurrency=4):
        for job in jobs:
            job.result(timeout=30)
    first, *acme = [at for tenant, at in began if tenant == "acme"]
    (other,) = [at for tenant, at in began if tenant == "other"]
    assert len(acme) == 2
    assert all(at - first >= 1 for at in acme)
    assert other < min(acme)


@pytest.mark.each_engine
def test_a_drain_is_not_dry_while_a_limit_holds_something_back(app: Towline) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    app.set_limit("mail", lane="*", rate=1, per=1.5)
    app.set_limit("mail", lane="stopped", concurrency=0)
    for tenant in ("a", "a", "stopped"):
        send.enqueue(tenant)
    assert app.worker(drain=True).run() == 0
    left = [job.lane for job in app.jobs(state="pending")]
    assert left == ["stopped"]


# ---- on the clock of a test


def test_the_drain_of_a_test_keeps_limits_on_the_moved_clock(app: Towline) -> None:
    at: list[float] = []
    clock = Clock()

    with isolated(app, clock=clock):

        @app.task(queue="mail", lane="tenant")
        def send(tenant: str) -> None:
            at.append(clock() / 1_000_000)

        app.set_limit("mail", lane="*", rate=2, per=60)
        app.enqueue_many([send.call("acme") for _ in range(5)])
        assert drain(app) == 2
        assert drain(app, advance=True) == 3
        assert at[2] - at[0] >= 60
        assert at[4] - at[2] >= 60


def test_the_drain_of_a_test_ends_at_a_lane_that_is_stopped(app: Towline) -> None:
    with isolated(app, clock=Clock()):

        @app.task(queue="mail", lane="tenant")
        def send(tenant: str) -> None: ...

        app.set_limit("mail", lane="*", concurrency=0)
        send.enqueue("acme")
        assert drain(app, advance=True) == 0


# ---- beside the rest


@pytest.mark.each_engine
def test_D3_a_call_that_replaces_another_goes_into_the_lane_of_its_arguments(app: Towline) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: str | None, to: str = "") -> None: ...

    job = send.using(key="k", weight=2).enqueue("acme")
    for tenant in ("other", None):
        send.using(key="k", on_conflict="replace").enqueue(tenant)
        job.refresh()
        assert (job.lane, job.weight) == (tenant, 2)
    send.using(key="k", on_conflict="latest", lane="mine", weight=1).enqueue("x")
    job.refresh()
    assert (job.lane, job.weight) == ("mine", 1)
    assert drain(app) == 1


@pytest.mark.each_engine
def test_Y1_a_schedule_says_for_how_long_its_jobs_are_good(app: Towline) -> None:
    @app.task(queue="mail", lane="tenant")
    def report(tenant: str) -> None: ...

    call = report.using(expires=30, weight=2).call("acme")
    job = app.set_schedule("s", call, "@hourly").run()
    assert job.expires_at is not None
    assert (job.expires_at - job.created_at).total_seconds() == 30
    assert (job.lane, job.weight) == ("acme", 2)
    moment = job.expires_at
    with pytest.raises(InvalidSetting, match="takes expires= as a duration"):
        app.set_schedule("s", report.using(expires=moment).call("acme"), "@hourly")


@pytest.mark.each_engine
def test_N9_a_worker_says_which_declared_limit_it_leaves_as_people_have_set_it(
    app: Towline, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(queue="mail")
    def send() -> None: ...

    app.set_limit("mail", concurrency=9)
    app.declare_limit("mail", concurrency=1)
    app.declare_limit("mail", lane="*", concurrency=2)
    with app.worker():
        until(lambda: len(app.limits()) == 2, "the limit of each lane")
        until(lambda: "as it was set at run time" in caplog.text, "a line")
    assert "leaves the limit of queue mail as it was set at run time" in caplog.text
    assert [(limit.lane, limit.concurrency) for limit in app.limits()] == [(None, 9), ("*", 2)]


@pytest.mark.each_engine
def test_N9_a_limit_that_no_living_worker_declares_is_declared_anew(
    app: Towline, make_app: Callable[..., Towline]
) -> None:
    """A worker of an older release was the last to start, and is gone."""

    def release(concurrency: int) -> Towline:
        made = make_app()

        @made.task(name="send", queue="mail")
        def send() -> None: ...

        made.declare_limit("mail", concurrency=concurrency)
        return made

    def declared() -> list[int | None]:
        return [limit.concurrency for limit in app.limits()]

    new, old = release(2), release(1)
    with new.worker():
        until(lambda: declared() == [2], "what the new release declares")
        with old.worker():
            until(lambda: declared() == [1], "what the old one does")
        until(lambda: declared() == [2], "the new one again")


@pytest.mark.each_engine
def test_F7_G1_a_chunk_gathers_no_more_than_the_limit_of_its_queue(app: Towline) -> None:
    sizes: list[int] = []

    @app.chunk(size=50, wait=0.05, queue="mail", lane="items")
    def index(items: list[str]) -> None:
        sizes.append(len(items))

    app.declare_limit("mail", lane="*", concurrency=3)
    jobs = app.enqueue_many([index.call("acme") for _ in range(10)])
    with app.worker(concurrency=8):
        for job in jobs:
            job.result(timeout=60)
    assert max(sizes) <= 3
    assert sum(sizes) == 10


@pytest.mark.each_engine
def test_F7_a_chunk_is_filled_from_a_limited_queue_though_slots_are_few(app: Towline) -> None:
    sizes: list[int] = []

    @app.chunk(size=20, wait=3600, queue="mail")
    def index(items: list[int]) -> None:
        sizes.append(len(items))

    app.declare_limit("mail", concurrency=30)
    jobs = app.enqueue_many([index.call(n) for n in range(20)])
    with app.worker(concurrency=2):
        for job in jobs:
            job.result(timeout=60)
    assert sizes == [20]
