"""Findings A2 and A3 for those who wait for a result: whatever happens around them, they end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.until import until
from towline import NotFound, Task, Towline

from .test_bad_input import app as app  # both engines

Add = Task[[int], int]


@pytest.fixture
def add(app: Towline) -> Add:
    @app.task
    def add(a: int) -> int:
        return a

    return add


@pytest.fixture
def end(app: Towline) -> Callable[[int], None]:
    """Complete a job from elsewhere, as another process would."""

    def end(id: int) -> None:
        other = Towline(app.url)
        other.complete(id, 5)
        other.close()

    return end


def is_listening(app: Towline) -> bool:
    return app.runner.waiting._wake is not None


def test_who_waits_goes_on_when_the_app_is_closed(
    app: Towline, add: Add, end: Callable[[int], None]
) -> None:
    job = add.enqueue(1)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(job.result, 60)
        until(lambda: is_listening(app))
        app.close()
        end(job.id)
        assert waiter.result(60) == 5


def test_who_waits_is_told_when_the_chain_is_deleted(app: Towline, add: Add) -> None:
    job = add.enqueue(1)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(job.result, 60)
        until(lambda: is_listening(app))
        app.delete(job.chain_id)
        with pytest.raises(NotFound):
            waiter.result(60)
    with pytest.raises(NotFound):
        job.result()


def test_who_waits_needs_no_thread(
    app: Towline, add: Add, end: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no thread can be started (a limit of processes) one looks by oneself."""
    job = add.enqueue(1)
    tried = threading.Event()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("towline"):
            tried.set()
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with ThreadPoolExecutor(1) as pool:
        waiter = pool.submit(job.result, 60)
        assert tried.wait(60)
        monkeypatch.undo()
        end(job.id)
        assert waiter.result(60) == 5


def test_who_is_interrupted_leaves_nothing_behind(app: Towline, add: Add) -> None:
    job = add.enqueue(1)
    looked = 0
    chain = app.runner.store.chain

    def interrupted(chain_id: int) -> Any:
        nonlocal looked
        looked += 1
        if looked == 12:
            raise KeyboardInterrupt
        return chain(chain_id)

    app.runner.store.chain = interrupted  # type: ignore[method-assign]
    try:
        with pytest.raises(KeyboardInterrupt):
            job.result(60)
    finally:
        del app.runner.store.chain
    assert app.runner.waiting.rings == set()
    app.complete(job.id, 5)
    assert job.result(60) == 5
