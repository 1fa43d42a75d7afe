"""A lifespan opens and closes an app with its server, and hands back what runs at the end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, HTTPException, Request
from litestar import Litestar, get
from litestar.datastructures import State
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

from tests.dashboard.serving import served
from tests.until import until
from towline import ChainFailed, Towline
from towline.errors import InvalidSetting
from towline.integrations.asgi import GRACE, lifespan
from towline.worker.settings import WorkerSettings


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Towline]:
    app = Towline(f"sqlite:///{tmp_path}/shop.db")

    @app.task
    def double(n: int) -> int:
        return 2 * n

    @app.task
    async def adouble(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    yield app
    app.close()


def test_I9_requests_find_the_app_and_its_worker_runs_both_kinds_of_handlers(
    shop: Towline,
) -> None:
    api = FastAPI(lifespan=lifespan(shop, worker={"concurrency": 2}))

    @api.post("/{task}/{n}")
    async def start(task: str, n: int, request: Request) -> dict[str, Any]:
        app: Towline = request.state.towline
        assert app is shop
        return {"answer": await (await app.registry[task].aenqueue(n)).aresult(30)}

    with served(api, lifespan="on") as client:
        assert client.post("/double/3").json() == {"answer": 6}
        assert client.post("/adouble/4").json() == {"answer": 8}
        assert len(shop.workers()) == 1
    assert list(shop.workers()) == []


def test_I9_without_a_worker_it_only_opens_and_closes(shop: Towline) -> None:
    api = FastAPI(lifespan=lifespan(shop))
    with served(api, lifespan="on"):
        assert list(shop.jobs()) == []  # the tables are there
        assert list(shop.workers()) == []
        assert shop.runner._ready
    assert not shop.runner._ready


def test_E1_a_job_and_its_order_commit_in_the_handler_or_not_at_all(
    shop: Towline, tmp_path: Path
) -> None:
    engine = create_async_engine(f"sqlite+aiosqlite:///{tmp_path}/shop.db")

    @asynccontextmanager
    async def disposed(site: Any) -> AsyncIterator[None]:
        yield
        await engine.dispose()

    api = FastAPI(lifespan=lifespan(shop, inside=disposed))

    @api.post("/orders/{n}")
    async def order(n: int) -> dict[str, int]:
        async with AsyncSession(engine) as session:
            job = await shop.registry["double"].using(on=session).aenqueue(n)
            if n == 13:
                raise HTTPException(409)
            await session.commit()
            return {"job": job.id}

    with served(api, lifespan="on") as client:
        assert client.post("/orders/13").status_code == 409
        assert list(shop.jobs()) == []
        assert client.post("/orders/1").json() == {"job": 1}
        assert [job.state for job in shop.jobs()] == ["pending"]


def test_I9_a_lifespan_of_the_application_begins_after_and_ends_before(shop: Towline) -> None:
    seen: list[tuple[str, int]] = []

    @asynccontextmanager
    async def mine(site: Any) -> AsyncIterator[dict[str, str]]:
        seen.append(("begins", len(shop.workers())))
        yield {"greeting": "hello"}
        seen.append(("ends", len(shop.workers())))

    api = FastAPI(lifespan=lifespan(shop, worker={}, inside=mine))

    @api.get("/")
    def state(request: Request) -> list[str]:
        return [request.state.greeting, type(request.state.towline).__name__]

    with served(api, lifespan="on") as client:
        until(lambda: shop.workers(), "the worker registers")
        assert client.get("/").json() == ["hello", "Towline"]
    assert [what for what, _ in seen] == ["begins", "ends"]
    assert seen[-1][1] == 1, "its worker still ran when the inner one ended"


def test_I9_litestar_takes_it_in_its_list(shop: Towline) -> None:
    @get("/double")
    async def double(state: State) -> int:
        towline: Towline = state.towline
        answer: int = await (await towline.registry["double"].aenqueue(5)).aresult(30)
        return answer

    site = Litestar([double], lifespan=[lifespan(shop, worker={})], logging_config=None)
    with served(site, lifespan="on") as client:
        assert client.get("/double").json() == 10


def test_I9_settings_that_make_no_sense_are_refused_before_the_server_starts(
    shop: Towline,
) -> None:
    wrong: list[Any] = [{"concurrency": 0}, {"drain": True}, {"max_jobs": 3}, {"graze": 1}]
    for worker in wrong:
        with pytest.raises(InvalidSetting):
            lifespan(shop, worker=worker)


def test_I9_a_database_that_is_away_does_not_keep_the_server_from_starting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = Towline("postgresql://nobody@127.0.0.1:9/none?connect_timeout=1", lock_timeout=0.1)
    api = FastAPI(lifespan=lifespan(away))

    @api.get("/")
    def home() -> str:
        return "there"

    with served(api, lifespan="on") as client:
        assert client.get("/").json() == "there"
    assert "the database cannot be reached" in caplog.text


def test_I9_a_server_that_waits_no_longer_has_running_jobs_handed_back(shop: Towline) -> None:
    """As hypercorn does after its shutdown_timeout, and asyncio when a program is interrupted."""
    begun, over = threading.Event(), threading.Event()

    @shop.task
    def stubborn() -> None:
        begun.set()
        over.wait(30)

    async def serve(when: str) -> None:
        around = lifespan(shop, worker={"grace": 300.0})(object())
        task = asyncio.current_task()
        assert task is not None
        async with around:
            await asyncio.to_thread(begun.wait, 30)
            if when == "while it serves":
                task.cancel()
                await asyncio.sleep(60)
            asyncio.get_running_loop().call_later(0.2, task.cancel)

    for when in ("while it serves", "while it ends"):
        job = stubborn.enqueue()
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(serve(when))
        assert [str(attempt.outcome) for attempt in shop.attempts(job.id)] == ["released"]
        assert list(shop.workers()) == []
        job.cancel()
        begun.clear()
    over.set()


def test_I9_a_loop_that_ends_under_its_handlers_has_them_handed_back(shop: Towline) -> None:
    """As after a second Ctrl-C: the server goes, and whatever is on its loop is cancelled."""
    begun = [threading.Event(), threading.Event()]
    over = threading.Event()

    @shop.task
    async def awaiting() -> None:
        begun[0].set()
        await asyncio.Event().wait()

    @shop.task
    def blocking() -> None:
        begun[1].set()
        over.wait(30)

    async def serve() -> None:
        async with lifespan(shop, worker={"grace": 300.0})(object()):
            await asyncio.Event().wait()

    async def main() -> None:
        serving = asyncio.create_task(serve())
        for each in begun:
            await asyncio.to_thread(each.wait, 30)
        assert not serving.done()

    jobs = [awaiting.enqueue(), blocking.enqueue()]
    asyncio.run(main())
    over.set()
    for job in jobs:
        assert {str(attempt.outcome) for attempt in shop.attempts(job.id)} == {"released"}
        assert job.refresh().state == "pending"
    assert list(shop.workers()) == []


def test_I9_a_handler_that_cancels_itself_is_not_handed_back_for_ever(shop: Towline) -> None:
    @shop.task(max_attempts=1)
    async def gives_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(0)

    async def main() -> None:
        async with lifespan(shop, worker={})(object()):
            await (await gives_up.aenqueue()).aresult(60)

    with pytest.raises(ChainFailed, match="CancelledError"):
        asyncio.run(main())


def test_I9_its_grace_is_short_unless_it_says_otherwise(
    shop: Towline, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Any] = []
    make = Towline.worker

    def noted(app: Towline, **settings: Any) -> Any:
        given.append(settings)
        return make(app, **settings)

    monkeypatch.setattr(Towline, "worker", noted)
    said: list[WorkerSettings] = [{}, {"grace": 20}]
    for worker in said:
        with served(FastAPI(lifespan=lifespan(shop, worker=worker)), lifespan="on"):
            pass
    assert [settings["grace"] for settings in given] == [GRACE, 20]
