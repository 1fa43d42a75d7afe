"""Names that a public call is given and does not know: refused, with the nearest that it does."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from .errors import InvalidSetting


def check_known(call: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise InvalidSetting for the first name that `call` does not take."""
    names = list(known)
    for name in given:
        if name in names:
            continue
        near = get_close_matches(name, names, 1)
        hint = f" (did you mean {near[0]}=?)" if near else ""
        raise InvalidSetting(f"{call} does not know {name}={hint}. It takes {', '.join(names)}")
