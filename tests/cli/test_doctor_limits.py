"""What the doctor says of limits and lanes: flow §12, one case each."""

from __future__ import annotations

from pathlib import Path

from tests.kit import new
from towline import Towline
from towline.doctor import examine


def said(app: Towline) -> list[str]:
    return [
        finding.text for finding in examine(app) if finding.about in ("limit", "lane", "limits")
    ]


def test_limits_that_nobody_uses_and_lanes_without_one_are_named(tmp_path: Path) -> None:
    app = Towline(f"sqlite:///{tmp_path}/app.db")
    app.migrate()
    assert said(app) == []

    @app.task(queue="mail", lane="tenant")
    def send(tenant: str) -> None: ...

    app.set_limit("mial", concurrency=1)
    assert said(app) == [
        "queue mial has a limit, and nobody uses it",
        "task send has lanes, and no lane of queue mail has a limit: they take turns, and one may "
        "fill every worker",
        "1 set; no lane sleeps",
    ]
    app.close()


def test_a_lane_that_sleeps_is_a_bug_and_said_to_be_one(tmp_path: Path) -> None:
    app = Towline(f"sqlite:///{tmp_path}/app.db")
    store = app.runner.store
    app.set_limit("mail", lane="*", concurrency=1)
    app.runner.run(store.enqueue([new(queue="mail", lane="acme")]))
    assert said(app) == ["1 set; no lane sleeps"]
    from towline.operation import Op, Steps

    def close() -> Steps[None]:
        row = (1, 0, 1, None, None, "mail", "acme")
        columns = ("closed", "priority", "served_at", "opens_at", "spent", "queue", "lane")
        yield store.sql.save_lanes.many(columns, [row])

    app.runner.run(Op("close", close))
    (found,) = said(app)
    assert "this is a bug of Towline" in found
    app.close()


def test_a_limit_full_of_old_jobs_is_named_with_their_task(tmp_path: Path) -> None:
    now = 1_800_000_000_000_000
    app = Towline(f"sqlite:///{tmp_path}/app.db", clock=lambda: now)
    store = app.runner.store
    app.set_limit("mail", concurrency=1)
    app.runner.run(store.enqueue([new("slow", queue="mail")]))
    assert app.runner.run(store.claim(1, ["mail"], 1))
    now += 3600 * 1_000_000
    assert "the limit of queue mail is full of jobs that run for long: slow" in said(app)
    app.close()
