"""What a page is: a path, a view that makes plain data of a request, and a template for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct
from starlette.exceptions import HTTPException

from ..access import Viewer
from ..app.filters import JobsWhere
from ..errors import InvalidSetting, InvalidState, NotFound, StillNeeded, TowlineError
from ..times import moment_of
from .shapes import Shape

if TYPE_CHECKING:
    from ..app import Towline  # noqa: TC004 (msgspec never looks at the types)

Data = dict[str, Any]

# By which jobs are chosen, and what each says.
FILTERS = {
    "state": "Only jobs in this state, or these with commas between them.",
    "outcome": "Only jobs whose last attempt ended so.",
    "error_type": "Only jobs whose last attempt raised this class; none: none at all.",
    "task": "Only jobs of this task.",
    "queue": "Only jobs of this queue.",
    "lane": "Only jobs in this lane.",
    "label": "Only jobs with this label.",
    "key": "Only jobs with this key.",
    "schedule": "Only jobs of this schedule.",
    "worker": "Only jobs that this worker runs, or ran last.",
    "chain": "Only jobs of this chain.",
    "ended_since": "Only jobs that ended since: a time, UTC if no zone is said, or 15m, 2h, 3d.",
    "ended_until": "Only jobs that ended before.",
    "ids": "Only these jobs.",
}
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


def way_back(given: str | None, default: str) -> str:
    """A path of ours to return to; to browsers `//` and `/\\` begin the name of another site."""
    ours = given is not None and given.startswith("/") and given[1:2] not in ("/", "\\")
    return given if given is not None and ours else default


def ids_of(text: str) -> list[int]:
    """Ids with commas between them."""
    return [number_of(id.strip(), "each of the ids") for id in text.split(",")]


def time_of(text: str, name: str) -> datetime:
    try:
        return moment_of(text, UTC)
    except (ValueError, OverflowError):
        raise HTTPException(
            400, f"{name} is a time (2026-05-01T12:00Z) or a span (15m, 2h, 3d), not {text[:40]!r}"
        ) from None


def where_of(given: Mapping[str, str]) -> JobsWhere:
    """Which jobs are meant: the page that lists them and what is done to all of them agree. Several
    states, with commas between them, add up."""
    found: dict[str, Any] = {name: given[name] for name in FILTERS if given.get(name)}
    if "," in found.get("state", ""):
        found["state"] = found["state"].split(",")
    if "chain" in found:
        found["chain"] = number_of(found["chain"], "chain")
    if "ids" in found:
        found["ids"] = ids_of(found["ids"])
    for name in ("ended_since", "ended_until"):
        if name in found:
            found[name] = time_of(found[name], name)
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
    example: str | None = None  # of one that is needed


class Page(Struct, frozen=True):
    """One page; its template is named after it and lies beside its view."""

    name: str
    path: str
    title: str
    view: Callable[[Ask], Data]
    text: str  # what it shows, and …
    shows: Mapping[str, Shape]  # … what its data looks like, for the description of the API
    key: str | None = None  # that leads to it; pages with one stand in the menu
    params: tuple[Param, ...] = ()
