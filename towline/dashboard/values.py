"""What went into a job and came out of it: each value with its type, and the call to copy.

Types are those of the task's signature where it is known here, else what JSON calls them. A copy
is a new call with the same arguments: secrets stay hidden in it, and the key is left out, since
with it the chain that has it would be given instead of a new one.
"""

from __future__ import annotations

import json
import keyword
import shlex
from typing import TYPE_CHECKING, Any

from ..secret import HIDDEN
from .page import Data

if TYPE_CHECKING:
    from ..app import Towline

RESULT = "return"


def typed(app: Towline, job: Data) -> Data:
    """The arguments by name and the output, as (name, type, value)."""
    task = app.registry.get(job["task"])
    types = {} if task is None else task.signature.types
    given = job["arguments"]
    named = given if isinstance(given, dict) else {"": given}

    def row(name: str, value: Any, known: str) -> Data:
        return {"name": name, "type": types.get(known) or json_type(value), "value": value}

    return {
        "arguments": [row(name, value, name) for name, value in named.items()],
        "output": row("", job["output"], RESULT),
    }


def json_type(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return f"array of {len(value)}"
        case _:
            return "object"


def copies(app: Towline, job: Data) -> Data:
    """The call as Python, as a command and as JSON; what cannot be said in one is left out."""
    arguments = job["arguments"]
    if not isinstance(arguments, dict):
        return {}
    task = app.registry.get(job["task"])
    usual = {"queue": "default", "priority": 0}
    if task is not None:
        usual = {"queue": task.queue, "priority": task.priority}
    options = {name: job[name] for name in usual if job[name] != usual[name]}
    args: tuple[Any, ...] = ()
    kwargs = {name: _opened(name, value) for name, value in arguments.items()}
    if task is not None:
        args, kwargs = task.signature.placed(kwargs)
    function = job["task"].rpartition(".")[2] if task is None else task.function.__name__
    made = {
        "python": _python(function, args, kwargs, options),
        "command": _command(job["task"], args, kwargs, options),
        "json": json.dumps({"task": job["task"], "arguments": arguments, **options}, indent=2),
    }
    return {name: text for name, text in made.items() if text}


def _opened(name: str, value: Any) -> Any:
    """What `*rest` and `**options` took, when it is hidden as a whole: still a list, an object."""
    if value != HIDDEN or not name.startswith("*"):
        return value
    return {} if name.startswith("**") else [HIDDEN]


def _python(
    function: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
) -> str | None:
    """None where a name is none that Python can say."""
    names = (function, *kwargs)
    if not all(name.isidentifier() and not keyword.iskeyword(name) for name in names):
        return None
    using = f".using({', '.join(_keywords(options))})" if options else ""
    return f"{function}{using}.enqueue({', '.join([*map(ascii, args), *_keywords(kwargs)])})"


def _keywords(given: dict[str, Any]) -> list[str]:
    return [f"{name}={value!a}" for name, value in given.items()]


def _command(
    task: str, args: tuple[Any, ...], kwargs: dict[str, Any], options: dict[str, Any]
) -> str:
    words = ["towline", "enqueue", "MODULE:APP", task]
    if args:
        words += ["--args", json.dumps(args)]
        words += [word for name in kwargs for word in ("-p", f"{name}={json.dumps(kwargs[name])}")]
    elif kwargs:
        words += ["--args", json.dumps(kwargs)]
    words += [word for name in options for word in (f"--{name}", str(options[name]))]
    return shlex.join(words)
