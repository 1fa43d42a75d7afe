"""Parameters that the worker fills: the context, and outputs of blockers by their names."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..errors import BlockerError, InvalidTask
from .context import INJECTED, Failure
from .payload import members


def context_parameter(
    parameters: Sequence[inspect.Parameter],
    hints: Mapping[str, Any],
    wanted: type | None,
    task: str,
) -> str | None:
    """Give the name of the parameter that takes the context."""
    found = [p for p in parameters if wanted in members(hints.get(p.name, p.empty))]
    if not found:
        return None
    if len(found) > 1:
        raise InvalidTask(f"{task}: only one parameter can be handed in by the worker")
    _check_keyword(found[0], parameters, task)
    return found[0].name


def output_parameters(
    parameters: Sequence[inspect.Parameter],
    hints: Mapping[str, Any],
    context: str | None,
    task: str,
) -> dict[str, Any]:
    """Give those that take the output of the blocker of their name, each with its type."""
    found = [p for p in parameters if p.default is INJECTED and p.name != context]
    for parameter in found:
        _check_keyword(parameter, parameters, task)
    return {p.name: _of_success(hints.get(p.name, Any)) for p in found}


def _of_success(hint: Any) -> Any:
    """What an output is converted to: a Failure is handed in as it is."""
    kept = [part for part in members(hint) if part is not Failure]
    return typing.Union[tuple(kept)] if kept else Any  # noqa: UP007


def _check_keyword(
    parameter: inspect.Parameter, parameters: Sequence[inspect.Parameter], task: str
) -> None:
    stars = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    by_keyword = parameter.kind is parameter.KEYWORD_ONLY
    if not by_keyword and (stars or parameter.kind is not parameter.POSITIONAL_OR_KEYWORD):
        raise InvalidTask(f"{task}: parameter '{parameter.name}' must be passable by keyword")


def check_blockers(task: str, outputs: Iterable[str], after: object) -> None:
    """Raise BlockerError when a parameter is to take the output of a blocker that is not named."""
    for name in outputs:
        if not isinstance(after, Mapping) or name not in after:
            raise BlockerError(
                f"{task} takes the output of a blocker named {name}: "
                f"{task}.using(after={{'{name}': …}})"
            )
