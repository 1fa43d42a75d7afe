"""Filters of lists and bulk actions as callers give them, checked and made into the store's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict

from ..errors import InvalidSetting, NotFound
from ..model import MOST_TYPE, ChainState, Outcome, State
from ..naming import check_known
from ..store.listing import NO_ERROR, ChainFilter, JobFilter
from ..store.stats import StatsFilter
from ..task import check_name
from ..text import shortened
from ..times import to_micros

MOST_LISTED = 10_000
LARGEST_ID = 2**63 - 1


class TaskJobsWhere(TypedDict, total=False):
    """Filters of a list of the jobs of one task; of several ids or states each one fits.

    `roots`: first jobs of their chains only. `chain_task`: the task of a chain's first job.
    `worker`: by name, that runs the job or ran its last attempt. `since`, `until`: when it was
    created; `ended_since`, `ended_until`: when it ended. `error_type`: the class that its last
    attempt raised, such as "ValueError" or "shop.cards.Declined"; "none" if it raised nothing.
    """

    state: State | str | Collection[State | str] | None
    outcome: Outcome | str | None
    queue: str | None
    chain: int | None
    key: str | None
    label: str | None
    lane: str | None
    since: datetime | None
    until: datetime | None
    ids: Collection[int] | None
    schedule: str | None
    roots: bool | None
    chain_task: str | None
    worker: str | None
    ended_since: datetime | None
    ended_until: datetime | None
    error_type: str | None


class JobsWhere(TaskJobsWhere, total=False):
    """Filters of a list of jobs."""

    task: str | None


class ChainsWhere(TypedDict, total=False):
    """Filters of a list of chains; of several ids or states each one fits."""

    state: ChainState | str | Collection[ChainState | str] | None
    task: str | None
    key: str | None
    label: str | None
    since: datetime | None
    until: datetime | None
    ids: Collection[int] | None


class StatsWhere(TypedDict, total=False):
    """Filters of jobs that ended; the times are those of their end."""

    since: datetime | None
    until: datetime | None
    queue: str | None
    task: str | None
    outcome: Outcome | str | None


def check_id(id: int) -> int:
    """A number that a job or chain can have; any other belongs to none."""
    if isinstance(id, bool) or not isinstance(id, int):
        raise InvalidSetting(f"an id is a whole number, not {id!r}")
    if abs(id) > LARGEST_ID:
        raise NotFound("there is no such job or chain: no id is so large")
    return id


def check_limit(limit: int) -> int:
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidSetting(f"limit is a whole number, not {limit!r}")
    if not 1 <= limit <= MOST_LISTED:
        raise InvalidSetting(f"limit is from 1 to {MOST_LISTED}")
    return limit


def parse_id(text: str) -> int | None:
    """The id that a text says, None when it says none."""
    fits = text.isascii() and text.isdigit() and len(text) <= len(str(LARGEST_ID))
    return int(text) if fits and int(text) <= LARGEST_ID else None


def parse_cursor(cursor: str | None) -> int | None:
    position = parse_id(cursor) if isinstance(cursor, str) else None
    if position is None and cursor is not None:
        raise InvalidSetting("cursor= is the cursor of a page, as that page gave it")
    return position


def _check_time(value: datetime, name: str) -> int:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidSetting(f"{name}= is a datetime with a time zone")
    return to_micros(value)


def _one_of(words: type[State | Outcome | ChainState]) -> Callable[[str, str], str]:
    def check(value: str, name: str) -> str:
        try:
            return words(value)
        except ValueError:
            raise InvalidSetting(f"{value!r} is not one of {', '.join(words)}") from None

    return check


def _some_of(words: type[State | ChainState]) -> Callable[[str | Collection[str], str], Any]:
    one_of = _one_of(words)

    def check(value: str | Collection[str], name: str) -> frozenset[str]:
        """One or several; none at all would silently be any."""
        several = [value] if isinstance(value, str) else value
        if not isinstance(several, Collection) or not several:
            raise InvalidSetting(f"{name}= is a state, or several in a list, not {value!r}")
        return frozenset(one_of(state, name) for state in several)

    return check


def _check_ids(value: Collection[int], name: str) -> frozenset[int]:
    """Some; none at all would silently be any."""
    if isinstance(value, str) or not isinstance(value, Collection) or not value:
        raise InvalidSetting(f"{name}= is a list of ids, not {value!r}")
    if len(value) > MOST_LISTED:
        raise InvalidSetting(f"{name}= takes at most {MOST_LISTED}")
    return frozenset(map(check_id, value))


def _check_error_type(value: str, name: str) -> str:
    """A class as it is stored: built-in ones may be named without their module."""
    if not isinstance(value, str) or not 0 < len(value) <= MOST_TYPE:
        raise InvalidSetting(f"{name}= is the name of a class, not {shortened(repr(value), 60)}")
    if value == "none":
        return NO_ERROR
    return value if "." in value else f"builtins.{value}"


def _check_roots(value: bool, name: str) -> bool | None:
    if not isinstance(value, bool):
        raise InvalidSetting(f"{name}= is True or False, not {value!r}")
    return value or None


# How each word of a filter is checked, and what the store gets.
OF_JOBS: dict[str, Callable[[Any, str], Any]] = {
    "state": _some_of(State),
    "outcome": _one_of(Outcome),
    "task": check_name,
    "queue": check_name,
    "chain": lambda value, _: check_id(value),
    "key": check_name,
    "label": check_name,
    "lane": check_name,
    "since": _check_time,
    "until": _check_time,
    "ids": _check_ids,
    "schedule": check_name,
    "roots": _check_roots,
    "chain_task": check_name,
    "worker": check_name,
    "ended_since": _check_time,
    "ended_until": _check_time,
    "error_type": _check_error_type,
}
OF_CHAINS = {name: OF_JOBS[name] for name in ChainsWhere.__annotations__}
OF_CHAINS["state"] = _some_of(ChainState)
OF_STATS = {name: OF_JOBS[name] for name in StatsWhere.__annotations__}


def job_filter(where: JobsWhere, call: str = "jobs()") -> JobFilter:
    return JobFilter(**_checked(call, where, OF_JOBS))


def chain_filter(where: ChainsWhere, call: str = "chains()") -> ChainFilter:
    return ChainFilter(**_checked(call, where, OF_CHAINS))


def stats_filter(where: StatsWhere) -> StatsFilter:
    return StatsFilter(**_checked("stats()", where, OF_STATS))


def bulk_filter(call: str, where: JobsWhere, everything: bool) -> JobFilter:
    """What an action on many jobs is about."""
    checked = _checked(call, where, OF_JOBS)
    _check_chosen(call, checked, everything, "job", OF_JOBS)
    return JobFilter(**checked)


def bulk_chain_filter(call: str, where: ChainsWhere, everything: bool) -> ChainFilter:
    checked = _checked(call, where, OF_CHAINS)
    _check_chosen(call, checked, everything, "chain", OF_CHAINS)
    return ChainFilter(**checked)


def _check_chosen(
    call: str, checked: Mapping[str, Any], everything: bool, what: str, fields: Iterable[str]
) -> None:
    """That an action is about all of them must be said."""
    chosen = any(value is not None for value in checked.values())  # roots=False chooses nothing
    if everything and chosen:
        raise InvalidSetting(f"{call} takes filters or everything=True, not both")
    if not everything and not chosen:
        raise InvalidSetting(
            f"{call} without a filter would be about every {what}: say which by "
            f"{', '.join(fields)}, or everything=True"
        )


def _checked(
    call: str, where: Mapping[str, Any], fields: Mapping[str, Callable[[Any, str], Any]]
) -> dict[str, Any]:
    """What was said, each value as the store has it."""
    check_known(call, where, fields)
    return {name: fields[name](value, name) for name, value in where.items() if value is not None}
