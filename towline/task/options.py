"""How a call differs from its task's defaults: the options of `using(...)`, checked when made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict, get_args

from msgspec import Struct

from ..errors import InvalidSetting
from ..model import Policy
from ..naming import check_limits, check_name, check_priority, check_queue
from ..times import Seconds, check_moment, micros
from .trace import TRACEPARENT

if TYPE_CHECKING:
    from ..app.handles import Chain, Job
    from . import Call

Blocker: TypeAlias = "Job[Any] | Chain | Call[Any] | int"
Scope = Literal["open", "any"]
OnConflict = Literal["return", "raise", "replace", "after", "latest"]
OnBlockerFailure = Literal["fail", "wait", "run"]

REPLACING = ("replace", "latest")  # what a call may do to the job that has its key
REPLACED = ("label", "queue", "priority", "max_attempts", "timeout", "trace", "lane", "weight")
POLICIES = {None: Policy.FAIL, "fail": Policy.FAIL, "wait": Policy.WAIT, "run": Policy.RUN}
MOST_WEIGHT = 1_000_000


def check_lane(lane: object, what: str = "lane") -> str | None:
    """The name of a lane as it is stored: text, or a whole number."""
    if lane is None:
        return None
    if isinstance(lane, bool) or not isinstance(lane, str | int):
        raise InvalidSetting(f"{what} is text or a whole number, not {type(lane).__name__}")
    text = str(lane)
    if text == "*":
        raise InvalidSetting(f'{what} "*" stands for each lane and cannot be the name of one')
    if not text:
        raise InvalidSetting(f'{what} "" is no name: leave it out for a job outside of lanes')
    return check_name(text, what)


def check_weight(weight: object) -> None:
    if weight is not None and (
        isinstance(weight, bool) or not isinstance(weight, int) or not 1 <= weight <= MOST_WEIGHT
    ):
        raise InvalidSetting(f"weight is a whole number from 1 to {MOST_WEIGHT}, not {weight!r}")


class Using(TypedDict, total=False):
    """The options of `using(...)`."""

    delay: Seconds | None
    at: datetime | None
    expires: Seconds | datetime | None
    priority: int | None
    queue: str | None
    label: str | None
    key: str | None
    scope: Scope
    window: Seconds | None
    on_conflict: OnConflict
    after: Sequence[Blocker] | Mapping[str, Blocker]
    on_blocker_failure: OnBlockerFailure
    max_attempts: int | None
    timeout: Seconds | None
    trace: str | None
    lane: str | int | None
    weight: int | None
    on: object


class Options(Struct, frozen=True):
    """How a call differs from its task's defaults; checked when made."""

    delay: Seconds | None = None
    at: datetime | None = None
    expires: Seconds | datetime | None = None
    priority: int | None = None
    queue: str | None = None
    label: str | None = None
    key: str | None = None
    scope: Scope = "open"
    window: Seconds | None = None
    on_conflict: OnConflict = "return"
    after: Sequence[Blocker] | Mapping[str, Blocker] | None = None
    on_blocker_failure: OnBlockerFailure | None = None
    max_attempts: int | None = None
    timeout: Seconds | None = None
    trace: str | None = None
    lane: str | int | None = None
    weight: int | None = None
    on: object = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.at is not None:
            raise InvalidSetting("say delay= or at=, not both")
        if self.delay is not None and micros(self.delay, "delay") < 0:
            raise InvalidSetting("delay= cannot be negative")
        if self.at is not None:
            check_moment(self.at, "at=")
        if self.expires is not None:
            self._check_expiry(self.expires)
        if self.scope not in ("open", "any"):
            raise InvalidSetting(f'scope is "open" or "any", not {self.scope!r}')
        if self.window is not None and (self.scope != "any" or micros(self.window, "window") <= 0):
            raise InvalidSetting('window= is a positive duration and goes with scope="any"')
        if self.on_conflict not in get_args(OnConflict):
            raise InvalidSetting(
                'on_conflict is "return", "raise", "replace", "after" or "latest", not '
                f"{self.on_conflict!r}"
            )
        if self.on_blocker_failure not in POLICIES:
            raise InvalidSetting(
                f'on_blocker_failure is "fail", "wait" or "run", not {self.on_blocker_failure!r}'
            )
        if self.key is None and (self.scope, self.on_conflict) != ("open", "return"):
            raise InvalidSetting("scope=, window= and on_conflict= need a key=")
        self._check_line()
        check_queue(self.queue)
        for name in ("label", "key"):
            check_name(getattr(self, name), name)
        check_priority(self.priority)
        check_limits(self.max_attempts, self.timeout)
        check_lane(self.lane)
        check_weight(self.weight)
        if self.trace is not None and not (
            isinstance(self.trace, str) and TRACEPARENT.fullmatch(self.trace)
        ):
            raise InvalidSetting(f"trace= is a W3C traceparent, not {self.trace!r}")

    def _check_line(self) -> None:
        how = self.on_conflict
        if how in ("after", "latest") and self.scope == "any":
            raise InvalidSetting(f'on_conflict="{how}" is about open chains: no scope="any"')
        if how == "after" and POLICIES[self.on_blocker_failure] is Policy.FAIL:
            raise InvalidSetting(
                'on_conflict="after" needs on_blocker_failure="run", to go on when one before it '
                'fails, or "wait", to stop until that one is retried'
            )
        if how == "latest" and self.after:
            raise InvalidSetting(
                'on_conflict="latest" waits for what runs under its key, and takes no after='
            )

    def given(self, lane: str | None = None) -> Sequence[str]:
        """What is said here of a job that a call replaces, beside its arguments and its time. Its
        lane, too, where one of them names it (`lane`)."""
        said = [name for name in REPLACED if getattr(self, name) is not None]
        if lane is not None and self.lane is None:
            said.append("lane")
        if self.after is not None:
            said.append("blockers")
        if self.on_blocker_failure is not None:
            said.append("policy")
        return [*said, "expires_at"] if self.expires is not None else said

    def _check_expiry(self, expires: Seconds | datetime) -> None:
        never = False
        if isinstance(expires, datetime):
            check_moment(expires, "expires=")
            never = self.at is not None and expires <= self.at
        else:
            length = micros(expires, "expires")
            if length <= 0:
                raise InvalidSetting("expires= is a positive duration, or a datetime")
            never = self.delay is not None and length <= micros(self.delay)
        if never:
            raise InvalidSetting("this job would never start: expires= is not later than its time")
