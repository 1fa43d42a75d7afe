"""Transactions that overlap by a fixed schedule: one is left open while another goes on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

import psycopg

from tests.races.together import PATIENCE
from towline import Towline
from towline.operation import Op

T = TypeVar("T")


_connections: list[psycopg.Connection[Any]] = []


def close_all() -> None:
    """Those that a test which failed has left open."""
    while _connections:
        _connections.pop().close()


class Open(Generic[T]):
    """An operation in a caller's transaction, which stays open until `commit`, unless `brief`.

    It runs in a thread: it may have to wait for somebody. Once this is made, it has either come to
    its end or waits for a lock.
    """

    def __init__(self, app: Towline, url: str, op: Op[T], *, brief: bool = False) -> None:
        self._brief = brief
        self._eye = psycopg.connect(url, autocommit=True)
        self._raw = psycopg.connect(url)
        _connections.extend((self._raw, self._eye))
        self._future: Future[T] = Future()
        threading.Thread(target=self._run, args=(app, op), daemon=True).start()
        self.settle()

    def _run(self, app: Towline, op: Op[T]) -> None:
        try:
            answer = app.runner.run(op, on=self._raw)
            if self._brief:
                self._raw.commit()
            self._future.set_result(answer)
        except BaseException as error:
            self._future.set_exception(error)

    @property
    def waits(self) -> bool:
        return not self._future.done()

    def settle(self) -> None:
        """Wait until the operation has ended or waits for a lock."""
        deadline = time.monotonic() + PATIENCE
        pid = self._raw.info.backend_pid
        while self.waits:
            (blocked,) = self._ask("SELECT pg_blocking_pids(%s) <> '{}'", pid)
            if blocked:
                return
            assert time.monotonic() < deadline, "it neither ends nor waits"
            time.sleep(0.001)

    def commit(self) -> T:
        """What the operation came to, committed. Whomever it waits for must have let go."""
        try:
            answer = self._future.result(PATIENCE)
            self._raw.commit()
            return answer
        finally:
            self._eye.close()
            self._raw.close()

    def _ask(self, text: Any, *params: object) -> tuple[Any, ...]:
        row = self._eye.execute(text, params).fetchone()
        assert row is not None
        return row
