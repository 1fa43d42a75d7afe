"""E5: what one engine refuses the other refuses too, with the same error: names and numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import database as databases
from towline import Context, NotFound, Towline
from towline.errors import BlockerError, InvalidSetting

HUGE = 2**70


@pytest.fixture(params=[databases.SQLITE, databases.newest()])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Towline]:
    with databases.opened(request.param, tmp_path) as database:
        app = Towline(database.url)
        yield app
        app.close()


@pytest.mark.parametrize(
    "method",
    ["job", "chain", "attempts", "blockers", "dependents", "cancel", "retry", "run_now", "delete"],
)
def test_no_job_has_a_number_that_no_column_holds(app: Towline, method: str) -> None:
    with pytest.raises(NotFound):
        getattr(app, method)(HUGE)
    with pytest.raises(InvalidSetting):
        getattr(app, method)("5")


def test_nor_is_one_a_blocker_or_a_filter(app: Towline) -> None:
    @app.task
    def a() -> None: ...

    with pytest.raises(BlockerError):
        a.using(after=[HUGE]).enqueue()
    with pytest.raises(NotFound):
        app.jobs(chain=HUGE)
    with pytest.raises(NotFound):
        app.complete(HUGE)
    with pytest.raises(NotFound):
        app.fail(HUGE, "no")


@pytest.mark.parametrize("text", ["\0", "\ud800", "", "x" * 201])
def test_names_that_cannot_be_stored_are_refused(app: Towline, text: str) -> None:
    refused: list[Callable[[], object]] = [
        lambda: app.pause(text),
        lambda: app.resume(text),
        lambda: app.jobs(key=text),
        lambda: app.jobs(label=text),
        lambda: app.jobs(task=text),
        lambda: app.jobs(queue=text),
        lambda: app.chains(key=text),
    ]
    for call in refused:
        with pytest.raises(InvalidSetting, match="printable"):
            call()


@pytest.mark.parametrize("queue", ["*", "-mail"])
def test_a_word_for_several_queues_is_no_queue_to_limit(app: Towline, queue: str) -> None:
    for call in (app.set_limit, app.declare_limit):
        with pytest.raises(InvalidSetting, match=rf"queue '\{queue}' cannot be a name"):
            call(queue, concurrency=1)
    assert app.limits() == []


def test_every_queue_can_be_paused_but_not_all_but_one(app: Towline) -> None:
    with pytest.raises(InvalidSetting, match="queue '-mail' cannot be a name"):
        app.pause("-mail")
    with pytest.raises(InvalidSetting, match="not NoneType"):
        app.pause(None)  # type: ignore[arg-type]
    app.pause("*")
    assert app.paused() == ["*"]


def test_who_paused_may_be_anybody(app: Towline) -> None:
    app.pause("mail", by="\0 \ud800")
    assert app.paused() == ["mail"]


def test_a_parameter_that_only_sounds_like_a_context_is_an_argument(app: Towline) -> None:
    class SSLContext: ...

    with pytest.raises(InvalidSetting, match=r"nightly\(c\) needs arguments"):

        @app.task(cron="@daily")
        def nightly(c: SSLContext) -> None: ...


def test_a_chunk_with_a_context_is_told_so_however_its_types_are_written(app: Towline) -> None:
    def index(ctx: Any) -> None: ...

    for written in (Context, "Context", "towline.Context"):
        index.__annotations__["ctx"] = written
        with pytest.raises(InvalidSetting, match="a chunk has no context"):
            app.chunk(size=5)(index)
