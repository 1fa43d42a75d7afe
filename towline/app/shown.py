"""What is shown of what went into a job and came out of it: its secrets are hidden, also where an
error repeats them."""

from __future__ import annotations

import json
import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

from ..model import State
from ..secret import HIDDEN, hidden, repeated, without
from .handles import Chain, Job
from .schedules import Schedule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .reading import Reading

DEEPEST = 100  # lists and objects in one another that are shown as such


def shown_arguments(app: Reading, job: Job[Any]) -> Any:
    """The arguments, with their secrets hidden."""
    return _shown_arguments(app, job.task, job.arguments)


def shown_template(app: Reading, schedule: Schedule) -> Any:
    """The arguments of a schedule's jobs, with their secrets hidden."""
    return _shown_arguments(app, schedule.task, schedule.arguments)


def _shown_arguments(app: Reading, name: str, arguments: str) -> Any:
    task = app.registry.get(name)
    names = task.signature.secrets.arguments if task is not None else ()
    return hidden(stored(arguments), names, app.settings.secret_names)


def shown_output(app: Reading, job: Job[Any]) -> Any:
    """The output, with its secrets hidden; None before it is there."""
    task = app.registry.get(job.task)
    value = stored(output_of(job))
    if task is None:
        return hidden(value, (), app.settings.secret_names)
    secrets = task.signature.secrets
    if secrets.whole_output and value is not None:
        return HIDDEN
    return hidden(value, secrets.output, app.settings.secret_names)


def arguments_text(app: Reading, job: Job[Any]) -> str:
    """The arguments as they are stored, with their secrets hidden."""
    return _text(job.arguments, shown_arguments(app, job))


def output_text(app: Reading, job: Job[Any]) -> str | None:
    """The output as it is stored, with its secrets hidden; None before it is there."""
    text = output_of(job)
    return None if text is None else _text(text, shown_output(app, job))


def _text(text: str, shown: Any) -> str:
    return text if shown == stored(text) else json.dumps(shown, ensure_ascii=False)


def output_of(job: Job[Any]) -> str | None:
    """The output as it is stored, whatever its task makes of it."""
    return job.record.last_output if job.state is State.COMPLETED else None


class Mask:
    """Hides in texts of a job what they repeat of its secrets: an error often quotes the value that
    it is about. Arguments and output are read when the first text comes."""

    def __init__(self, job: Job[Any]) -> None:
        self._job = job

    @overload
    def __call__(self, text: str) -> str: ...
    @overload
    def __call__(self, text: str | None) -> str | None: ...
    def __call__(self, text: str | None) -> str | None:
        return without(text, self._secrets) if text else text

    @cached_property
    def _secrets(self) -> Sequence[str]:
        job = self._job
        app = job._app
        return repeated(
            [stored(job.arguments), stored(output_of(job))],
            [shown_arguments(app, job), shown_output(app, job)],
        )


def chain_error(chain: Chain) -> str | None:
    """Why its last job failed. What of it is secret is known where that job is: not in a list."""
    return chain.error if chain.last is None else Mask(chain.last)(chain.error)


def stored(text: str | None) -> Any:
    """A stored value. Hands other than ours may have written it: what is no JSON, nested too
    deeply or a number that JSON does not have is given as its text."""
    if text is None:
        return None
    try:
        value = json.loads(text, parse_constant=str, parse_float=_number)
    except (ValueError, RecursionError):
        return text
    return value if _depth(value) <= DEEPEST else text


def _number(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _depth(value: Any) -> int:
    """How deep values lie in one another, up to one more than is shown."""
    depth, layer = 0, [value]
    while layer and depth <= DEEPEST:
        depth += 1
        inner = [
            v.values() if isinstance(v, dict) else v for v in layer if isinstance(v, dict | list)
        ]
        layer = [v for values in inner for v in values]
    return depth
