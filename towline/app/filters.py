"""What people say about the jobs and chains they want, checked and made into filters."""

from __future__ import annotations

from datetime import datetime
from typing import Any, TypedDict, TypeVar, cast

from ..errors import InvalidSetting, NotFound
from ..model import ChainState, Outcome, State
from ..naming import check_known
from ..store.listing import ChainFilter, JobFilter, RecordPage
from ..task import check_name
from ..times import to_micros
from .handles import AtLeast

E = TypeVar("E", State, Outcome, ChainState)

MOST_LISTED = 10_000
MOST_DIGITS = 19  # of an id


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


def job_filter(where: JobsWhere, call: str = "jobs()") -> JobFilter:
    check_known(call, where, JobsWhere.__annotations__)
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


def bulk_filter(call: str, where: JobsWhere, everything: bool) -> JobFilter:
    """What an action on many jobs is about; that it is about all of them must be said."""
    filter = job_filter(where, call)
    chosen = any(value is not None for value in where.values())
    if everything and chosen:
        raise InvalidSetting(f"{call} takes filters or everything=True, not both")
    if not everything and not chosen:
        raise InvalidSetting(
            f"{call} without a filter would be about every job: say which by "
            f"{', '.join(JobsWhere.__annotations__)}, or everything=True"
        )
    return filter


def known(id: int) -> int:
    """A number that a job or chain can have; any other belongs to none."""
    if isinstance(id, bool) or not isinstance(id, int):
        raise InvalidSetting(f"an id is a whole number, not {id!r}")
    if abs(id) >= 2**63:
        raise NotFound("there is no such job or chain: no id is so large")
    return id


def named(queue: str) -> str:
    check_name(queue, "queue")
    return queue


def _text(where: JobsWhere | ChainsWhere, name: str) -> str | None:
    value = where.get(name)
    check_name(value, name)
    return cast(str | None, value)


def chain_filter(where: ChainsWhere) -> ChainFilter:
    check_known("chains()", where, ChainsWhere.__annotations__)
    return ChainFilter(
        state=_word(where.get("state"), ChainState),
        task=_text(where, "task"),
        key=_text(where, "key"),
        label=_text(where, "label"),
        since=_micros(where.get("since"), "since"),
        until=_micros(where.get("until"), "until"),
    )


def check_limit(limit: int) -> None:
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise InvalidSetting(f"limit is a whole number, not {limit!r}")
    if not 1 <= limit <= MOST_LISTED:
        raise InvalidSetting(f"limit is from 1 to {MOST_LISTED}")


def position(cursor: str | None) -> int | None:
    if cursor is None:
        return None
    if (
        not isinstance(cursor, str)
        or not (cursor.isascii() and cursor.isdigit() and len(cursor) <= MOST_DIGITS)
        or int(cursor) >= 2**63
    ):
        raise InvalidSetting("cursor= is the cursor of a page, as that page gave it")
    return int(cursor)


def cursor_of(found: RecordPage[Any]) -> str | None:
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
    return to_micros(value)


def counted(
    found: dict[str, dict[State, tuple[int, bool]]],
) -> dict[str, dict[str, int]]:
    """Counts by plain words, without what there is none of."""
    return {
        queue: there
        for queue, states in sorted(found.items())
        if (
            there := {
                str(state): AtLeast(number) if more else number
                for state, (number, more) in states.items()
                if number
            }
        )
    }
