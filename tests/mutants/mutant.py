"""What a mutant is: a small change of the library's SQL or of one of its methods, and its killer.

It is planted in memory, for as long as a `with`; the tree is never changed. An app that is opened
there has the bug. A change that no longer fits the text it was written for is an error: the mutant
must move with it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import towline.sql

POSTGRES = "postgres"
SQLITE = "sqlite"

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


class Misfit(Exception):
    """The library has changed, and a mutant with it should."""


@dataclass(frozen=True)
class Edit:
    """In the named statement `old` becomes `new`, wherever it stands; without `old`, all of it."""

    query: str
    old: str | None
    new: str

    def apply(self, text: str) -> str:
        if self.old is None:
            return f"\n{self.new};\n"
        if self.old not in text:
            raise Misfit(f"{self.query} has no {self.old!r}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Mutant:
    """A bug: `what` is broken, and the promises that it breaks.

    `edits` by engine; `methods` are put in place of those that their dotted names tell. It is
    planted on the engines that have edits, or else on all that `on` names. `killers` are tests
    from the folder tests/ that must fail, by an assertion that says `sign`; {database} is the name
    of a database.
    """

    name: str
    what: str
    promises: str
    killers: Sequence[str]
    edits: Mapping[str, Sequence[Edit]] = field(default_factory=dict)
    methods: Mapping[str, object] = field(default_factory=dict)
    on: tuple[str, ...] = ()
    sign: str = ""

    @property
    def engines(self) -> tuple[str, ...]:
        return self.on or tuple(self.edits)


def in_each(queries: Iterable[str], old: str, new: str) -> list[Edit]:
    """The same change of several statements."""
    return [Edit(query, old, new) for query in queries]


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    """Change the library in this process; afterwards it is as it was."""
    plain = towline.sql.read_text

    def read_text(package: str, *path: str) -> str:
        text = plain(package, *path)
        edits = mutant.edits.get(package.rpartition(".")[2], ())
        return edited(text, edits) if path == ("queries.sql",) else text

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(towline.sql, "read_text", read_text)
        for place, method in mutant.methods.items():
            owner, name = owner_of(place)
            patch.setattr(owner, name, method)
        towline.sql._read_once.cache_clear()
        try:
            yield
        finally:
            towline.sql._read_once.cache_clear()


def edited(text: str, edits: Iterable[Edit]) -> str:
    """The text of `queries.sql` with these changes."""
    head, *parts = _NAME.split(text)
    queries = dict(zip(parts[::2], parts[1::2], strict=True))
    for edit in edits:
        if edit.query not in queries:
            raise Misfit(f"there is no statement {edit.query}")
        queries[edit.query] = edit.apply(queries[edit.query])
    return head + "".join(f"-- name: {name}{query}" for name, query in queries.items())


def owner_of(place: str) -> tuple[Any, str]:
    """Where the thing of this dotted name is kept: a module or a class, and its name there."""
    module, _, name = place.rpartition(".")
    owner: Any
    try:
        owner = importlib.import_module(module)
    except ModuleNotFoundError:
        module, _, outer = module.rpartition(".")
        owner = getattr(importlib.import_module(module), outer)
    if not hasattr(owner, name):
        raise Misfit(f"there is no {place}")
    return owner, name
