"""The settings of a worker, checked once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, Unpack

from msgspec import Struct

from ..errors import InvalidSetting
from ..naming import EVERY
from ..task import check_name
from ..times import MICRO, Seconds, micros

LEAST_LEASE = 1.0  # seconds
# Seconds that a worker's pump waits for another writer: timeouts of handlers and renewals must not
# wait with it.
LOCK_WAIT = 1.0


class WorkerSettings(TypedDict, total=False):
    """What `app.worker(...)` takes."""

    queues: Sequence[str] | Mapping[str, int] | None
    concurrency: int
    lease: Seconds
    grace: Seconds
    prefetch: int | None
    drain: bool
    max_jobs: int | None
    name: str | None
    max_tasks_per_child: int | None
    memory_limit: int | None
    error_text: bool
    health: str | None


class Share(Struct, frozen=True):
    """Queues of equal rank, as words, and how many attempts of theirs may run at a time."""

    queues: tuple[str, ...]
    slots: int | None = None


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of one worker, with the times in seconds."""

    name: str
    queues: tuple[str, ...]  # as words: "*" is every queue, "-slow" all but that
    shares: tuple[Share, ...]  # the same in order of preference; none if all are equal
    concurrency: int
    lease: float
    grace: float
    prefetch: int | None
    drain: bool
    max_jobs: int | None
    max_tasks_per_child: int | None
    memory_limit: int | None
    error_text: bool
    health: str | None  # HOST:PORT


def check_settings(queues_of_tasks: Iterable[str], **given: Unpack[WorkerSettings]) -> Settings:
    """The settings, or InvalidSetting for the first that makes no sense."""
    queues, name = given.get("queues"), given.get("name")
    slots = queues if isinstance(queues, Mapping) else {}
    check_slots(slots)
    concurrency = given.get("concurrency", sum(slots.values()) or 8)
    lease, grace = given.get("lease", 30.0), given.get("grace", 30.0)
    prefetch, memory_limit = given.get("prefetch"), given.get("memory_limit")
    max_jobs, max_tasks_per_child = given.get("max_jobs"), given.get("max_tasks_per_child")
    if isinstance(queues, str) and (queues == EVERY or queues.startswith("-")):
        queues = [queues]
    if isinstance(queues, str) or (queues is not None and not queues):
        raise InvalidSetting(
            f"queues= is a list of names, such as ['default', 'mail'], not {queues!r}"
        )
    check_concurrency(concurrency)
    if micros(lease, "lease") < LEAST_LEASE * MICRO:
        raise InvalidSetting(
            f"a lease of {lease!r} s cannot be renewed in time: {LEAST_LEASE:g} s at least"
        )
    if micros(grace, "grace") < 0:
        raise InvalidSetting("grace cannot be negative")
    for what, number, least in (
        ("prefetch", prefetch, 0),
        ("max_jobs", max_jobs, 1),
        ("max_tasks_per_child", max_tasks_per_child, 1),
        ("memory_limit", memory_limit, 1),
    ):
        if number is not None and (not isinstance(number, int) or number < least):
            raise InvalidSetting(f"{what} is a whole number from {least}, or None")
    for queue in queues or ():
        if queue is None:
            raise InvalidSetting("queues= is a list of names, and None is no name")
        check_name(queue, "queue")
        if queue == "-":
            raise InvalidSetting('queue "-" is all but which? "-slow" is all but slow')
    check_name(name, "the name of a worker")
    words = tuple(dict.fromkeys(queues or sorted(queues_of_tasks))) or ("default",)
    if EVERY not in words and any(word.startswith("-") for word in words):
        words = (*words, EVERY)
    return Settings(
        name=name or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}",
        queues=words,
        shares=shares_of(words, slots) if queues else (),
        concurrency=concurrency,
        lease=micros(lease) / MICRO,
        grace=micros(grace) / MICRO,
        prefetch=prefetch,
        drain=given.get("drain", False),
        max_jobs=max_jobs,
        max_tasks_per_child=max_tasks_per_child,
        memory_limit=memory_limit,
        error_text=given.get("error_text", False),
        health=check_address(given.get("health")),
    )


def check_address(health: str | None) -> str | None:
    if health is not None:
        from .health import address_of

        address_of(health)
    return health


def check_concurrency(concurrency: int) -> None:
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidSetting(f"concurrency is a number from 1, not {concurrency!r}")


def check_slots(slots: Mapping[str, int]) -> None:
    for queue, number in slots.items():
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise InvalidSetting(f"slots of queue {queue!r} are a number from 1, not {number!r}")
        if isinstance(queue, str) and queue.startswith("-"):
            raise InvalidSetting(f"queue {queue!r} is left out: it has no slots")


def shares_of(words: Sequence[str], slots: Mapping[str, int]) -> tuple[Share, ...]:
    """What was listed, in its order; nothing where there is nothing to prefer."""
    left_out = [word for word in words if word.startswith("-")]
    listed = [word for word in words if word not in left_out]
    if len(listed) == 1 and not slots:
        return ()
    names = [word for word in listed if word != EVERY]
    others = (EVERY, *left_out, *(f"-{name}" for name in names))
    return tuple(
        Share(others if word == EVERY else (word,), slots.get(word))
        for word in listed
        if f"-{word}" not in left_out
    )
