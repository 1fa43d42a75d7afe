"""What people say about the jobs and chains they want, checked and made into filters."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict, TypeVar

from .errors import InvalidSetting
from .job import AtLeast
from .model import ChainState, Outcome, State
from .moment import instant
from .store.listing import ChainFilter, Found, JobFilter

E = TypeVar("E", State, Outcome, ChainState)

MOST_LISTED = 10_000


class JobsWhere(TypedDict, total=False):
    """Filters of a list of jobs."""

    state: State | str | None
    outcome: Outcome | str | None
    task: str | None
    queue: str | None
    chain: int | None
    key: str | None
    label: str | None
    since: datetime | None
    until: datetime | None


class ChainsWhere(TypedDict, total=False):
    """Filters of a list of chains."""

    state: ChainState | str | None
    task: str | None
    key: str | None
    label: str | None
    since: datetime | None
    until: datetime | None


def job_filter(where: JobsWhere) -> JobFilter:
    return JobFilter(
        state=_word(where.get("state"), State),
        outcome=_word(where.get("outcome"), Outcome),
        task=where.get("task"),
        queue=where.get("queue"),
        chain=where.get("chain"),
        key=where.get("key"),
        label=where.get("label"),
        since=_micros(where.get("since"), "since"),
        until=_micros(where.get("until"), "until"),
    )


def chain_filter(where: ChainsWhere) -> ChainFilter:
    return ChainFilter(
        state=_word(where.get("state"), ChainState),
        task=where.get("task"),
        key=where.get("key"),
        label=where.get("label"),
        since=_micros(where.get("since"), "since"),
        until=_micros(where.get("until"), "until"),
    )


def check_limit(limit: int) -> None:
    if not 1 <= limit <= MOST_LISTED:
        raise InvalidSetting(f"limit is from 1 to {MOST_LISTED}, not {limit}")


def position(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if not isinstance(cursor, str) or not cursor.isascii() or not cursor.isdigit():
        raise InvalidSetting(f"cursor={cursor!r} did not come from a page")
    return int(cursor)


def cursor_of(found: Found) -> str | None:
    return None if found.cursor is None else str(found.cursor)


def _word(value: str | None, words: type[E]) -> E | None:
    if value is None:
        return None
    try:
        return words(value)
    except ValueError:
        raise InvalidSetting(f"{value!r} is not one of {', '.join(words)}") from None


def _micros(value: datetime | None, name: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InvalidSetting(f"{name}= is a datetime with a time zone")
    return instant(value)


def counted(
    found: dict[str, dict[State, tuple[int, bool]]],
) -> dict[str, dict[State, int]]:
    return {
        queue: {
            state: AtLeast(number) if more else number for state, (number, more) in states.items()
        }
        for queue, states in sorted(found.items())
    }
