"""What is known at every instant, though an exception may arrive between any two bytecodes.

Ctrl-C and the handlers of signals raise wherever the main thread happens to be: also between the
call that took a lock and the line that notes it. Here taking and noting are one call into C, during
which nothing arrives; so are giving back and forgetting. Whoever cleans up looks at what these say,
never at a flag that was to be set one line later.
"""

from __future__ import annotations

import operator
import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import compress, islice
from threading import Lock
from types import CodeType
from typing import Any, TypeVar

T = TypeVar("T")

Held = list[Callable[[], None]]
"""How to release what was taken: the lock is taken exactly when it is not empty."""


def take(held: Held, lock: Lock, seconds: float) -> bool:
    """Take a lock, waiting so long; say whether it is taken."""
    held.extend(compress((lock.release,), map(lock.acquire, (True,), (seconds,))))
    return bool(held)


def give_back(held: Held) -> None:
    """Release what was taken; a second call does nothing."""
    try:
        deque(map(operator.call, islice(_until_empty(held.pop), len(held))), 0)
    except IndexError:  # somebody else has done it
        pass


def perform(done: list[Any], call: Callable[[T], object], argument: T) -> None:
    """Call it; `done` is not empty exactly when it has returned."""
    done.extend(map(call, (argument,)))


def move(source: deque[T], target: list[T], most: int) -> None:
    """Move items from the head of a line to the end of a list; each is always in one of them."""
    try:
        target.extend(islice(_until_empty(source.popleft), most))
    except IndexError:
        pass


def move_back(source: list[T], target: deque[T]) -> None:
    """Move all items back to the head of the line, in their order."""
    try:
        target.extendleft(_until_empty(source.pop))
    except IndexError:
        pass


def _until_empty(pop: Callable[[], T]) -> Iterable[T]:
    nothing: Any = None
    return iter(pop, nothing)


def is_running(code: CodeType, depth: int) -> bool:
    """Whether this thread is inside a function, further out than so many frames from here."""
    frame = sys._getframe(depth + 1)
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code is code:
            return True
    return False
