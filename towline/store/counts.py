"""How many jobs there are, by state and by queue or task: open ones are counted from their rows, up
to a number, ended ones are known from the roll-ups."""

from __future__ import annotations

from ..model import END_STATE, LIVE_STATE, OUTCOMES, Live, Outcome, State
from ..operation import Scalar, Steps
from . import listing
from .ground import Ground, int_of

COUNTED = 100_000

Counts = dict[str, dict[State, tuple[int, bool]]]
"""Each number with whether it is "at least"."""


def by_queue(store: Ground) -> Steps[Counts]:
    found: Counts = {}
    for live in Live:
        strips = yield store.sql.live_strips(state=int(live))
        queues = sorted({str(queue) for queue, _ in strips})
        if len(queues) > listing.STRIPS:
            rows = yield store.sql.count_strips(state=int(live), limit=COUNTED + 1)
            numbers = {str(queue): int_of(number) for queue, number in rows}
            more = sum(numbers.values()) > COUNTED
            for queue in queues:
                _add(found, queue, LIVE_STATE[live], numbers.get(queue, 0), more)
            continue
        for queue in queues:
            ((number,),) = yield store.sql.count_strip(
                state=int(live), queue=queue, limit=COUNTED + 1
            )
            exact = min(int_of(number), COUNTED)
            if live is Live.RUNNING:  # of which some were claimed ahead and have not begun
                ((ahead,),) = yield store.sql.count_ahead(queue=queue, limit=COUNTED)
                if ahead:
                    exact = max(exact - int_of(ahead), 0)
                    _add(found, queue, State.PENDING, int_of(ahead))
                if not exact:
                    continue
            _add(found, queue, LIVE_STATE[live], exact, int_of(number) > COUNTED)
    for strip, outcome, number in (yield store.sql.sum_rollups()):
        _add(found, str(strip), _ended(outcome), int_of(number))
    return found


def by_task(store: Ground) -> Steps[Counts]:
    """An open job's task is known by its job only: of each state so many are looked at."""
    found: Counts = {}
    for live in Live:
        rows = yield store.sql.count_tasks(state=int(live), limit=COUNTED + 1)
        more = sum(int_of(number) for *_, number in rows) > COUNTED
        for task, ahead, number in rows:
            state = State.PENDING if ahead else LIVE_STATE[live]
            _add(found, str(task), state, min(int_of(number), COUNTED), more)
    for task, outcome, number in (yield store.sql.sum_task_rollups()):
        _add(found, str(task), _ended(outcome), int_of(number))
    return found


def _add(found: Counts, name: str, state: State, number: int, more: bool = False) -> None:
    before, was_more = found.setdefault(name, {}).get(state, (0, False))
    found[name][state] = before + number, more or was_more


def _ended(outcome: Scalar) -> State:
    return END_STATE[OUTCOMES[int_of(outcome)] or Outcome.FAILED]
