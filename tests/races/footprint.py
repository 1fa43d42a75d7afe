"""What a statement does that another transaction could notice, and whether two such steps commute.

Under READ COMMITTED a transaction is noticed in two ways only: by the rows it has locked and the
unique keys it has inserted, from then on, and by what its commit shows and lets go. Two steps of
different transactions that do not meet in either way may change places: what follows is the same,
but for the order in which ids were drawn. With an old snapshot a transaction notices besides, when
it begins, all that has been committed by then.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

TABLE = re.compile(r'"public"\.towline_(\w+)(?: AS (\w+))?')
VERB = re.compile(
    r'(?P<write>INSERT INTO|UPDATE|DELETE FROM) "public"\.towline_(?P<table>\w+)'
    r"|FOR (?P<lock>NO KEY UPDATE|UPDATE|KEY SHARE|SHARE)(?: OF (?P<of>\w+))?"
    r"|(?P<upsert>ON CONFLICT)"
)
# Two locks of one row exclude each other when these add up to five.
STRENGTH = {
    "KEY SHARE": 1, "SHARE": 2, "NO KEY UPDATE": 3, "UPDATE": 4, "DELETE FROM": 4,
}  # fmt: skip
INSERT = 4  # of a unique key
# Tables whose new rows cannot clash: the key has an id of one's own, or the number of one's own
# connection. Rows of other tables are dependent on any other insert there.
APART = frozenset({"chain", "blocker", "rollup", "note"})

Strength = Mapping[str, int]
NOTHING: Strength = MappingProxyType({})
Touched = tuple[str, str | None]  # a row of a table; None stands for all of them
Marks = Mapping[Touched, str]  # rows with their last lockers, as the server shows them


class Locks(NamedTuple):
    """Tables that a statement names, and how strongly it locks rows of them."""

    named: frozenset[str]
    strength: Strength
    inserts: frozenset[str]
    writes: frozenset[str]


@cache
def locks_of(text: str) -> Locks:
    """Read a statement's text."""
    named = frozenset(match[1] for match in TABLE.finditer(text))
    strength: dict[str, int] = {}
    inserts: set[str] = set()
    writes: set[str] = set()
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
            writes.add(match["table"])
            continue
        else:
            writes.add(match["table"])
            # No statement of ours updates the columns of a key, so the lock is the weaker one.
            kind = "NO KEY UPDATE" if match["write"] == "UPDATE" else match["write"]
            table = match["table"]
        strength[table] = max(strength.get(table, 0), STRENGTH[kind])
    return Locks(named, strength, frozenset(inserts - APART), frozenset(writes))


class Footprint(NamedTuple):
    """What others could notice of one step, or it of others."""

    touched: frozenset[Touched] = frozenset()
    seen: frozenset[str] = frozenset()  # tables that it reads, and
    locks: Strength = NOTHING  # of which it locks rows
    shown: frozenset[str] = frozenset()  # tables whose new rows a commit shows, and
    freed: Strength = NOTHING  # whose rows it lets go

    def meets(self, other: Footprint) -> bool:
        """Whether the order of two steps could matter."""
        return bool(
            self.shown & other.seen
            or other.shown & self.seen
            or _conflict(self.freed, other.locks)
            or _conflict(other.freed, self.locks)
            or any(
                table == same
                and (row == its or None in (row, its))
                and _exclude(self.locks.get(table, INSERT), other.locks.get(table, INSERT))
                for table, row in self.touched
                for same, its in other.touched
            )
        )


def _exclude(one: int, other: int) -> bool:
    """Whether one row can have only one of two locks."""
    return one + other >= 5


def _conflict(one: Strength, other: Strength) -> bool:
    return any(_exclude(one[table], other[table]) for table in one.keys() & other.keys())


class Held:
    """What a transaction has touched so far."""

    def __init__(self) -> None:
        self._strength: dict[str, int] = {}
        self._written: set[str] = set()

    def step(self, text: str, *, waits: bool, writes: bool) -> Footprint:
        """The footprint of a statement, but for rows that it locked, which only the server knows.

        One that waits may have some of its rows by then; one may turn out to have written nothing.
        """
        locks = locks_of(text)
        touched: set[Touched] = set()
        if writes:
            touched |= {(table, "new") for table in locks.inserts}
            self._written |= locks.writes
        for table, strength in locks.strength.items():
            known = self._strength.get(table)
            # The server does not show that a lock became stronger, so such a step touches all.
            if waits or (known is not None and strength > known):
                touched.add((table, None))
            self._strength[table] = max(strength, known or 0)
        if waits:
            touched |= {(table, None) for table in locks.inserts}
        taken = {**dict.fromkeys(locks.inserts, INSERT), **locks.strength}
        return Footprint(frozenset(touched), locks.named, taken)

    def end(self) -> Footprint:
        """The footprint of a commit or rollback."""
        freed = {**self._strength, **dict.fromkeys(self._written, INSERT)}
        return Footprint(shown=frozenset(self._written), freed=freed)
