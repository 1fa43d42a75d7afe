"""What must not be shown: the password of an address, and values that are marked as secret."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Any

HIDDEN = "***"
_FILE = "sqlite:///"  # has no password, and a path may look as if it had one
_NO_PORT = re.compile(r"([^/?#:\[\]]*:)(?!\d*(?:[/?#,]|$))[^/?#]*")  # the host was forgotten
_KEYWORD = r"(?i)((?:ssl)?password\s*=\s*)"
_IN_URL = re.compile(_KEYWORD + r"[^&\s]*")
_IN_WORDS = re.compile(_KEYWORD + r"(?:'(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])*)", re.DOTALL)


class Secret:
    """The mark of a value that is shown nowhere: `password: Annotated[str, Secret]`. It is stored
    as it is, and the handler gets it as it is."""


def hidden(value: Any, names: Collection[str], patterns: Collection[str]) -> Any:
    """A JSON value with everything hidden whose name is one of these, or matches such a pattern."""
    if isinstance(value, dict):
        return {
            key: HIDDEN if _is_hidden(key, names, patterns) else hidden(inner, names, patterns)
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [hidden(inner, names, patterns) for inner in value]
    return value


def _is_hidden(key: str, names: Collection[str], patterns: Collection[str]) -> bool:
    plain = key.lstrip("*").lower()
    return key.lstrip("*") in names or any(fnmatchcase(plain, each) for each in patterns)


def masked(address: str) -> str:
    """A URL or a connection string without its password.

    Errs towards hiding: an address that is refused may be malformed, so whatever could be part of a
    password counts as one, up to the last @.
    """
    if address.startswith(_FILE):
        return _IN_URL.sub(rf"\1{HIDDEN}", address)
    scheme, slashes, rest = address.partition("://")
    if not slashes:
        scheme, rest = "", address
    person, at, place = rest.rpartition("@")
    name, colon, _ = person.partition(":")
    if at and colon:
        rest = f"{name}:{HIDDEN}@{place}"
    elif slashes and not at:
        rest = _NO_PORT.sub(rf"\1{HIDDEN}", rest, count=1) if _NO_PORT.match(rest) else rest
    words = _IN_URL if slashes else _IN_WORDS
    return words.sub(rf"\1{HIDDEN}", f"{scheme}{slashes}{rest}")
