"""Ends that do not go with the worker's turn: they are written by the slot that ran the handler, in
a transaction of their own.

One is that of `ctx.transaction()`; the other a continuation that brings many jobs along. A few go
with a turn; more would keep the pump from renewing its lease and from finishing other jobs. Should
the database be away, such an ending is kept and tried again until it is written or refused.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import LeaseLost, StoreError, TowlineError
from ..operation import Op, Steps

if TYPE_CHECKING:
    from ..records import Ending, NewJob
    from ..store.finish import Finished
    from .attempt import Attempt

T = TypeVar("T")

MOST_IN_A_TURN = 100  # jobs that a continuation brings along, and characters of their arguments
MOST_TEXT_IN_A_TURN = 1024 * 1024
FIRST_PAUSE, LONGEST_PAUSE = 0.02, 1.0  # seconds until what could not be written is tried again


def is_large(following: NewJob) -> bool:
    """Whether a continuation brings too much along for a turn. A key may have to be waited for, as
    long as its caller does not commit."""
    children = following.children
    return (
        len(children) > MOST_IN_A_TURN
        or any(job.key is not None for job in children)
        or sum(len(job.arguments) for job in children) > MOST_TEXT_IN_A_TURN
    )


def write(attempt: Attempt, ending: Ending) -> Ending | None:
    """Record it in this thread; return what is still to be recorded: nothing, or why not."""
    pause = pauses()
    while True:
        try:
            finished = attempt.app.runner.run(finish_op(attempt, ending))
        except StoreError:  # trouble of the database, and of no job
            lost = attempt.over
        except TowlineError as problem:  # a continuation that cannot be stored
            return ending.refused(problem)
        else:
            if finished.accepted:
                attempt.completed_inside, attempt.inside = True, ending.outcome
                return None
            lost = bool(finished.refused) or attempt.over
        if lost:
            return ending.refused(LeaseLost(f"{attempt} was taken over before its end was stored"))
        time.sleep(next(pause))


def pauses(until: float = math.inf) -> Iterator[float]:
    """Seconds to wait after each try to write an end, longer and longer, and drawn: others who wait
    for the same come at other times. The last try begins before `until`, by the monotonic clock."""
    pause = FIRST_PAUSE
    while time.monotonic() < until:
        yield random.uniform(0.5, 1.0) * pause
        pause = min(2 * pause, LONGEST_PAUSE)


async def awrite(attempt: Attempt, ending: Ending) -> Ending | None:
    return await whole(write, attempt, ending)


def finish_op(attempt: Attempt, ending: Ending) -> Op[Finished]:
    """Record how an attempt ended, and how far it was, in a transaction that is not its worker's
    turn."""
    store = attempt.app.runner.store
    # Not in the worker's own slot of the roll-ups: its turns would wait for our commit.
    finish = store.finish([ending], attempt.worker)
    said = attempt.progress
    if said is None or said is attempt.progress_written:
        return finish

    def steps() -> Steps[Finished]:
        yield from store.progress([(attempt.held, *said)])
        return (yield from finish)

    return Op(finish.name, steps)


async def whole(function: Callable[..., T], *args: Any) -> T:
    """Run it in a thread, to its end also when we are cancelled meanwhile."""
    import asyncio  # who awaits this has it

    running = asyncio.ensure_future(asyncio.to_thread(function, *args))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait([running])
        raise
