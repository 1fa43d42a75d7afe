"""X12: a secret is found in a text however that writes it."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest

from towline.secret import HIDDEN, MOST_WAYS, hidden, repeated, without

SECRETS = [
    "opensesame",
    "quote\"and'both",
    "back\\slash\ttab",
    "Zürich & Söhne 😀",
    "many\nlines of it",
    "it's",
    "a/b c?d=e%41",
    "\u202eturned\x1b[31m",
    "half \ud800 of a pair",
]


def told(text: str, value: Any) -> str:
    return without(text, repeated(value, hidden(value, ["it"], [])))


@pytest.mark.parametrize("secret", SECRETS)
def test_X12_in_every_way_of_writing_it(secret: str) -> None:
    ways = [
        secret, repr(secret), repr(f'{secret} "said"'), repr(json.dumps([secret, "x"])),
        json.dumps({"sent": json.dumps({"it": secret})}), str([str([secret, "'"])]),
        repr(secret), ascii(secret), str([secret]), json.dumps({"it": secret}),
        json.dumps(secret, ensure_ascii=False), str(KeyError(secret)),
        "https://x.example/?" + urlencode({"it": secret}, errors="replace"),
    ]  # fmt: skip
    for way in ways:
        shown = told(f"bad: {way}.", {"it": secret, "other": 1})
        assert HIDDEN in shown
        assert shown.startswith("bad: ")
        for part in secret.splitlines():
            assert part not in shown
    set_in = "".join(f"  | {line}\n" for line in secret.splitlines())
    assert all(line not in told(set_in, {"it": secret}) for line in secret.splitlines())


def test_X12_numbers_and_values_inside_of_others() -> None:
    value = {"it": {"number": 4111111111111111, "cvc": [90210.5]}, "order": 4711}
    error = "card 4111111111111111 (90210.5) of order 4711: {'number': 4111111111111111}"
    assert told(error, value) == "card *** (***) of order 4711: {'number': ***}"


def test_X12_one_that_is_part_of_another_leaves_nothing_of_it() -> None:
    assert told("longsecret, long", {"it": ["long", "longsecret"]}) == "***, ***"


def test_what_says_nothing_is_not_looked_for() -> None:
    error = "None of True is False: 12, abc and ''"
    assert told(error, {"it": [None, True, False, 12, "abc", "", [], {}]}) == error
    assert told("number of a card", {"it": {"number": "4111"}}) == "number of a card"
    assert told("opensesame", {"other": "opensesame"}) == "opensesame"


def test_X12_where_there_are_too_many_the_text_is_hidden() -> None:
    many = {"it": [str(number) for number in range(10_000, 10_001 + MOST_WAYS)]}
    assert told("anything", many) == HIDDEN


@pytest.mark.parametrize("raw", [b"opensesame", b'it\'s \x00\xff "both"', "Zürich".encode()])
def test_X12_bytes_which_are_stored_as_base64(raw: bytes) -> None:
    value = {"it": b64encode(raw).decode()}
    said = [str(raw), str([raw, b"x"]), raw.hex(), value["it"], json.dumps(repr(raw))]
    with suppress(UnicodeDecodeError):
        said.append(raw.decode())
    for way in said:
        shown = told(f"bad: {way}.", value)
        assert HIDDEN in shown
        assert all(word not in shown for word in ("sesame", "both", "rich", raw.hex(), value["it"]))


def test_X12_of_very_many_no_more_are_spelt_than_say_that_they_are_too_many() -> None:
    value = {"it": [str(number) for number in range(100_000, 200_000)]}
    found = repeated(value, hidden(value, ["it"], []))
    assert MOST_WAYS < len(found) < MOST_WAYS + 100
