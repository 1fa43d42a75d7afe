"""Stored text, made safe to show: it may hold anything.

What moves a cursor, changes a terminal or turns the direction of writing is escaped, and so is
what the output's encoding cannot say.
"""

from __future__ import annotations

import codecs
from unicodedata import category

_SPELT = {"\t": "    "}
JOINERS = "\u200c\u200d"  # parts of words and of emoji; they move nothing
MARKS = {"…": "~", "→": ">", "·": "-", "✓": "+", "✗": "x", "×": "x", "µ": "u"}  # ours, in ASCII


def plain(text: str, *, lines: bool = True) -> str:
    """With every control character escaped; line breaks too, unless there may be several lines."""
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(
        char if _is_harmless(char) or char in kept else _SPELT.get(char) or escaped(char)
        for char in text
    )


def _is_harmless(char: str) -> bool:
    return char.isprintable() or char in JOINERS or category(char) == "Zs"  # blanks of any width


def fit(text: str, encoding: str | None) -> str:
    """With what the encoding cannot say escaped; our own marks have a plain form."""
    encoding = encoding or "ascii"
    return text.encode(encoding, "towline").decode(encoding)


def _said_otherwise(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    unsaid = error.object[error.start : error.end]
    return "".join(MARKS.get(char) or escaped(char) for char in unsaid), error.end


codecs.register_error("towline", _said_otherwise)


def escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


TRACEBACK = "Traceback (most recent call last)"
_GROUP = "  + Exception Group "  # several exceptions: each line of their traceback is set in


def gist(error: str | None) -> str:
    """The line of an error that says what it is: below the last traceback, where the exception is
    named. What it says may go on for more lines."""
    lines = [line for line in (error or "").splitlines() if line.strip()]
    if not lines:
        return ""
    if lines[0].startswith(_GROUP):
        lines = [line.removeprefix(_GROUP).removeprefix("  | ") for line in lines]
    if not lines[0].startswith(TRACEBACK):
        return lines[0].strip()
    last = max(n for n, line in enumerate(lines) if line.startswith(TRACEBACK))
    named = (line for line in lines[last + 1 :] if not line[0].isspace())
    return next(named, lines[-1]).strip()


def shortened(text: str, most: int) -> str:
    """With a gap in its middle when it is longer than that."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]} … {text[-most // 2 :]}"


def counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
