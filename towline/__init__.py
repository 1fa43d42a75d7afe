"""Durable background work for Python that lives in the application's own database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .version import VERSION

if TYPE_CHECKING:
    from .app import Towline as Towline
    from .app.handles import Chain as Chain
    from .app.handles import Job as Job
    from .cron import Cron as Cron
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
    from .model import ChainState as ChainState
    from .model import Outcome as Outcome
    from .model import State as State
    from .secret import Secret as Secret
    from .task import Call as Call
    from .task import Next as Next
    from .task import Task as Task
    from .task.context import INJECTED as INJECTED
    from .task.context import Context as Context
    from .task.context import Failure as Failure
    from .task.context import context as context
    from .task.retry import Backoff as Backoff
    from .task.retry import Cancel as Cancel
    from .task.retry import Defaults as Defaults
    from .task.retry import Fail as Fail
    from .task.retry import Retry as Retry
    from .task.retry import Snooze as Snooze
    from .task.tasks import Tasks as Tasks

__version__ = VERSION

_HOMES = {
    "app": ["Towline"],
    "app.handles": ["Chain", "Job"],
    "cron": ["Cron"],
    "errors": [
        "BlockerError", "ChainCancelled", "ChainFailed", "DuplicateKey", "InvalidArguments",
        "InvalidState", "NotFound", "StoreUnavailable", "TowlineError", "WaitTimeout",
    ],
    "model": ["ChainState", "Outcome", "State"],
    "secret": ["Secret"],
    "task": ["Call", "Next", "Task"],
    "task.tasks": ["Tasks"],
    "task.context": ["INJECTED", "Context", "Failure", "context"],
    "task.retry": ["Backoff", "Cancel", "Defaults", "Fail", "Retry", "Snooze"],
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = list(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


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
