"""`python -m tests.docs.relink` mends links after pages were moved: one that leads nowhere leads to
the page of that name, wherever it lies now. What has no such page, or several, is named."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests.docs.blocks import ROOT

LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")


def mend(page: Path, places: dict[str, list[Path]]) -> list[str]:
    """Write the page anew where that is needed; returns the links that lead nowhere still."""
    dead: list[str] = []

    def mended(link: re.Match[str]) -> str:
        target = link[2]
        if re.match(r"[a-z]+:", target) or (page.parent / target).exists():
            return link[0]
        found = places.get(Path(target).name, [])
        if len(found) != 1:
            dead.append(f"{page.relative_to(ROOT)}: {target}")
            return link[0]
        return f"{link[1]}{os.path.relpath(found[0], page.parent)}{link[3]}"

    text = page.read_text("utf-8")
    new = LINK.sub(mended, text)
    if new != text:
        page.write_text(new, "utf-8")
    return dead


def main() -> None:
    places: dict[str, list[Path]] = {}
    for path in (ROOT / "docs").rglob("*"):
        places.setdefault(path.name, []).append(path)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "design").glob("*.md")]
    for page in pages:
        for line in mend(page, places):
            print(line)


if __name__ == "__main__":
    main()
