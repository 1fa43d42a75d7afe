"""A proxy in front of a PostgreSQL server that cuts a connection at a chosen statement.

It reads just enough of the protocol to know which statement a client sends. A cut comes before the
statement reaches the server, or after the server has carried it out and before its answer reaches
the client; the client cannot tell the two apart.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from psycopg.conninfo import conninfo_to_dict

PATIENCE = 30.0

Chosen = Callable[[str], bool]


@dataclass
class Cut:
    """The statement to cut at, told by its text, and on which side of the server."""

    chosen: Chosen
    answered: bool


class Proxy:
    """Listens on 127.0.0.1; `url` is the server's database through it."""

    def __init__(self, url: str) -> None:
        given: dict[str, Any] = conninfo_to_dict(url)
        self._target = str(given.get("host", "")), int(given.get("port") or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        parts = urlsplit(url)
        user, at, _ = parts.netloc.rpartition("@")
        netloc = f"{user}{at}127.0.0.1:{self._listener.getsockname()[1]}"
        plain = "sslmode=disable&gssencmode=disable"
        self.url = parts._replace(netloc=netloc, query=plain).geturl()
        self.statements: list[str] = []  # those that clients have sent, in order
        self.cuts = 0
        self._plan: Cut | None = None
        self._mutex = threading.Lock()
        self._links: list[Link] = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def cut(self, chosen: Chosen | str, *, answered: bool) -> None:
        """Cut one connection at the next statement that is chosen, or that is this text."""
        matches = chosen if callable(chosen) else lambda text: text == chosen
        with self._mutex:
            self._plan = Cut(matches, answered)

    def cut_at(self, number: int, *, answered: bool) -> None:
        """Cut at a statement by its place: 0 is the next."""
        left = number

        def chosen(_: str) -> bool:
            nonlocal left
            left -= 1
            return left < 0

        self.cut(chosen, answered=answered)

    def forget(self) -> bool:
        """Cut no more; say whether a cut was still to come."""
        with self._mutex:
            plan, self._plan = self._plan, None
        return plan is not None

    def judge(self, text: str) -> Cut | None:
        """A client sends this statement: the cut to make at it, if any."""
        with self._mutex:
            self.statements.append(text)
            plan = self._plan
            if plan is None or not plan.chosen(text):
                return None
            self._plan = None
            self.cuts += 1
            return plan

    def close(self) -> None:
        with suppress(OSError):  # wakes who accepts
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(PATIENCE)
        for link in self._links:
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._links.append(Link(self, client, self._reach()))

    def _reach(self) -> socket.socket:
        host, port = self._target
        if not host.startswith("/"):
            server = socket.create_connection((host or "127.0.0.1", port))
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return server
        server = socket.socket(socket.AF_UNIX)
        server.connect(f"{host}/.s.PGSQL.{port}")
        return server


class Link:
    """One client's connection to the server."""

    def __init__(self, proxy: Proxy, client: socket.socket, server: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._names: dict[bytes, str] = {}  # prepared statements
        self._answer_goes_nowhere = threading.Event()
        self._threads = [
            threading.Thread(target=self._guard, args=(way,)) for way in (self._ask, self._answer)
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        self._cut()
        for thread in self._threads:
            thread.join(PATIENCE)
        self._client.close()
        self._server.close()

    def _cut(self) -> None:
        for end in (self._client, self._server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _guard(self, way: Callable[[], None]) -> None:
        try:
            way()
        except (OSError, EOFError):
            pass
        finally:
            self._cut()

    def _ask(self) -> None:
        """What the client says. Its first word has no kind, only a length."""
        length = self._read(self._client, 4)
        self._server.sendall(length + self._read(self._client, int.from_bytes(length) - 4))
        while True:
            kind, whole = self._message(self._client)
            text = self._statement(kind, whole[5:])
            cut = None if text is None else self._proxy.judge(text)
            if cut is not None and not cut.answered:
                return
            if cut is not None:
                self._answer_goes_nowhere.set()
            self._server.sendall(whole)

    def _answer(self) -> None:
        """What the server says; once it goes nowhere, it ends when the server is ready again."""
        while True:
            kind, whole = self._message(self._server)
            if not self._answer_goes_nowhere.is_set():
                self._client.sendall(whole)
            elif kind == b"Z":
                return

    def _statement(self, kind: bytes, body: bytes) -> str | None:
        """The text of a statement that is about to run: simple, or bound by its name."""
        if kind == b"Q":
            return body.rstrip(b"\0").decode()
        if kind == b"P":
            name, text, _ = body.split(b"\0", 2)
            self._names[name] = text.decode()
        elif kind == b"B":
            _, name, _ = body.split(b"\0", 2)
            return self._names[name]
        return None

    def _message(self, end: socket.socket) -> tuple[bytes, bytes]:
        head = self._read(end, 5)
        return head[:1], head + self._read(end, int.from_bytes(head[1:]) - 4)

    def _read(self, end: socket.socket, number: int) -> bytes:
        read = b""
        while len(read) < number:
            some = end.recv(number - len(read))
            if not some:
                raise EOFError
            read += some
        return read
