"""A job in a few words says what its state leaves open, as the dashboard and the lists show it."""

from __future__ import annotations

from tests.kit import Clock
from towline import INJECTED, Context, Towline, views
from towline.brief import brief
from towline.testing import drain


def test_each_state_says_what_it_leaves_open(app: Towline, clock: Clock) -> None:
    @app.task
    def work(ctx: Context = INJECTED) -> None:
        ctx.progress(0.4, "half way")
        said["running"] = words(ctx.job_id)

    @app.task(max_attempts=1)
    def bad() -> None:
        raise ValueError("no such thing\nand more")

    def words(id: int) -> str:
        (data,) = views.jobs_data(app, [app.job(id)])
        return brief(data, app.now())

    said: dict[str, str] = {}
    first = work.using(label="one").enqueue()
    behind = work.using(after=[first], queue="away").enqueue()
    later = work.using(delay=90).enqueue()
    failed = bad.enqueue()
    assert words(first.id) == "one · no worker serves queue default"
    assert words(behind.id) == "waits for 1"
    assert words(later.id) == "in 1 min"
    app.pause("away")
    drain(app, raising=False)
    assert said["running"].startswith("one · for ")
    assert words(first.id).startswith("one · took ")
    assert words(behind.id) == "queue away is paused"
    assert words(failed.id) == "ValueError: no such thing"


def test_a_worker_whose_lease_has_ended_serves_nothing(app: Towline, clock: Clock) -> None:
    @app.task
    def work() -> None: ...

    job = work.enqueue()
    app.runner.run(
        app.runner.store.register(
            "w", host="h", pid=1, birth=None, version="0", queues=["default"], concurrency=1,
            lease=30_000_000,
        )
    )  # fmt: skip

    def reason() -> object:
        return views.jobs_data(app, [job])[0]["reason"]

    assert reason() is None
    clock.advance(31)
    assert reason() == "no worker serves queue default"
