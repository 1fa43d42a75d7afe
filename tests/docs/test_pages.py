"""Every page: its blocks run or say why not, its links lead somewhere, its place is known."""

from __future__ import annotations

import configparser
import json
import re
import tomllib
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml
from markdown.extensions.toc import slugify, unique

from tests.docs import commands, pages, site
from tests.docs.blocks import PARSED, PROSE, ROOT, RUN, blocks_of, program_of, start
from tests.docs.relink import mend

# Blocks that are neither run nor parsed; each says why in the line before it.
NOT_RUN = 0
# Commands that are not run; commands.NOT_RUN says why each is not.
COMMANDS_NOT_RUN = 9

FENCE = re.compile(r"^ *(```|~~~).*$", re.MULTILINE)
LINK = re.compile(r"(?<!\\)\]\(<?([^)>\s]+)>?\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)
EVERY = [ROOT / "README.md", ROOT / "CHANGELOG.md", *pages.pages()]
LINKED = [*EVERY, ROOT / "ARCHITECTURE.md", *(ROOT / "design").glob("*.md")]


@pytest.mark.parametrize("section", pages.sections())
def test_U1_the_pages_of_a_folder_run(section: str, tmp_path: Path) -> None:
    folders = []
    for number, page in enumerate(pages.sections()[section]):
        folder = tmp_path / f"{number}-{page.stem}"
        folder.mkdir()
        program = program_of(page, pages.ON_PAPER.get(pages.name_of(page)))
        (folder / "page.py").write_text(program, "utf-8")
        folders.append(str(folder))
    start(["-m", "tests.docs.pages", *folders], ROOT)


def test_U1_every_block_is_of_a_kind_that_is_run_parsed_or_prose() -> None:
    known = RUN | PARSED | PROSE
    for page in EVERY:
        blocks = blocks_of(page)
        strange = [block.language for block in blocks if block.language not in known]
        assert strange == [], f"{page.name}: nobody runs {strange}"
        fences = len(FENCE.findall(page.read_text("utf-8")))
        assert fences == 2 * len(blocks), f"{page.name}: a fence that is no block of its own"


def test_U1_settings_files_are_what_they_say() -> None:
    for page in EVERY:
        for language, text, excuse in blocks_of(page):
            if excuse or language not in PARSED:
                continue
            match language:
                case "toml":
                    tomllib.loads(text)
                case "yaml":
                    assert list(yaml.safe_load_all(text))
                case "json":
                    json.loads(text)
                case "ini":
                    configparser.ConfigParser(strict=False, interpolation=None).read_string(text)


def test_U1_what_is_not_run_says_why_and_is_counted() -> None:
    excused, left = [], []
    for page in EVERY:
        for language, text, excuse in blocks_of(page):
            if excuse:
                excused.append(f"{page.name}: {excuse}")
            elif language == "console":
                left += [each for each, _ in commands.each(text) if not commands.is_run(each)]
    assert len(excused) == NOT_RUN, "\n".join(excused)
    assert len(left) == COMMANDS_NOT_RUN, "\n".join(left)
    assert set(map(commands.bare, left)) == set(commands.NOT_RUN), "a reason for no command"


def test_U1_every_page_with_blocks_that_run_is_run() -> None:
    """Of a guide that leads here only the Python is: sides.py runs it."""
    here = {page for section in pages.sections().values() for page in section}
    for page in EVERY:
        name = pages.name_of(page) if pages.DOCS in page.parents else page.name
        if page in here or name in pages.ELSEWHERE or name.startswith("tutorial/"):
            continue
        kinds = {block.language for block in blocks_of(page) if not block.excuse}
        known = {"README.md": RUN}.get(
            name, {"python"} if name.startswith("guides/move/") else set()
        )
        assert kinds & RUN <= known, f"{name}: nobody runs its {kinds & RUN - known}"


def test_U1_a_page_that_is_run_elsewhere_is_run_there() -> None:
    for name, test in pages.ELSEWHERE.items():
        page = pages.DOCS / name
        assert pages.runnable(page), name
        assert page.name in (Path(__file__).parent / test).read_text("utf-8"), name


def test_every_page_has_its_place_in_the_navigation() -> None:
    placed = [path for _, _, path in site.navigation()]
    assert sorted(placed) == sorted({pages.name_of(page) for page in pages.pages()})


def test_every_link_leads_somewhere() -> None:
    dead = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in LINKED
        for target in LINK.findall(_prose(page))
        if not _leads_somewhere(page, target)
    ]
    assert dead == []


def test_links_are_mended_when_a_page_has_moved(tmp_path: Path) -> None:
    moved = tmp_path / "guides" / "worker.md"
    page = tmp_path / "index.md"
    page.write_text("[it](worker.md#stopping), [itself](index.md), [far](https://a.b/c.md)\n")
    assert mend(page, {"worker.md": [moved]}) == []
    assert page.read_text().startswith(
        "[it](guides/worker.md#stopping), [itself](index.md), [far](h"
    )


def _leads_somewhere(page: Path, target: str) -> bool:
    """A page of the site may only lead to what is on the site."""
    path, _, anchor = unquote(target).partition("#")
    if re.match(r"[a-z]+:", path):
        return True
    to = (page.parent / path).resolve() if path else page
    on_the_site = pages.DOCS in to.parents or pages.DOCS not in page.parents
    return to.exists() and on_the_site and (not anchor or anchor in _anchors(to))


def _prose(page: Path) -> str:
    """Without blocks and inline code, where brackets mean something else."""
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", text)


def _anchors(page: Path) -> set[str]:
    text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    found: set[str] = set()
    for title in HEADING.findall(text):
        unique(slugify(re.sub(r"[`*]", "", title), "-"), found)
    return found
