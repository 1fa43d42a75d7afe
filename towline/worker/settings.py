"""The settings of a worker, checked once."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict, Unpack

from msgspec import Struct

from ..errors import InvalidSetting
from ..task import check_name
from ..times import MICRO, Seconds, micros

LEAST_LEASE = 1.0  # seconds
# Seconds that a worker's pump waits for another writer: timeouts of handlers and renewals must not
# wait with it.
LOCK_WAIT = 1.0


class WorkerSettings(TypedDict, total=False):
    """What `app.worker(...)` takes."""

    queues: Sequence[str] | None
    concurrency: int
    lease: Seconds
    grace: Seconds
    prefetch: int | None
    drain: bool
    name: str | None
    max_tasks_per_child: int | None
    memory_limit: int | None
    error_text: bool


class Settings(Struct, frozen=True, kw_only=True):
    """The settings of one worker, with the times in seconds."""

    name: str
    queues: tuple[str, ...]
    concurrency: int
    lease: float
    grace: float
    prefetch: int | None
    drain: bool
    max_tasks_per_child: int | None
    memory_limit: int | None
    error_text: bool


def check_settings(queues_of_tasks: Iterable[str], **given: Unpack[WorkerSettings]) -> Settings:
    """The settings, or InvalidSetting for the first that makes no sense."""
    queues, name = given.get("queues"), given.get("name")
    concurrency = given.get("concurrency", 8)
    lease, grace = given.get("lease", 30.0), given.get("grace", 30.0)
    prefetch, memory_limit = given.get("prefetch"), given.get("memory_limit")
    max_tasks_per_child = given.get("max_tasks_per_child")
    if isinstance(queues, str | Mapping) or (queues is not None and not queues):
        raise InvalidSetting(
            f"queues= is a list of names, such as ['default', 'mail'], not {queues!r}"
        )
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise InvalidSetting(f"concurrency is a number from 1, not {concurrency!r}")
    if micros(lease, "lease") < LEAST_LEASE * MICRO:
        raise InvalidSetting(
            f"a lease of {lease!r} s cannot be renewed in time: {LEAST_LEASE:g} s at least"
        )
    if micros(grace, "grace") < 0:
        raise InvalidSetting("grace cannot be negative")
    for what, number, least in (
        ("prefetch", prefetch, 0),
        ("max_tasks_per_child", max_tasks_per_child, 1),
        ("memory_limit", memory_limit, 1),
    ):
        if number is not None and (not isinstance(number, int) or number < least):
            raise InvalidSetting(f"{what} is a whole number from {least}, or None")
    for queue in queues or ():
        if queue is None:
            raise InvalidSetting("queues= is a list of names, and None is no name")
        check_name(queue, "queue")
    check_name(name, "the name of a worker")
    return Settings(
        name=name or f"{socket.gethostname()}-{os.getpid()}-{os.urandom(3).hex()}",
        queues=tuple(dict.fromkeys(queues or sorted(queues_of_tasks))) or ("default",),
        concurrency=concurrency,
        lease=micros(lease) / MICRO,
        grace=micros(grace) / MICRO,
        prefetch=prefetch,
        drain=given.get("drain", False),
        max_tasks_per_child=max_tasks_per_child,
        memory_limit=memory_limit,
        error_text=given.get("error_text", False),
    )
