"""What is known at every instant, though an exception may arrive between any two bytecodes.

Ctrl-C and the handlers of signals raise wherever the main thread happens to be: also between the
call that took a lock and the line that notes it. So taking and noting are one call into C, during
which nothing arrives, such as `taken.extend(map(take, …))`; so are giving back and forgetting.
Whoever cleans up looks at what these say, never at a flag that was to be set one line later.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from types import CodeType
from typing import Any, TypeVar

T = TypeVar("T")


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
