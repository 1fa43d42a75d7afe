"""What a page is: a path, a view that makes plain data of a request, and a template for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from starlette.exceptions import HTTPException

from ..app.filters import JobsWhere
from ..errors import InvalidSetting, InvalidState, NotFound, StillNeeded, TowlineError
from .access import Viewer

if TYPE_CHECKING:
    from ..app import Towline  # noqa: TC004 (msgspec never looks at the types)

Data = dict[str, Any]

FILTERS = ("state", "task", "queue", "label", "key", "chain")
# What an error of the library means to who asked; the first that fits.
STATUS: tuple[tuple[type[TowlineError], int], ...] = (
    (NotFound, 404),
    (InvalidState, 409),
    (StillNeeded, 409),
    (InvalidSetting, 400),
    (TowlineError, 503),
)


def refusal(error: TowlineError) -> HTTPException:
    return HTTPException(next(code for kind, code in STATUS if isinstance(error, kind)), str(error))


def number_of(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise HTTPException(400, f"{name} is a number, not {text[:40]!r}") from None


def where_of(given: Mapping[str, str]) -> JobsWhere:
    """Which jobs are meant: the page that lists them and what is done to all of them agree."""
    found: dict[str, Any] = {name: given[name] for name in FILTERS if given.get(name)}
    if "chain" in found:
        found["chain"] = number_of(found["chain"], "chain")
    return cast(JobsWhere, found)


class Ask(Struct):
    """A request as a view sees it. Views run in a thread: they may wait for the database."""

    app: Towline
    path: Mapping[str, Any]  # the parts of the path that vary
    query: Mapping[str, str]
    viewer: Viewer

    @property
    def id(self) -> int:
        """The id in the path."""
        number: int = self.path["id"]
        return number

    def text(self, name: str) -> str | None:
        """A value of the query; None when it is not there or empty."""
        return self.query.get(name) or None

    def number(self, name: str, default: int, most: int) -> int:
        given = self.text(name)
        return default if given is None else max(1, min(number_of(given, name), most))


class Param(Struct, frozen=True):
    """A value that a page takes from its query, for the description of the API."""

    name: str
    text: str


class Page(Struct, frozen=True):
    """One page; its template is named after it and lies beside its view."""

    name: str
    path: str
    title: str
    view: Callable[[Ask], Data]
    text: str  # what it shows, for the description of the API
    key: str | None = None  # that leads to it; pages with one stand in the menu
    params: tuple[Param, ...] = ()
