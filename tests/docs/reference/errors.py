"""reference/errors.md: every error, drawn as a tree and said in a sentence."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import towline
from towline import errors

HEAD = """# Errors

Everything that Towline raises is a `TowlineError`. The ten that programs meet most are in
`towline`, all of them in `towline.errors`. What the database refuses inside *your* transaction
(`on=`) is your driver's own error. [What to catch](../guides/write/results.md#what-to-catch).

```text
{tree}
```

| error | also | |
|---|---|---|
"""
FOOT = """
A `StoreError` says by `retry_safe` whether repeating the call is harmless: True for
`StoreUnavailable` and what is below it. After `CommitUnknown` look first, or enqueue with a
`key=` and `scope="any"`, which can be repeated as it is. Errors of your handlers are stored with
their attempt (`app.attempts(id)`), by class (`error_type`) and as text.
"""


def page() -> str:
    return _head() + "\n".join(_rows()) + "\n" + FOOT


def every() -> list[type[errors.TowlineError]]:
    return [
        each
        for each in vars(errors).values()
        if inspect.isclass(each) and issubclass(each, errors.TowlineError)
    ]


def _head() -> str:
    drawn = inspect.cleandoc(errors.__doc__ or "").partition("\n\n")[2]
    return HEAD.format(tree=drawn.rstrip())


def _rows() -> Iterator[str]:
    for each in every():
        also = [base.__name__ for base in each.__bases__ if not base.__module__.startswith("towl")]
        also = [name for name in also if name != "Exception"]
        text = " ".join(inspect.cleandoc(each.__doc__ or "").split())
        if "__init__" in vars(each):
            own = [name for name in inspect.signature(each).parameters if name != "text"]
            text += f" It has {', '.join(f'`{name}`' for name in own)}."
        where = " (`towline`)" if each.__name__ in towline.__all__ else ""
        bases = ", ".join(f"`{one}`" for one in also)
        yield f"| `{each.__name__}`{where} | {bases} | {text} |"
