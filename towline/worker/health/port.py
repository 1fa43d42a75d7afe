"""The port of health: a few pages over HTTP, by the standard library alone.

It is open to whoever reaches it, so it gives little: eight requests at a time, five seconds for
each, GET only, and no body is read. A turn never waits for it, and a probe never for pages.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import time
import weakref
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from ...errors import InvalidSetting
from . import Answer, Complaint, Health, NoPage, address_of

log = logging.getLogger("towline.worker")

MOST = 8  # connections at a time
MOST_PAGES = MOST // 2  # … for metrics: those that hang for ever leave places for probes
TIME = 5.0  # seconds for each
POLL = 0.2  # seconds in which one that takes longer is noticed

_open: weakref.WeakSet[Port] = weakref.WeakSet()


class Port(ThreadingHTTPServer):
    """Answers at an address, in threads of its own, until it is closed."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 2 * MOST

    def __init__(self, address: str, health: Health) -> None:
        host, port = address_of(address)
        self.health = health
        self.pages = threading.BoundedSemaphore(MOST_PAGES)
        self.complaint = Complaint()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._since: dict[socket.socket, float] = {}  # connections, and since when
        try:
            super().__init__((host, port), Pages)
        except OSError as error:
            raise InvalidSetting(
                f"health cannot be served at {address}: {error.strerror or error}"
            ) from None
        _open.add(self)
        self._thread = threading.Thread(
            target=self.serve_forever, args=(POLL,), name="towline-health", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        host, port = self.server_address[:2]
        host = str(host)
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Answer no more."""
        self.shutdown()
        self.server_close()

    # ---- in the thread that accepts

    def server_bind(self) -> None:
        TCPServer.server_bind(self)  # the one of HTTP asks for the name of the host, by DNS

    def verify_request(self, request: Any, client_address: Any) -> bool:
        if len(self._since) >= MOST:
            return False
        self._since[request] = time.monotonic()
        return True

    def service_actions(self) -> None:
        """A client that sends or reads a byte from time to time keeps no place."""
        late = time.monotonic() - TIME
        for request, since in list(self._since.items()):
            if since < late:
                try:
                    request.shutdown(socket.SHUT_RDWR)
                except OSError:  # it has ended meanwhile
                    pass

    # ---- in the thread of a connection

    def shutdown_request(self, request: Any) -> None:
        self._since.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, mostly; nothing of it is worth a line."""


class Pages(BaseHTTPRequestHandler):
    """One request."""

    server_version = "towline"
    sys_version = ""
    timeout = TIME

    def do_GET(self) -> None:
        assert isinstance(self.server, Port)
        health = self.server.health
        match self.path.partition("?")[0]:
            case "/livez":
                self._answer("live", health.live())
            case "/readyz":
                self._answer("ready", health.ready())
            case "/metrics":
                self._send(*self._metrics(self.server))
            case _:
                self._send(404, b"/livez /readyz /metrics\n", "text/plain")

    def _metrics(self, port: Port) -> tuple[int, bytes, str]:
        if not port.pages.acquire(blocking=False):
            return 503, b"too many pages are being made\n", "text/plain"
        try:
            page = port.health.metrics(self.headers.get("Accept", ""))
        except NoPage:
            return 500, b"no page could be made\n", "text/plain"
        except Exception:  # of a collector of the application's, in the same registry
            if port.complaint.is_due():
                log.exception("the page of metrics could not be made")
            return 500, b"a collector failed\n", "text/plain"
        finally:
            port.pages.release()
        return (404, b"none here\n", "text/plain") if page is None else (200, *page)

    def do_other(self) -> None:
        self._send(405, b"GET only\n", "text/plain")

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_other

    def _answer(self, what: str, answer: Answer) -> None:
        said = {what: answer.well} if answer.well else {what: False, "why": answer.why}
        body = json.dumps(said).encode() + b"\n"
        self._send(200 if answer.well else 503, body, "application/json")

    def _send(self, code: int, body: bytes, kind: str) -> None:
        self.send_response(code)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: Any = "-", size: Any = "-") -> None:
        """Probes come every few seconds: no line for each."""

    def log_error(self, format: str, *args: Any) -> None:
        """Nor for those of strangers."""


def _close_in_child() -> None:
    """A fork of a handler's own must not keep the address."""
    for port in list(_open):
        port.socket.close()


os.register_at_fork(after_in_child=_close_in_child)
