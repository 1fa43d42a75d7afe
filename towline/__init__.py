"""Durable background work for Python that lives in the application's own database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .app import Towline as Towline
    from .current import INJECTED as INJECTED
    from .current import Blockers as Blockers
    from .current import Context as Context
    from .current import Failure as Failure
    from .current import context as context
    from .errors import BlockerError as BlockerError
    from .errors import ChainCancelled as ChainCancelled
    from .errors import ChainFailed as ChainFailed
    from .errors import DuplicateKey as DuplicateKey
    from .errors import InvalidArguments as InvalidArguments
    from .errors import InvalidState as InvalidState
    from .errors import NotFound as NotFound
    from .errors import StoreUnavailable as StoreUnavailable
    from .errors import TowlineError as TowlineError
    from .errors import WaitTimeout as WaitTimeout
    from .job import Chain as Chain
    from .job import Job as Job
    from .model import ChainState as ChainState
    from .model import Outcome as Outcome
    from .model import State as State
    from .retry import Backoff as Backoff
    from .retry import Cancel as Cancel
    from .retry import Fail as Fail
    from .retry import Retry as Retry
    from .retry import Snooze as Snooze
    from .task import Call as Call
    from .task import Next as Next
    from .task import Task as Task
    from .task import Tasks as Tasks

_HOME = {
    "Towline": "app",
    "INJECTED": "current", "Blockers": "current", "Context": "current", "Failure": "current",
    "context": "current",
    "BlockerError": "errors", "ChainCancelled": "errors", "ChainFailed": "errors",
    "DuplicateKey": "errors", "InvalidArguments": "errors", "InvalidState": "errors",
    "NotFound": "errors", "StoreUnavailable": "errors", "WaitTimeout": "errors",
    "TowlineError": "errors",
    "Chain": "job", "Job": "job",
    "ChainState": "model", "Outcome": "model", "State": "model",
    "Backoff": "retry", "Cancel": "retry", "Fail": "retry", "Retry": "retry", "Snooze": "retry",
    "Call": "task", "Next": "task", "Task": "task", "Tasks": "task",
}  # fmt: skip

__all__ = [
    "Backoff",
    "BlockerError",
    "Blockers",
    "Call",
    "Cancel",
    "Chain",
    "ChainCancelled",
    "ChainFailed",
    "ChainState",
    "Context",
    "DuplicateKey",
    "Fail",
    "Failure",
    "INJECTED",
    "InvalidArguments",
    "InvalidState",
    "Job",
    "Next",
    "NotFound",
    "Outcome",
    "Retry",
    "Snooze",
    "State",
    "StoreUnavailable",
    "Task",
    "Tasks",
    "WaitTimeout",
    "Towline",
    "TowlineError",
    "context",
]


def __getattr__(name: str) -> Any:
    # Names are fetched on first use, so that `import towline` stays cheap.
    if name not in _HOME:
        raise AttributeError(f"module 'towline' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"towline.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
