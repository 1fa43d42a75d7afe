"""What people say about the jobs and chains they want, checked and made into filters."""

from __future__ import annotations

from datetime import datetime
from typing import TypedDict, TypeVar, cast

from .errors import InvalidSetting, NotFound
from .job import AtLeast
from .model import ChainState, Outcome, State
from .moment import instant
from .store.listing import ChainFilter, Found, JobFilter
from .task import check_name

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
        task=_text(where, "task"),
        queue=_text(where, "queue"),
        chain=None if (chain := where.get("chain")) is None else known(chain),
        key=_text(where, "key"),
        label=_text(where, "label"),
        since=_micros(where.get("since"), "since"),
        until=_micros(where.get("until"), "until"),
    )


def known(id: int) -> int:
    """A number that a job or chain can have; any other belongs to none."""
    if isinstance(id, bool) or not isinstance(id, int):
        raise InvalidSetting(f"an id is a whole number, not {id!r}")
    if abs(id) >= 2**63:
        raise NotFound(f"there is no job or chain {id}")
    return id


def named(queue: str) -> str:
    check_name(queue, "queue")
    return queue


def _text(where: JobsWhere | ChainsWhere, name: str) -> str | None:
    value = where.get(name)
    check_name(value, name)
    return cast(str | None, value)


def chain_filter(where: ChainsWhere) -> ChainFilter:
    return ChainFilter(
        state=_word(where.get("state"), ChainState),
        task=_text(where, "task"),
        key=_text(where, "key"),
        label=_text(where, "label"),
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
