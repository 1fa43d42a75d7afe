"""The guides that lead here from other queues: the peer's own package, then ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import servers
from tests.brokers import broker
from tests.docs.blocks import ROOT
from tests.docs.sides import GUIDES, printed, shown


@contextmanager
def nothing() -> Iterator[dict[str, str]]:
    yield {}


@contextmanager
def redis() -> Iterator[dict[str, str]]:
    with broker("redis") as server:
        yield {"redis://localhost:6379": server.url}


@contextmanager
def postgres() -> Iterator[dict[str, str]]:
    with servers.server(servers.servers()[-1]).database() as url:
        yield {"postgresql://localhost/shop": url}


SERVERS = {
    "celery": nothing,
    "django-database-backend": nothing,
    "dramatiq": nothing,
    "fastapi-background-tasks": nothing,
    "gigq": nothing,
    "huey": nothing,
    "procrastinate": postgres,
    "rq": redis,
}

# Names of the page on performance, where they differ.
SYSTEMS = {"graphile-worker, local queue": "graphile local", "oban-py": "oban"}


@pytest.mark.parametrize("name", SERVERS)
def test_U2_both_sides_print_the_same(name: str, tmp_path: Path) -> None:
    page = GUIDES / f"{name}.md"
    with SERVERS[name]() as names:
        parts = printed(page, tmp_path, names)
    assert parts["Before"] == parts["After"] == shown(page)


def test_every_guide_is_run() -> None:
    assert sorted(page.stem for page in GUIDES.glob("*.md")) == sorted(SERVERS)


def test_figures_of_others_are_those_that_were_measured() -> None:
    """A row of the comparison holds what the page on performance says of that system."""
    measured = (ROOT / "docs" / "explanation" / "performance.md").read_text("utf-8")
    text = (ROOT / "docs" / "explanation" / "compared.md").read_text("utf-8")
    rows = re.findall(r"^\| (\w[^|]*) \| ([\d,]+) \| ([\d,]+) \|$", text, re.MULTILINE)
    assert len(rows) == 13
    for name, *figures in rows:
        system = SYSTEMS.get(name, name.lower())
        lines = [line for line in measured.splitlines() if f"| usual | {system} |" in line]
        for figure in figures:
            assert any(f" | {figure} | " in line for line in lines), (name, figure)
