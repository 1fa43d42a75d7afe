"""The database on which operations meet: its tables put back quickly, looked at and audited."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg.sql import SQL, Composable, Identifier, Literal

from tests.races.auditor import CHECKS
from tests.races.footprint import Marks
from towline.connections.psycopg import PlainCursor, execute
from towline.operation import Op, drive
from towline.sql import SERVER_TABLES, TABLES

T = TypeVar("T")

KEPT = tuple(name for name in (*TABLES, *SERVER_TABLES) if name != "migration")
SEQUENCES = ("towline_job_ids",)
# Rows of every table with their last lockers; the columns are those that tell rows apart.
MARKS = " UNION ALL ".join(
    f"SELECT '{table}', concat_ws(' ', {key}), xmax::text FROM towline_{table}"
    for table, key in (
        ("job", "id"), ("live", "job_id"), ("attempt", "job_id, number"), ("chain", "id"),
        ("key", "task, key"), ("blocker", "chain_id, job_id"), ("worker", "id"),
        ("queue", "name"), ("mark", "name"), ("limit", "queue, lane"), ("lane", "queue, lane"),
        ("note", "queue, lane, id"), ("schedule", "name"),
    )
).encode()  # fmt: skip
# What a schedule ended with. The time of the next try is drawn by lot.
END = b"""
SELECT json_build_array(
    (SELECT json_agg(j ORDER BY j.id) FROM towline_job AS j),
    (SELECT json_agg(to_jsonb(l) - 'run_at' ORDER BY l.job_id) FROM towline_live AS l),
    (SELECT json_agg(a ORDER BY a.job_id, a.number) FROM towline_attempt AS a),
    (SELECT json_agg(c ORDER BY c.id) FROM towline_chain AS c),
    (SELECT json_agg(k ORDER BY k.task, k.key) FROM towline_key AS k),
    (SELECT json_agg(b ORDER BY b.chain_id, b.job_id) FROM towline_blocker AS b),
    (SELECT json_agg(w ORDER BY w.id) FROM towline_worker AS w))::text
"""


class ScratchDatabase:
    """A connection that watches the others, whose server processes are `sides`."""

    sides: Sequence[int] = ()

    def __init__(self, url: str) -> None:
        self._eye: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        for setting in ("synchronous_commit = off", "jit = off"):
            self._eye.execute(f"SET {setting}".encode())
        self._cursor = PlainCursor(self._eye)

    def close(self) -> None:
        self._cursor.close()
        self._eye.close()

    def look(self, op: Op[T]) -> T:
        """Run an operation while nobody else is there."""
        with self._eye.transaction():
            return drive(op, lambda statement: execute(self._cursor, statement, None))

    def marks(self) -> Marks:
        """Every row with its last locker."""
        return {(table, row): mark for table, row, mark in self._rows(MARKS)}

    def is_blocked(self, pid: int) -> bool:
        """Whether this side waits for a lock of another; the server's own upkeep does not count."""
        text = b"SELECT pg_blocking_pids(%s) && %s::integer[]"
        ((blocked,),) = self._rows(text, pid, list(self.sides))
        return bool(blocked)

    def end(self) -> str:
        """All that is stored, to be compared."""
        ((end,),) = self._rows(END)
        return str(end)

    def audit(self) -> Iterator[str]:
        """What the auditor has to say of these tables."""
        for number, row in self._rows(audit_text()):
            check = CHECKS[number]
            values = [value for _, value in json.loads(row, object_pairs_hook=list)]
            yield f"{check.kind}: {check.text.format(*values)}"

    # ---- as they were

    def empty(self) -> None:
        """No jobs, no workers, ids from one."""
        self.restore(self._joined(self._cleared()))

    def saved(self) -> bytes:
        """SQL that makes the tables again what they are now."""
        parts: list[Composable] = self._cleared()
        for table in KEPT:
            name = Identifier(f"towline_{table}")
            text = SQL("SELECT json_agg(t)::text FROM {} AS t").format(name)
            ((rows,),) = self._rows(text.as_bytes(self._eye))
            if rows is not None and table != "mark":
                fill = SQL(
                    "INSERT INTO {} OVERRIDING SYSTEM VALUE"
                    " SELECT * FROM json_populate_recordset(NULL::{}, {})"
                )
                parts.append(fill.format(name, name, Literal(rows)))
        for sequence in SEQUENCES:
            text = SQL("SELECT last_value, is_called FROM {}").format(Identifier(sequence))
            ((last, called),) = self._rows(text.as_bytes(self._eye))
            parts.append(SQL("SELECT setval({}, {}, {})").format(sequence, last, called))
        return self._joined(parts)

    def restore(self, saved: bytes) -> None:
        """One round trip, one transaction; whatever a broken schedule has left open is an error."""
        self._cursor.execute(b"SET lock_timeout = '10s'; " + saved)

    def _cleared(self) -> list[Composable]:
        parts: list[Composable] = [
            SQL("DELETE FROM {}").format(Identifier(f"towline_{table}"))
            for table in KEPT
            if table != "mark"
        ]
        parts.append(SQL("UPDATE towline_mark SET value = 0"))
        parts += [SQL("SELECT setval({}, 1, false)").format(name) for name in SEQUENCES]
        return parts

    def _joined(self, parts: list[Composable]) -> bytes:
        return SQL("; ").join(parts).as_bytes(self._eye)

    def _rows(self, text: bytes, *params: object) -> list[tuple[Any, ...]]:
        return self._cursor.execute(text, params or None, prepare=True).fetchall()


@cache
def audit_text() -> bytes:
    """All checks of the auditor as one statement: the number of the check, and the row."""
    parts = [
        f"SELECT {number}, row_to_json(q)::text FROM ({check.sql}) AS q"
        for number, check in enumerate(CHECKS)
    ]
    return " UNION ALL ".join(parts).encode()
