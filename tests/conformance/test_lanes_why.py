"""G13: `why` says which limit holds a job back, by which jobs or until when. Both engines."""

from __future__ import annotations

from tests.kit import SECOND, Clock
from towline import Snooze, Towline
from towline.model import Outcome
from towline.records import Claimed, Ending
from towline.store import Store


def worker(app: Towline, queues: list[str]) -> int:
    return app.runner.run(
        app.runner.store.register(
            "w", host="h", pid=1, birth=None, version="0", queues=queues, concurrency=9,
            lease=10**12,
        )
    )  # fmt: skip


def take(app: Towline, store: Store, room: int = 9) -> list[Claimed]:
    return app.runner.run(store.claim(worker(app, ["mail"]), ["mail"], room))


def test_G13_why_names_the_limit_and_the_jobs_that_fill_it(
    app: Towline, store: Store, clock: Clock
) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: str | None) -> None: ...

    app.set_limit("mail", concurrency=3)
    app.set_limit("mail", lane="*", concurrency=2)
    app.set_limit("mail", lane="shut", concurrency=0)
    for tenant in ("acme", "acme", "acme", "shut", "other", "late", "late"):
        send.enqueue(tenant)
    send.enqueue(None)
    worker(app, ["mail"])
    assert app.why(1) == "it is the next of lane acme of queue mail: it waits for its turn"
    assert app.why(3) == "2 jobs are before it in lane acme of queue mail"
    assert app.why(4) == "lane shut of queue mail is stopped: its limit is 0"
    held = take(app, store, 1)
    held += take(app, store, 9)
    assert len(held) == 3
    ids = ", ".join(str(job.job_id) for job in sorted(held))
    lanes = [job.lane for job in held]
    assert app.why(7) == f"queue mail is full: 3 of 3 running by jobs {ids}"
    app.set_limit("mail")
    held += take(app, store)
    acme = [job.job_id for job in held if job.lane == "acme"]
    assert len(acme) == 2, lanes
    assert app.why(3) == (
        f"lane acme of queue mail is full: 2 of 2 running by jobs {acme[0]}, {acme[1]}"
    )


def test_G13_why_says_until_when_a_rate_or_a_handler_closes_a_lane(
    app: Towline, store: Store, clock: Clock
) -> None:
    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    app.set_limit("mail", lane="*", rate=1, per=60)
    for tenant in ("a", "a", "b", "b"):
        send.enqueue(tenant)
    held = {job.lane: job for job in take(app, store)}
    assert app.why(2).startswith("lane a of queue mail has used up its rate of 1 in 1 min: ")
    app.set_limit("mail", lane="*")
    end = Ending(held["b"], Outcome.SNOOZED, delay=30 * SECOND, rests=True)
    app.runner.run(store.finish([end]))
    assert app.why(4).startswith("lane b of queue mail rests until ")
    assert app.why(4).endswith(" UTC: a handler asked for it")
    assert Snooze(30, lane=True).lane
    clock.advance(31)
    app.set_limit("mail", rate=1, per=10)
    assert take(app, store)
    (waiting, *_) = app.jobs(state="pending")
    assert app.why(waiting.id).startswith("queue mail has used up its rate of 1 in 10 s")
