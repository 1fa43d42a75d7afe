"""Files of others are what their list says, with a licence each; nothing else is among them."""

from __future__ import annotations

import hashlib
import re

from towline.dashboard.site import STATIC

OWN = {"LICENSES.md", "mark.svg", "stream.js", "towline.css", "towline.js"}
LINE = re.compile(r"\| `(?P<file>[^`]+)` \|.*\| `(?P<hash>[0-9a-f]{64})` \|")


def test_vendored_files_are_those_that_are_listed() -> None:
    text = (STATIC / "LICENSES.md").read_text()
    listed = {found["file"]: found["hash"] for found in LINE.finditer(text)}
    there = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in STATIC.iterdir()
        if path.name not in OWN
    }
    assert there == listed
    assert text.count("```") == 2 * 3, "the text of each licence"


def test_all_of_it_is_small() -> None:
    fetched = [path for path in STATIC.iterdir() if path.suffix != ".md"]
    assert sum(path.stat().st_size for path in fetched) < 167_000
