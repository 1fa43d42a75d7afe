"""A unit of database work, written but not yet run.

An operation is a generator that yields statements and receives rows. It does no I/O itself, so one
source serves blocking and awaiting callers, our connections and theirs. Compose with `yield from`.

Beside statements it yields *marks*: what follows its commit. The runner keeps them, and wakes
workers and waiters once the commit is done.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Set
from enum import Enum
from typing import Any, Generic, TypeVar, TypeVarTuple

from msgspec import Struct

from .sql import Row, Statement

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


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


class Op(Generic[T]):
    """A generator function with its arguments, ready to run, as often as need be: a retry begins it
    anew. All of its steps are one transaction.

    `reads`: it changes nothing. `loss`: when a crash may take its commit. `single`: it is one
    statement, and as atomic as that. `follows`: what its last run marked, None for nothing. `by`,
    `queue`: who asked for it, and which queue it is about, where its event is to say so.
    """

    __slots__ = ("_args", "_begin", "by", "follows", "loss", "name", "queue", "reads", "single")

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
