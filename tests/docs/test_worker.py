"""guides/run/worker.md runs, and its lifespan starts and stops a worker."""

from __future__ import annotations

from pathlib import Path

from tests.docs.blocks import ROOT, program_of, run

PAGE = ROOT / "docs" / "guides" / "run" / "worker.md"
LIFESPAN = """
import asyncio


async def served():
    async with lifespan(None):
        assert await (await add.aenqueue(5, 6)).aresult(timeout=30) == 11


asyncio.run(served())
"""


def test_W1_W2_the_page_on_workers_runs(tmp_path: Path) -> None:
    run(program_of(PAGE) + LIFESPAN, tmp_path)
