"""From calls to what the store is given: blockers resolved, a whole graph in one batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from ..errors import BlockerError, InvalidSetting
from ..records import NewBlocker, NewJob
from ..times import to_micros
from . import Call, Next, check_name

MOST_CHILDREN = 10_000  # of one continuation


def new_jobs(calls: Sequence[Call[Any]], on: object = None) -> list[NewJob]:
    """The given calls in their order, then those that only their `after=` names."""
    for call in calls:
        if not isinstance(call, Call):
            raise InvalidSetting(
                f"enqueue_many takes calls such as add.call(1, 2), not {type(call).__name__}"
            )
    batch = list(calls)
    if all(call.options.after is None and call.options.on is None for call in batch):
        return _alike(batch)
    index: dict[int, int] = {}
    for position, call in enumerate(batch):
        index.setdefault(id(call), position)
    for call in batch:  # grows while it is walked
        if call.options.on is not None and call.options.on is not on:
            raise InvalidSetting("a batch is one transaction: say on= to enqueue_many only")
        _add_awaited(call, batch, index)
    return [call.new_job(_blockers(call, index)) for call in batch]


def _add_awaited(call: Call[Any], batch: list[Call[Any]], index: dict[int, int]) -> None:
    """Add the calls that this one waits for and that are not in the batch yet."""
    for item, _ in _after(call):
        if isinstance(item, Call) and id(item) not in index:
            index[id(item)] = len(batch)
            batch.append(item)


def _alike(calls: Sequence[Call[Any]]) -> list[NewJob]:
    """Calls without blockers. In a large batch nearly all differ in nothing but arguments."""
    jobs: list[NewJob] = []
    task = options = model = None
    for call in calls:
        if model is None or call.task is not task or call.options is not options:
            task, options, model = call.task, call.options, call.new_job(())
            jobs.append(model)
        else:
            jobs.append(replace(model, arguments=call.arguments, lane=call.lane))
    return jobs


def next_job(following: Next[Any]) -> NewJob:
    """A continuation, and with it the calls that it waits for, themselves or through others."""
    call = following.call
    children: list[Call[Any]] = []
    index: dict[int, int] = {}
    _add_awaited(call, children, index)
    for child in children:  # grows while it is walked
        if child.options.on is not None:
            raise InvalidSetting("a call in after= commits with its continuation and takes no on=")
        _add_awaited(child, children, index)
        if len(children) > MOST_CHILDREN:
            raise InvalidSetting(
                f"a continuation brings at most {MOST_CHILDREN:,} calls in its after=; for more of "
                "them use ctx.transaction(), and enqueue them there"
            )
    job = call.new_job(_blockers(call, index), continues=True)
    if children:
        job.children = [child.new_job(_blockers(child, index)) for child in children]
    return job


def _after(call: Call[Any]) -> Sequence[tuple[Any, str | None]]:
    """What a call waits for, each with its name if it has one."""
    after = call.options.after
    if after is None:
        return ()
    if isinstance(after, Mapping):
        for name in after:
            check_name(name, "the name of a blocker")
        return [(item, name) for name, item in after.items()]
    if isinstance(after, str) or not isinstance(after, Sequence):
        raise InvalidSetting("after= is a list of jobs, or a dict of them by name")
    return [(item, None) for item in after]


def _blockers(call: Call[Any], index: Mapping[int, int]) -> Sequence[NewBlocker]:
    blockers = []
    for item, name in _after(call):
        if isinstance(item, Call):
            blockers.append(NewBlocker(index=index[id(item)], name=name, trace=item.options.trace))
        elif isinstance(item, int) and not isinstance(item, bool):
            if abs(item) >= 2**63:
                raise BlockerError(f"blocker chain {item} does not exist: no id is so large")
            blockers.append(NewBlocker(chain_id=item, name=name))
        elif isinstance(chain := getattr(item, "chain_id", getattr(item, "id", None)), int):
            handle: Any = item
            created_at = to_micros(handle.created_at) if handle.id == chain else None
            blockers.append(NewBlocker(chain, None, name, handle.trace, created_at))
        else:
            raise InvalidSetting(
                f"after= takes jobs, chains, calls or chain ids, not {type(item).__name__}"
            )
    return blockers
