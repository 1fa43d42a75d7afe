"""What may be shown of an address: everything but its password."""

from __future__ import annotations

import re

HIDDEN = "***"
_FILE = "sqlite:///"  # has no password, and a path may look as if it had one
_NO_PORT = re.compile(r"([^/?#:\[\]]*:)(?!\d*(?:[/?#,]|$))[^/?#]*")  # the host was forgotten
_KEYWORD = r"(?i)((?:ssl)?password\s*=\s*)"
_IN_URL = re.compile(_KEYWORD + r"[^&\s]*")
_IN_WORDS = re.compile(_KEYWORD + r"(?:'(?:\\.|[^'\\])*'?|(?:\\.|[^\s\\])*)", re.DOTALL)


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
