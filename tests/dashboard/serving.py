"""A dashboard behind a real server on a port of its own, and who asks it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import httpx
import uvicorn

from tests.until import until


class Served:
    """A running server of an ASGI application."""

    def __init__(self, site: Any, port: int = 0, lifespan: Literal["on", "off"] = "off") -> None:
        self._socket = socket.create_server(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(site, log_level="warning", lifespan=lifespan, access_log=False)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        until(lambda: self._server.started, "the server starts")
        self.url = f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._server.force_exit = self._server.config.lifespan == "off"
        self._thread.join()
        self._socket.close()


@contextmanager
def served(
    site: Any, prefix: str = "", lifespan: Literal["on", "off"] = "off"
) -> Iterator[httpx.Client]:
    """A client of a server that runs meanwhile."""
    server = Served(site, lifespan=lifespan)
    try:
        with httpx.Client(base_url=server.url + prefix, timeout=60) as client:
            yield client
    finally:
        server.stop()
