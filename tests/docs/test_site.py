"""The site builds with every warning an error, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.docs import site

# What a browser would fetch by itself.
FETCHED = re.compile(r"<(?:link|script|img|source|iframe)[^>]+(?:src|href)=\"?(https?:)?//")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("docs")
    shutil.copytree(site.DOCS, root / "docs")
    shutil.copy(site.CONFIGURATION, root)
    return site.build(root)


def test_U4_the_site_builds_strictly_and_fetches_nothing(built: Path) -> None:
    for _, _, path in site.navigation():
        text = (built / site.address(path) / "index.html").read_text("utf-8")
        assert not FETCHED.search(re.sub(r"<link rel=\"?canonical[^>]*>", "", text)), path


def test_old_addresses_lead_to_the_new_ones(built: Path) -> None:
    for old, new in site.MOVED.items():
        page = built / site.address(old) / "index.html"
        found = re.search(r'url=([^"]+)"', page.read_text("utf-8"))
        assert found
        assert (page.parent / found[1]).resolve() == (built / site.address(new)).resolve()
        assert (page.parent / found[1] / "index.html").exists()


def test_programs_that_read_find_every_page(built: Path) -> None:
    text = (built / "llms.txt").read_text("utf-8")
    whole = (built / "llms-full.txt").read_text("utf-8")
    for _, title, path in site.navigation():
        assert f"[{title}]({site.address(path) or './'})" in text
        assert f"<!-- {path} -->" in whole
