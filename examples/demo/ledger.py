"""What the database holds at the end, by plain SQL, and whether that is what was asked for."""

from __future__ import annotations

import sqlite3
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import unquote

from .shop import PREFIX, engine

JOBS, ATTEMPTS, CHAINS = (PREFIX + name for name in ("jobs", "attempts", "chains"))
ORDERS = PREFIX + "orders"

OF_SQLITE = (
    f"SELECT name, type FROM sqlite_master WHERE substr(name, 1, {len(PREFIX)}) = '{PREFIX}'"
)
OF_POSTGRES = (
    "SELECT relname, CASE relkind WHEN 'v' THEN 'view' WHEN 'r' THEN 'table' ELSE 'sequence' END "
    "FROM pg_catalog.pg_class WHERE relkind IN ('v', 'r', 'S') "
    f"AND relnamespace = 'public'::regnamespace AND left(relname, {len(PREFIX)}) = '{PREFIX}'"
)


class Broken(Exception):
    """Something is not as promised."""


def expect(holds: bool, problem: str) -> None:
    if not holds:
        raise Broken(problem)


def connect(url: str) -> Any:
    """A connection as an application has one."""
    if engine() == "sqlite":
        connection = sqlite3.connect(unquote(url.removeprefix("sqlite:///")), timeout=30)
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        return connection
    import psycopg

    return psycopg.connect(url)


@dataclass
class Figures:
    """What was asked for."""

    enqueued: int = 0  # by the demo itself
    continued: int = 0  # by handlers
    crowd: int = 0
    crowd_seconds: float = 0.0
    retries: int = 0
    killed: int = 0
    orders: int = 0

    @property
    def jobs(self) -> int:
        return self.enqueued + self.continued


@dataclass(frozen=True)
class Check:
    """One promise, and whether it held."""

    name: str
    expected: object
    found: object
    ok: bool

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


class Ledger:
    """Reads past the library: only jobs of this run, which are those with higher ids."""

    def __init__(self, url: str) -> None:
        self._connection = connect(url)
        self._since = 0

    def begin(self) -> None:
        """Forget what an earlier run has left in this database."""
        self.write(f"CREATE TABLE IF NOT EXISTS {ORDERS} (item TEXT)")
        self.write(f"DELETE FROM {ORDERS}")
        self._since = self.number(f"SELECT coalesce(max(id), 0) FROM {JOBS}")

    def write(self, text: str) -> None:
        self._connection.execute(text)
        self._connection.commit()

    def number(self, text: str) -> int:
        """One figure; `:since` is the last job before this run."""
        text = text.replace(":since", str(self._since))
        (found,) = self._connection.execute(text).fetchone()
        self._connection.commit()
        return int(found or 0)

    def orders(self) -> int:
        return self.number(f"SELECT count(*) FROM {ORDERS}")

    def jobs(self, where: str = "1 = 1") -> int:
        return self.number(f"SELECT count(*) FROM {JOBS} WHERE id > :since AND {where}")

    def attempts(self, where: str = "1 = 1") -> int:
        return self.number(f"SELECT count(*) FROM {ATTEMPTS} WHERE job_id > :since AND {where}")

    def chains(self, where: str = "1 = 1") -> int:
        return self.number(f"SELECT count(*) FROM {CHAINS} WHERE id > :since AND {where}")

    def check(self, figures: Figures) -> list[Check]:
        """Compare everything that must add up."""
        n = figures.crowd
        outputs = (
            f"SELECT sum(CAST(output AS bigint)) FROM {JOBS} WHERE id > :since AND task = 'add'"
        )
        ended_twice = (
            f"SELECT count(*) FROM (SELECT job_id FROM {ATTEMPTS} WHERE job_id > :since "
            "AND outcome IN ('completed', 'continued') GROUP BY job_id HAVING count(*) > 1) AS t"
        )
        unlike = "outcome NOT IN ('completed', 'continued', 'failed', 'lost')"
        rows: list[tuple[str, int, int]] = [
            ("jobs asked for and stored", figures.jobs, self.jobs()),
            ("jobs completed", figures.jobs, self.jobs("state = 'completed'")),
            ("chains completed", figures.enqueued, self.chains("state = 'completed'")),
            ("no job completed twice", 0, self.number(ended_twice)),
            ("outputs add up", n * (n + 1) // 2, self.number(outputs)),
            (
                "attempts that failed and were tried again",
                figures.retries,
                self.attempts("outcome = 'failed'"),
            ),
            (
                "attempts lost with the killed worker",
                figures.killed,
                self.attempts("outcome = 'lost'"),
            ),
            ("no attempt ended in another way", 0, self.attempts(unlike)),
            ("orders committed", figures.orders, self.orders()),
            ("receipts, one for each order", figures.orders, self.jobs("task = 'send_receipt'")),
        ]
        checks = [Check(name, wanted, found, wanted == found) for name, wanted, found in rows]
        if engine() == "sqlite":
            (said,) = self._connection.execute("PRAGMA integrity_check").fetchone()
            checks.append(Check("the file is sound", "ok", said, said == "ok"))
        return checks

    def clear(self) -> None:
        """Drop what the demo made: everything whose name begins as its tables do."""
        sqlite = engine() == "sqlite"
        found = self._connection.execute(OF_SQLITE if sqlite else OF_POSTGRES).fetchall()
        for kind in ("view", "table", "sequence"):  # nothing before what depends on it
            for name in (name for name, what in found if what == kind):
                self._connection.execute(f'DROP {kind} IF EXISTS "{name}"')
        self._connection.commit()

    def close(self) -> None:
        self._connection.close()
