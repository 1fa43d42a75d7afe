"""What an agent may do and see: said once by who starts the server, and never by the agent."""

from __future__ import annotations

from collections.abc import Iterable, Set
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, get_args

from msgspec import Struct

from ..errors import InvalidSetting

if TYPE_CHECKING:
    from ..app import Towline

Allow = Literal["enqueue", "retry", "cancel", "run", "pause"]
Show = Literal["payloads", "errors"]


class Rules(Struct, frozen=True):
    """`tasks`: the only ones whose jobs may be stored or changed; None: every task. `show`: texts
    of the database that are given out."""

    allow: frozenset[Allow] = frozenset()
    tasks: frozenset[str] | None = None
    show: frozenset[Show] = frozenset()

    def covers(self, task: str) -> bool:
        """Whether jobs of a task may be changed."""
        return self.tasks is None or task in self.tasks


class Caller(Struct, frozen=True):
    """Who asks, as the history has it, and what they may do; no more than the rules allow."""

    name: str
    may: Set[str]


def rules_of(
    app: Towline, allow: Iterable[str], tasks: Iterable[str] | None, show: Iterable[str]
) -> Rules:
    """The rules, checked: a word that is not known would silently allow nothing."""
    rules = Rules(
        _words("allow", allow, get_args(Allow)),
        None if tasks is None else frozenset(tasks),
        _words("show", show, get_args(Show)),
    )
    for task in sorted(rules.tasks or ()):
        if app.registry and task not in app.registry:
            near = get_close_matches(task, app.registry, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise InvalidSetting(f"the app has no task {task!r}{hint}")
    if "enqueue" in rules.allow and not app.registry:
        raise InvalidSetting("enqueue can only be allowed for an app whose tasks are known")
    return rules


def _words(name: str, given: Iterable[str], known: tuple[str, ...]) -> frozenset[Any]:
    words = frozenset([given] if isinstance(given, str) else given)
    for word in sorted(words - set(known)):
        raise InvalidSetting(f"{name}= takes {', '.join(known)}, not {word!r}")
    return words
