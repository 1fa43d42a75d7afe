"""What a page is: a path, a view that makes plain data of a request, and a template for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.exceptions import HTTPException

from .access import Viewer

if TYPE_CHECKING:
    from ..app import Towline  # noqa: TC004 (msgspec never looks at the types)

Data = dict[str, Any]


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
        if given is None:
            return default
        try:
            number = int(given)
        except ValueError:
            raise HTTPException(400, f"{name} is a number, not {given[:40]!r}") from None
        return max(1, min(number, most))


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
