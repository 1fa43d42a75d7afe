"""What a statement does that another transaction could notice, and whether two such steps commute.

Under READ COMMITTED a transaction is noticed in two ways only: by the rows it has locked and the
unique keys it has inserted, from then on, and by what its commit shows and lets go. Two steps of
different transactions that do not meet in either way may change places: what follows is the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

TABLE = re.compile(r"\bpublic\.windlass_(\w+)(?: AS (\w+))?")
VERB = re.compile(
    r"(?P<write>INSERT INTO|UPDATE|DELETE FROM) public\.windlass_(?P<table>\w+)"
    r"|FOR (?P<lock>NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)(?: OF (?P<of>\w+))?"
    r"|(?P<upsert>ON CONFLICT)"
)
STRENGTH = {
    "KEY SHARE": 1, "SHARE": 2, "NO KEY UPDATE": 3, "UPDATE": 4, "DELETE FROM": 4,
}  # fmt: skip
# Tables whose new rows cannot clash: the key begins with an id of one's own, or with the number of
# one's own connection. Rows of other tables are dependent on any other insert there.
APART = frozenset({"chain", "blocker", "rollup"})
IDS = "job_ids"

Touched = tuple[str, str | None]  # a row of a table; None stands for all of them
Marks = Mapping[Touched, str]  # rows with their last lockers, as the server shows them


class Locks(NamedTuple):
    """Tables that a statement names, and how strongly it locks rows of them."""

    named: frozenset[str]
    strength: Mapping[str, int]
    inserts: frozenset[str]
    draws: bool  # takes ids from a sequence


@cache
def locks_of(text: str) -> Locks:
    """Read a statement's text."""
    named = frozenset(match[1] for match in TABLE.finditer(text)) - {IDS}
    strength: dict[str, int] = {}
    inserts: set[str] = set()
    for match in VERB.finditer(text):
        before = list(TABLE.finditer(text, 0, match.start()))
        if match["upsert"]:
            kind, table = "UPDATE", next(iter(inserts))  # the only one of its statement
        elif match["lock"]:
            alias = match["of"]
            kind = match["lock"]
            table = next(t[1] for t in reversed(before) if alias in (None, t[2]))
        elif match["write"] == "INSERT INTO":
            inserts.add(match["table"])
            continue
        else:
            # No statement of ours updates the columns of a key, so the lock is the weaker one.
            kind = "NO KEY UPDATE" if match["write"] == "UPDATE" else match["write"]
            table = match["table"]
        strength[table] = max(strength.get(table, 0), STRENGTH[kind])
    return Locks(named, strength, frozenset(inserts - APART), IDS in text)


class Footprint(NamedTuple):
    """What one step touched, which tables it saw, and of which it showed or let go something."""

    touched: frozenset[Touched] = frozenset()
    seen: frozenset[str] = frozenset()
    shown: frozenset[str] = frozenset()

    def meets(self, other: Footprint) -> bool:
        """Whether the order of two steps could matter."""
        return (
            bool(self.shown & other.seen or other.shown & self.seen)
            or bool(self.touched & other.touched)
            or _covers(self.touched, other.touched)
            or _covers(other.touched, self.touched)
        )


def _covers(whole: frozenset[Touched], some: frozenset[Touched]) -> bool:
    tables = {table for table, row in whole if row is None}
    return any(table in tables for table, _ in some)


class Held:
    """What a transaction has touched so far."""

    def __init__(self) -> None:
        self._strength: dict[str, int] = {}
        self.tables: set[str] = set()

    def step(self, text: str, *, waits: bool) -> Footprint:
        """The footprint of a statement, but for rows that it locked, which only the server knows.
        One that waits may have some of its rows by then."""
        locks = locks_of(text)
        touched: set[Touched] = {(table, "new") for table in locks.inserts}
        if locks.draws:
            touched.add((IDS, None))
        for table, strength in locks.strength.items():
            known = self._strength.get(table)
            # The server does not show that a lock became stronger, so such a step touches all.
            if waits or (known is not None and strength > known):
                touched.add((table, None))
            self._strength[table] = max(strength, known or 0)
        if waits:
            touched |= {(table, None) for table in locks.inserts}
        self.tables |= locks.strength.keys() | locks.inserts | (APART & locks.named)
        return Footprint(frozenset(touched), locks.named)

    def end(self) -> Footprint:
        """The footprint of a commit or rollback."""
        return Footprint(shown=frozenset(self.tables))
