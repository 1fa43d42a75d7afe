"""Who traces an app: told in the very thread where something happens, since what that thread does
next belongs to it. None of it raises; what takes long (ending a span) is left to the events'
thread, by `Events.call`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ..records import Ending, Enqueued, NewJob
    from ..worker.attempt import Attempt


class Enqueuing(Protocol):
    """A call to enqueue, as a block."""

    def __enter__(self) -> Enqueuing: ...
    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None: ...
    def stored(self, answers: Sequence[Enqueued]) -> None: ...


class AttemptSpan(Protocol):
    """The span of one attempt."""

    recording: bool
    """Whether somebody wants to know how it ends."""
    ended: float
    """When its handler ended, by the monotonic clock."""

    @property
    def text(self) -> str | None:
        """For the column `trace` of what the attempt creates, and for the process it runs in."""
        ...

    def enter(self) -> None:
        """Make it the current one here."""
        ...

    def leave(self) -> None:
        """Go back to what was current before, in the same context."""
        ...

    def around(self) -> Any:
        """A context of OpenTelemetry in which it is the current one, if it is one at all."""
        ...

    def over(self, at: int, outcome: str, accepted: bool | None, error_type: str | None) -> None:
        """It is over, since that time in nanoseconds since 1970."""
        ...


class Tracing(Protocol):
    """What an app, its workers and their processes call."""

    def enqueuing(self, jobs: Sequence[NewJob]) -> Enqueuing:
        """These are about to be stored: as created by what is current here."""
        ...

    def here(self) -> str | None:
        """What is current here, for the column `trace` of what it creates."""
        ...

    def continues(self, job: NewJob, span: AttemptSpan | None = None) -> None:
        """This continues a chain, from outside or at the end of an attempt."""
        ...

    def started(self, attempt: Attempt) -> AttemptSpan | None:
        """An attempt begins."""
        ...

    def joined(self, text: str | None) -> AttemptSpan:
        """The span of an attempt that another process has."""
        ...

    def lost(self, ending: Ending, worker: str) -> None:
        """An attempt was swept, whose worker can tell nothing any more."""
        ...

    def flush(self) -> None:
        """This process ends: send what waits."""
        ...
