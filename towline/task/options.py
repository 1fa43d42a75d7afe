"""How a call differs from its task's defaults: the options of `using(...)`, checked when made."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

from msgspec import Struct

from ..errors import InvalidSetting
from ..model import Policy
from ..naming import check_limits, check_name, check_priority
from ..times import Seconds, can_be_shown, micros

if TYPE_CHECKING:
    from ..app.handles import Chain, Job
    from . import Call

Blocker: TypeAlias = "Job[Any] | Chain | Call[Any] | int"
Scope = Literal["open", "any"]
OnConflict = Literal["return", "raise", "replace"]
OnBlockerFailure = Literal["fail", "wait", "run"]

_TRACE = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
POLICIES = {"fail": Policy.FAIL, "wait": Policy.WAIT, "run": Policy.RUN}


class Using(TypedDict, total=False):
    """The options of `using(...)`."""

    delay: Seconds | None
    at: datetime | None
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
    on: object


class Options(Struct, frozen=True):
    """How a call differs from its task's defaults; checked when made."""

    delay: Seconds | None = None
    at: datetime | None = None
    priority: int | None = None
    queue: str | None = None
    label: str | None = None
    key: str | None = None
    scope: Scope = "open"
    window: Seconds | None = None
    on_conflict: OnConflict = "return"
    after: Sequence[Blocker] | Mapping[str, Blocker] = ()
    on_blocker_failure: OnBlockerFailure = "fail"
    max_attempts: int | None = None
    timeout: Seconds | None = None
    trace: str | None = None
    on: object = None

    def __post_init__(self) -> None:
        if self.delay is not None and self.at is not None:
            raise InvalidSetting("say delay= or at=, not both")
        if self.delay is not None and micros(self.delay, "delay") < 0:
            raise InvalidSetting("delay= cannot be negative")
        if self.at is not None and (
            not isinstance(self.at, datetime) or self.at.utcoffset() is None
        ):
            raise InvalidSetting(
                "at= is a datetime with a time zone, such as datetime.now(UTC) + timedelta(hours=1)"
            )
        if self.at is not None and not can_be_shown(self.at):
            raise InvalidSetting("at= is beyond what a calendar can show in every time zone")
        if self.scope not in ("open", "any"):
            raise InvalidSetting(f'scope is "open" or "any", not {self.scope!r}')
        if self.window is not None and (self.scope != "any" or micros(self.window, "window") <= 0):
            raise InvalidSetting('window= is a positive duration and goes with scope="any"')
        if self.on_conflict not in ("return", "raise", "replace"):
            raise InvalidSetting(
                f'on_conflict is "return", "raise" or "replace", not {self.on_conflict!r}'
            )
        if self.on_blocker_failure not in POLICIES:
            raise InvalidSetting(
                f'on_blocker_failure is "fail", "wait" or "run", not {self.on_blocker_failure!r}'
            )
        if self.key is None and (self.scope, self.on_conflict) != ("open", "return"):
            raise InvalidSetting("scope=, window= and on_conflict= need a key=")
        for name in ("queue", "label", "key"):
            check_name(getattr(self, name), name)
        check_priority(self.priority)
        check_limits(self.max_attempts, self.timeout)
        if self.trace is not None and not _TRACE.fullmatch(self.trace):
            raise InvalidSetting(f"trace= is a W3C traceparent, not {self.trace!r}")
