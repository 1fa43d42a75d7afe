"""A unit of database work, written but not yet run: statements, and operations made of them.

A statement is a named query with its parameters. An operation is a generator that yields statements
and receives rows. It does no I/O itself, so one source serves blocking and awaiting callers, our
connections and theirs. Compose with `yield from`.

Beside statements it yields *marks*: what follows its commit. The runner keeps them, and wakes
workers and waiters once the commit is done.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Sequence, Set
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, TypeVarTuple

from msgspec import Struct

if TYPE_CHECKING:
    import sqlite3

Scalar = str | int | float | bytes | None
Row = tuple[Scalar, ...]
Copy = tuple[str, tuple[str, ...], tuple[str, ...]]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STATES = range(5)  # of a row in `live`

_PARAMETER = re.compile(r"(?<![:\w]):([a-z_]\w*)")
_RECORDS = re.compile(r"json_to_recordset\(:rows::text::json\)\s+AS r\(([^()]*)\)")
_COPYABLE = re.compile(
    r"INSERT INTO (\S+) \(([^()]*)\)\s+SELECT ([^()]*?)\s+FROM json_to_recordset\("
)


class Query:
    """One named statement of an engine, its parameters in order of appearance.

    `qmark`, `format` and `dollar` are the text for drivers that write ?, %s and $1. A statement
    whose state is a literal has one text for each; calling it with state= chooses.
    """

    __slots__ = (
        "_picks", "_plain", "copy", "dollar", "format", "name", "names", "order", "qmark",
        "records", "states", "text", "width",
    )  # fmt: skip

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.order = tuple(_PARAMETER.findall(text))
        self.names = frozenset(self.order)
        self.qmark = _PARAMETER.sub("?", text)
        self.format = _PARAMETER.sub("%s", text.replace("%", "%%"))
        numbers = count(1)
        self.dollar = _PARAMETER.sub(lambda found: f"${next(numbers)}", text)
        self.width: int | None = None  # columns of the result, learnt by a connection that asks
        types = _record_types(text)
        self.records = frozenset(types)  # columns of the one JSON parameter that holds many rows
        self.copy = _copy(text, types) if types else None
        self._picks: dict[tuple[str, ...], tuple[tuple[str, int], ...]] = {}
        self.states: tuple[Query, ...] = ()
        if "{state}" in text:
            self.states = tuple(Query(name, text.replace("{state}", str(n))) for n in STATES)
            self.names |= {"state"}
        self._plain = None if self.names else Statement(self, ())  # one that never differs

    def __call__(self, **params: Scalar) -> Statement:
        if self._plain is not None and not params:
            return self._plain
        if params.keys() != self.names:
            raise TypeError(f"{self.name} takes {sorted(self.names)}, not {sorted(params)}")
        if self.states:
            state = params.pop("state")
            assert isinstance(state, int)
            return self.states[state](**params)
        return Statement(self, tuple([params[name] for name in self.order]))

    def many(self, columns: tuple[str, ...], rows: Sequence[Row]) -> Statement:
        """The same statement once for each row; nothing comes back."""
        return Statement(self, (), rows, False, self._check(columns))

    def counted(self, columns: tuple[str, ...], rows: Sequence[Row]) -> Statement:
        """The same statement once for each row; back comes how many rows each one changed."""
        return Statement(self, (), rows, True, self._check(columns))

    def _check(self, columns: tuple[str, ...]) -> tuple[tuple[str, int], ...]:
        """Refuse columns that are not the statement's; say where it finds those of its records."""
        picks = self._picks.get(columns)
        if picks is None:
            if not (self.records <= {"n", *columns} if self.records else columns == self.order):
                raise TypeError(f"{self.name} takes {self.records or self.order}, not {columns}")
            named = {c: columns.index(c) for c in columns if c in self.records}
            self._picks[columns] = picks = tuple(named.items())
        return picks


class Statement(Struct, eq=False):
    """A query with its parameters: what an operation yields and a connection executes."""

    query: Query
    params: Row
    rows: Sequence[Row] | None = None
    counted: bool = False
    picks: tuple[tuple[str, int], ...] = ()  # column names and places, for rows sent as records

    def __repr__(self) -> str:
        return f"<{self.query.name}>"


def _record_types(text: str) -> dict[str, str]:
    """The columns that a statement reads from its records, with their types."""
    found = _RECORDS.search(text)
    parts = found[1].split(",") if found else ()
    return dict(part.strip().split(maxsplit=1) for part in parts)


def _copy(text: str, types: dict[str, str]) -> Copy | None:
    """Table, columns and types of a plain INSERT of records, which COPY can do as well."""
    found = _COPYABLE.match(text)
    if not found or "ON CONFLICT" in text:
        return None
    columns, values = (tuple(re.split(r",\s*", part)) for part in (found[2], found[3]))
    return (found[1], columns, tuple(types[c] for c in columns)) if columns == values else None


class Mark(Struct, eq=False):
    """What follows a commit: queues that got work; that chains ended."""

    queues: Set[str] = frozenset()
    ended: bool = False


ENDED = Mark(ended=True)

Steps = Generator[Statement | Mark, list[Row], T]
Execute = Callable[[Statement], list[Row]]
AwaitedExecute = Callable[[Statement], Awaitable[list[Row]]]


class Loss(Enum):
    """When a crash of the machine, or a power cut, may take the last commits of an operation."""

    NEVER = "a promise hangs on it"
    IF_ALLOWED = "only where the application said durable=False"
    # On SQLite the machine that crashes runs the workers. PostgreSQL's may live on: an attempt
    # number would be given out to a second worker while the first still runs under it.
    WITH_WORKERS = "only where the same crash ends every worker"
    ANY_TIME = "it is said again soon"


class Onlooker(Protocol):
    """Told by an engine of the longest statements of an operation. It does not raise."""

    def begins(self, statement: str, *, idle: bool) -> None:
        """The database is busy with this from now on, perhaps in this thread; `idle`: the thread
        has nothing to do until it ends. Another may begin before it is said to have ended."""

    def ended(self) -> None:
        """The thread goes on."""


class Op(Generic[T]):
    """A generator function with its arguments, ready to run, as often as need be: a retry begins it
    anew. All of its steps are one transaction.

    `reads`: it changes nothing. `loss`: when a crash may take its commit. `single`: it is one
    statement, and as atomic as that. `follows`: what its last run marked, None for nothing. `by`,
    `queue`: who asked for it, and which queue it is about, where its event is to say so.
    `onlooker`: who wants to know when the database is busy with it for long.
    """

    __slots__ = (
        "_args", "_begin", "by", "follows", "loss", "name", "onlooker", "queue", "reads", "single",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        begin: Callable[[*Ts], Steps[T]],
        *args: *Ts,
        reads: bool = False,
        loss: Loss = Loss.NEVER,
        single: bool = False,
        by: str | None = None,
        queue: str | None = None,
    ) -> None:
        self.name = name
        self.reads = reads
        self.loss = loss
        self.single = single
        self.by = by
        self.queue = queue
        self.follows: Mark | None = None
        self.onlooker: Onlooker | None = None
        self._begin: Callable[..., Steps[T]] = begin
        self._args = args

    def __iter__(self) -> Steps[T]:
        self.follows = None
        return self._begin(*self._args)

    def note(self, mark: Mark) -> None:
        """Keep a mark until the commit."""
        so_far = self.follows
        if so_far is not None:
            mark = Mark(so_far.queues | mark.queues, so_far.ended or mark.ended)
        self.follows = mark

    def __repr__(self) -> str:
        return f"<operation {self.name}>"


async def adrive(
    op: Op[T], execute: AwaitedExecute, framed: Callable[[Op[T]], Steps[T]] = iter
) -> T:
    """`drive` for drivers that await."""
    steps: Generator[Statement | Mark, Any, T] = framed(op)
    try:
        statement = next(steps)
        while True:
            if isinstance(statement, Mark):
                op.note(statement)
                statement = steps.send([])
                continue
            try:
                rows = await execute(statement)
            except BaseException as error:
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


def drive(op: Op[T], execute: Execute, framed: Callable[[Op[T]], Steps[T]] = iter) -> T:
    """Run an operation to its end inside whatever transaction the caller has opened.

    A failing statement is thrown into the operation, so that the traceback shows its line too.
    `framed` puts other steps around it.
    """
    steps: Generator[Statement | Mark, Any, T] = framed(op)
    try:
        statement = next(steps)
        while True:
            if isinstance(statement, Mark):
                op.note(statement)
                statement = steps.send([])
                continue
            try:
                rows = execute(statement)
            except BaseException as error:
                statement = steps.throw(error)
            else:
                statement = steps.send(rows)
    except StopIteration as stop:
        result: T = stop.value
        return result


def execute(cursor: sqlite3.Cursor, statement: Statement) -> list[Row]:
    """Run one statement by sqlite3; always read all rows, since a half-read cursor pins the log."""
    text = statement.query.qmark
    if statement.rows is None:
        return cursor.execute(text, statement.params).fetchall()
    if statement.counted:
        run = cursor.execute
        return [(run(text, row).rowcount,) for row in statement.rows]
    cursor.executemany(text, statement.rows)
    return []
