"""The site: every page twice (for people, and under /api as JSON), actions, files, the stream."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import jinja2
from sse_starlette import EventSourceResponse
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ..access import COOKIE, Access, Viewer
from ..errors import TowlineError
from ..version import VERSION
from . import actions, openapi, words
from .live import Live, Looks
from .page import Ask, Data, Page, refusal, way_back
from .pages import PAGES

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from ..app import Towline

HERE = Path(__file__).parent
STATIC = HERE / "static"
KINDS = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
FOREVER = "public, max-age=31536000, immutable"
MOST_GIVEN = 64 * 1024  # bytes of a form
PING = 15  # seconds between two signs of life of the stream

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

Endpoint = Callable[[Request], Awaitable[Response]]


class Site:
    """The dashboard of one app."""

    def __init__(self, app: Towline, access: Access) -> None:
        self._app = app
        self._access = access
        self._looks = Looks()
        self._live = Live(app)
        self._files = {path.name: path.read_bytes() for path in STATIC.iterdir()}
        self._marks = {
            name: hashlib.sha256(content).hexdigest()[:12] for name, content in self._files.items()
        }
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader([HERE / "templates", HERE / "pages"]),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(words.FILTERS)

    def asgi(self) -> ASGIApp:
        routes = [
            Route("/static/{name}", self._static),
            Route("/live", self._guarded(self._stream)),
            Route("/login", self._login, methods=["GET", "POST"]),
            Route("/logout", self._logout, methods=["POST"]),
            Route("/api/openapi.json", self._guarded(self._described)),
            Route("/do/{action}", self._guarded(self._do), methods=["POST"]),
        ]
        for page in PAGES:
            routes.append(Route(f"/api{page.path}", self._guarded(self._as_json(page))))
            routes.append(Route(page.path, self._guarded(self._as_html(page))))
        inner = Starlette(
            routes=routes,
            exception_handlers={HTTPException: self._refused, Exception: self._broken},
        )
        return with_headers(inner)

    # ---- pages

    def _guarded(self, endpoint: Callable[[Request, Viewer], Awaitable[Response]]) -> Endpoint:
        async def guarded(request: Request) -> Response:
            return await endpoint(request, await self._access.viewer(request))

        return guarded

    async def _look(self, page: Page, request: Request, viewer: Viewer) -> Data:
        """What the page shows, shared with all who ask the same and may see the same."""
        ask = Ask(
            self._app, request.path_params, merged(request.query_params.multi_items()), viewer
        )
        asked = (request.url.path, str(request.query_params), viewer.may)
        try:
            found: Data = await run_in_threadpool(self._looks.get, asked, lambda: page.view(ask))
        except TowlineError as error:
            raise refusal(error) from None
        return found

    def _as_json(self, page: Page) -> Callable[[Request, Viewer], Awaitable[Response]]:
        async def answer(request: Request, viewer: Viewer) -> Response:
            return JSONResponse(await self._look(page, request, viewer), headers=NOT_KEPT)

        return answer

    def _as_html(self, page: Page) -> Callable[[Request, Viewer], Awaitable[Response]]:
        async def answer(request: Request, viewer: Viewer) -> Response:
            data = await self._look(page, request, viewer)
            return self._page(request, f"{page.name}.html", viewer, page=page, **data)

        return answer

    def _page(
        self, request: Request, template: str, viewer: Viewer | None, status: int = 200, **data: Any
    ) -> Response:
        root = root_of(request)
        text = self._templates.get_template(template).render(
            root=root,
            here=None if request.method == "POST" else request.url.path.removeprefix(root),
            query=merged(request.query_params.multi_items()),
            static=lambda name: f"{root}/static/{name}?v={self._marks[name]}",
            menu=[page for page in PAGES if page.key],
            may=viewer.may if viewer else frozenset(),
            viewer=viewer.name if viewer else None,
            has_login=self._access.has_login,
            version=VERSION,
            **data,
        )
        return HTMLResponse(text, status, headers=NOT_KEPT)

    # ---- what changes something

    async def _do(self, request: Request, viewer: Viewer) -> Response:
        name = request.path_params["action"]
        is_json = request.headers.get("content-type", "").startswith("application/json")
        given = await given_by(request)
        done = await run_in_threadpool(actions.do, self._app, name, given, viewer)
        self._looks.forget()
        self._live.ring()
        if is_json:
            return JSONResponse(done, headers=NOT_KEPT)
        root = root_of(request)
        return RedirectResponse(f"{root}{way_back(given.get('back'), '/')}", 303)

    # ---- the token

    async def _login(self, request: Request) -> Response:
        self._access.check_place(request)
        if not self._access.has_login:
            raise HTTPException(404, "this dashboard has no token to log in with")
        root = root_of(request)
        if request.method == "GET":
            return self._page(request, "login.html", None, wrong=False)
        if not self._access.is_token((await given_by(request)).get("token")):
            return self._page(request, "login.html", None, 403, wrong=True)
        answer = RedirectResponse(f"{root}/", 303)
        answer.set_cookie(
            COOKIE,
            self._access.cookie(),
            path=root or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    async def _logout(self, request: Request) -> Response:
        self._access.check_place(request)
        root = root_of(request)
        answer = RedirectResponse(f"{root}/login", 303)
        answer.delete_cookie(COOKIE, path=root or "/", httponly=True, samesite="strict")
        return answer

    # ---- files, the stream, the description

    async def _static(self, request: Request) -> Response:
        self._access.check_place(request)
        name = request.path_params["name"]
        if name not in self._files:
            raise HTTPException(404)
        kind = KINDS.get(Path(name).suffix, "text/plain")
        return Response(self._files[name], media_type=kind, headers={"cache-control": FOREVER})

    async def _stream(self, request: Request, viewer: Viewer) -> Response:
        return EventSourceResponse(({"data": word} async for word in self._live.words()), ping=PING)

    async def _described(self, request: Request, viewer: Viewer) -> Response:
        root = root_of(request)
        return JSONResponse(openapi.document(root), headers=NOT_KEPT)

    # ---- what went wrong

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        root = root_of(request)
        api = request.url.path.removeprefix(root).startswith(("/api", "/do", "/live"))
        if is_form(request) and error.status_code not in (401, 403, 421):
            api = False  # somebody pressed a button: they want a page
        if error.status_code == 401 and self._access.has_login and not api:
            return RedirectResponse(f"{root}/login", 303)
        if api or error.status_code in (401, 403, 421):
            return JSONResponse({"error": error.detail}, error.status_code, headers=NOT_KEPT)
        title = TITLES.get(error.status_code, "Not done")
        page = {"title": title, "name": ""}
        return self._page(
            request, "error.html", None, error.status_code, page=page, error=error.detail
        )

    async def _broken(self, request: Request, error: Exception) -> Response:
        return JSONResponse({"error": "this page has failed; the log says why"}, 500)


NOT_KEPT = {"cache-control": "no-store"}
# What stands above the words of a refusal.
TITLES = {
    400: "Not understood", 404: "Not here", 409: "Not done", 503: "The database cannot be asked",
}  # fmt: skip


def is_form(request: Request) -> bool:
    kind = request.headers.get("content-type", "")
    return request.method == "POST" and kind.startswith("application/x-www-form-urlencoded")


def root_of(request: Request) -> str:
    """Where the dashboard is mounted, without a slash at the end."""
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


async def given_by(request: Request) -> dict[str, str]:
    """The values that a form or a JSON object brings, as text."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_GIVEN:
            raise HTTPException(413, "that is too much")
    if not request.headers.get("content-type", "").startswith("application/json"):
        return merged(parse_qsl(body.decode(errors="replace"), keep_blank_values=True))
    try:
        found = json.loads(body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise HTTPException(400, "a JSON object is expected")
    for name, value in found.items():
        if value == []:  # as text it would be no filter at all, which means all
            raise HTTPException(400, f"{name[:40]!r} is an empty list: name at least one")
    return {str(name): _as_text(value) for name, value in found.items()}


def _as_text(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "" if value is None else str(value)


def merged(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Values by name. A form names each box that is checked, so those are put together, with commas
    between them; of anything else that comes twice the last counts."""
    found: dict[str, str] = {}
    for name, value in pairs:
        found[name] = f"{found[name]},{value}" if name == "pick" and name in found else value
    return found


def with_headers(inner: ASGIApp) -> ASGIApp:
    """Each answer says what a browser may do with it."""
    added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        await inner(scope, receive, send_with_headers)

    return outer
