"""What must not be shown: the password of an address, and values that are marked as secret, also
where a text repeats them."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import Any
from urllib.parse import quote, quote_plus

HIDDEN = "***"
SHORTEST = 4  # characters of a secret that is looked for inside of other texts
MOST_WAYS = 5000  # of writing the secrets of a job that are looked for
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


def repeated(value: Any, shown: Any) -> Sequence[str]:
    """What is hidden of a value, in each way that a text may write it; the longest first, since one
    may be a part of another. Where they are too many to look for, so many as show that."""
    found: set[str] = set()
    for text in _differing(value, shown):
        found.update(way for way in _ways(text) if len(way) >= SHORTEST)
        if len(found) > MOST_WAYS:
            break
    return sorted(found, key=len, reverse=True)


def without(text: str, secrets: Sequence[str]) -> str:
    """A text with these hidden; all of it where they are too many to look for."""
    if len(secrets) > MOST_WAYS:
        return HIDDEN
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def _differing(value: Any, shown: Any) -> Iterator[str]:
    """The texts in a value that are not in what is shown of it."""
    if shown == HIDDEN and value != HIDDEN:
        yield from _leaves(value)
    elif isinstance(value, dict) and isinstance(shown, dict):
        for key, inner in value.items():
            yield from _differing(inner, shown.get(key))
    elif isinstance(value, list) and isinstance(shown, list):
        for inner, other in zip(value, shown, strict=False):
            yield from _differing(inner, other)


def _leaves(value: Any) -> Iterator[str]:
    """Texts and numbers; a flag or nothing tells nothing, and its word is in many texts."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _leaves(inner)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield str(value)


def _ways(text: str) -> Iterator[str]:
    """How a text is written by itself, and its lines, which a traceback may set in; in a URL; in
    Python and in JSON, and in one of them what stands in one of them."""
    yield text
    yield from _as_bytes(text)
    if text.isascii() and text.isalnum():
        return
    yield from map(str.strip, text.splitlines())
    for safe in ("", "/"):
        yield quote(text, safe, errors="replace")
        yield quote_plus(text, safe, errors="replace")
    for once in _quoted(text):
        yield once
        yield from _quoted(once)


def _as_bytes(text: str) -> Iterator[str]:
    """Bytes, which are stored as base64: how Python writes them, as digits, and what they say."""
    from base64 import b64decode  # not at the start of every process

    try:
        raw = b64decode(text, validate=True)
    except ValueError:
        return
    yield raw.hex()
    written = [repr(raw)[2:-1], repr(raw + b'"')[2:-2]]
    with suppress(UnicodeDecodeError):
        written.append(raw.decode())
    for once in written:
        yield once
        yield from _quoted(once)


def _quoted(text: str) -> Iterator[str]:
    """What stands between the quotes. Python escapes a single one only where there is a double one,
    which may be a part of what stands around."""
    for spell in (repr, ascii):
        yield spell(text)[1:-1]
        yield spell(f'{text}"')[1:-2]
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]


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
