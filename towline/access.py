"""Who may see the dashboard or an agent's server, and who may act: checked for every request, on
the server.

A page of another site can make its name point here (DNS rebinding), so a request must name us by a
name of ours: by one of `hosts` where they were said. Where not, by this machine's own without a
token and without `authorize`, when nobody else is answered; and with a token also by any address,
which no other site can have for its name. Where `authorize` decides, names are the host
application's.

A request that changes something must come from our own pages, or from a program that says so in a
way that no form of another site can.
"""

from __future__ import annotations

import hashlib
import hmac
import inspect
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Collection
from typing import Literal, get_args
from urllib.parse import urlsplit

from msgspec import Struct
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request

Permission = Literal["enqueue", "retry", "cancel", "run", "delete", "pause", "limit", "reveal"]
ALL: frozenset[Permission] = frozenset(get_args(Permission))

COOKIE = "towline_dashboard"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
PASSED_ON = ("forwarded", "x-forwarded-for", "x-real-ip")  # a proxy speaks for somebody else
HOW = "give it token=…, or authorize=… with a function of your own that says who may see it"


class Viewer(Struct, frozen=True):
    """Somebody who looks, by name, and what they may do beside looking."""

    name: str
    may: frozenset[Permission] = ALL


Authorize = Callable[[Request], "Viewer | bool | Awaitable[Viewer | bool | None] | None"]


class Access:
    """Decides about requests. Raises HTTPException; 401 sends a browser to the login page."""

    def __init__(
        self,
        token: str | None,
        authorize: Authorize | None,
        hosts: Collection[str],
        *,
        read_only: bool,
        name: str = "dashboard",
    ) -> None:
        if token is not None and len(token) < 16:
            raise ValueError(f"the token of a {name} has at least 16 characters: it is a password")
        self._token = token
        self._authorize = authorize
        self._hosts = {host.lower() for host in hosts}
        machine = socket.gethostname().lower()
        self._own = {*LOOPBACK, machine, machine.partition(".")[0]}
        self._read_only = read_only
        self._name = name

    @property
    def has_login(self) -> bool:
        return self._token is not None

    async def viewer(self, request: Request) -> Viewer:
        """Who asks; raises when nobody may, or when it is not asked from a page of ours."""
        self.check_place(request)
        viewer = await self._who(request)
        return Viewer(viewer.name, frozenset()) if self._read_only else viewer

    def check_place(self, request: Request) -> None:
        """Raise unless it was asked under a name of ours and, to change something, by us."""
        self._check_host(request)
        if request.method not in ("GET", "HEAD"):
            _check_origin(request)

    async def _who(self, request: Request) -> Viewer:
        if self._authorize is not None:
            # In a thread: it may ask a database, and who watches must not wait for that.
            found = await run_in_threadpool(self._authorize, request)
            answer = await found if inspect.isawaitable(found) else found
            if answer is True:
                return Viewer(self._name)
            if isinstance(answer, Viewer):
                return answer
            raise HTTPException(403, "you may not see this")
        if self._token is None:
            return Viewer(self._name)
        if self.is_token(_bearer(request)) or self._is_cookie(request.cookies.get(COOKIE)):
            return Viewer(self._name)
        raise HTTPException(
            401, f"the token of this {self._name} is needed: Authorization: Bearer …"
        )

    # ---- the token

    def is_token(self, given: str | None) -> bool:
        """Compared in constant time."""
        if self._token is None or given is None:
            return False
        return hmac.compare_digest(given.encode(), self._token.encode())

    def cookie(self) -> str:
        """What a browser keeps instead of the token: it opens this dashboard, and nothing else."""
        assert self._token is not None
        return hmac.new(self._token.encode(), b"towline dashboard", hashlib.sha256).hexdigest()

    def _is_cookie(self, given: str | None) -> bool:
        return given is not None and hmac.compare_digest(given.encode(), self.cookie().encode())

    # ---- where a request comes from

    def _check_host(self, request: Request) -> None:
        name = _host_name(request.headers.get("host", ""))
        if self._hosts:
            if name not in self._hosts:
                raise HTTPException(421, f"this {self._name} is not called {name or 'nothing'}")
        elif self._authorize is None and self._token is not None and not self._is_own(name):
            raise HTTPException(
                421,
                f"this {self._name} does not know that it is called {name or 'nothing'}: "
                "say so by --name, or by hosts=[…]",
            )
        if self._authorize is None and self._token is None:
            peer = request.client.host if request.client else ""
            passed_on = any(header in request.headers for header in PASSED_ON)
            named = name in (self._hosts or LOOPBACK)
            if not named or not is_loopback(peer) or passed_on:
                raise HTTPException(
                    403,
                    f"without a token this {self._name} answers its own machine only; {HOW}",
                )

    def _is_own(self, name: str) -> bool:
        """Whether it is this machine's, or an address of any: no server of names is asked."""
        return name in self._own or is_address(name)


def is_loopback(address: str) -> bool:
    """Whether an address, or the name of one, is this machine's own."""
    if address in ("localhost", ""):  # a Unix socket has none
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _host_name(header: str) -> str:
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _place(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return None


def _bearer(request: Request) -> str | None:
    scheme, _, value = request.headers.get("authorization", "").partition(" ")
    return value if scheme.lower() == "bearer" else None


def _check_origin(request: Request) -> None:
    """A browser says where a request comes from; a program that says nothing must send something
    that a form cannot: JSON, or a token."""
    origin = request.headers.get("origin")
    if origin is not None:
        if _place(origin) != request.headers.get("host", "").lower():
            raise HTTPException(403, "this was asked by a page of another site")
        return
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        if site not in ("same-origin", "none"):
            raise HTTPException(403, "this was asked by a page of another site")
        return
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and _bearer(request) is None:
        raise HTTPException(403, "send JSON, or a token: a form of another site could send this")
