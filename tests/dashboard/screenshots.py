"""Pictures of every page, light, dark and on a phone, into docs/images.

python -m tests.dashboard.screenshots [--out FOLDER] [--only job,chain]
"""

from __future__ import annotations

import argparse
import socket
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ViewportSize, sync_playwright

from tests.browser import SWITCHES, chromium
from tests.dashboard.busy_shop import BusyShop
from tests.dashboard.serving import Served
from tests.kit import ROOT
from towline import dashboard

WIDE: ViewportSize = {"width": 1280, "height": 860}
PHONE: ViewportSize = {"width": 390, "height": 780}
KINDS: tuple[tuple[str, Literal["light", "dark"], ViewportSize], ...] = (
    ("light", "light", WIDE), ("dark", "dark", WIDE), ("phone", "light", PHONE),
)  # fmt: skip


def roads(jobs: dict[str, int]) -> dict[str, str]:
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/jobs/{jobs['failed']}",
        "job-running": f"/jobs/{jobs['running']}",
        "job-secret": f"/jobs/{jobs['secret']}",
        "chain": f"/chains/{jobs['chain']}",
        "graph": f"/chains/{jobs['graph']}/graph",
        "queues": "/queues",
        "lanes": "/lanes?queue=suppliers",
        "group": f"/groups/{jobs['group']}",
        "schedules": "/schedules",
        "schedule": "/schedules?name=orders+for+Berlin",
        "tasks": "/tasks?range=6h",
        "task": "/tasks?range=6h&task=charge_card",
        "workers": "/workers",
        "doctor": "/doctor",
        "audit": "/audit",
        "many": "/many?action=delete&all=1&state=failed",
    }


# Where a picture was taken is of no interest to who sees it.
RENAME = """names => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) for (const [from, to] of names)
    texts.currentNode.data = texts.currentNode.data.replaceAll(from, to);
}"""


def take(
    browser: Browser, url: str, pages: dict[str, str], folder: Path, names: list[tuple[str, str]]
) -> None:
    for kind, scheme, size in KINDS:
        context = browser.new_context(base_url=url, viewport=size, color_scheme=scheme)
        page = context.new_page()
        for name, road in pages.items():
            page.goto(road)
            page.wait_for_timeout(300)  # charts are drawn, the stream is there
            page.evaluate(RENAME, names)
            path = folder / f"{name}-{kind}.png"
            page.screenshot(path=path)
            print(f"{path}  {path.stat().st_size // 1024} kB")
        context.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "images")
    parser.add_argument("--only", type=lambda text: text.split(","), help="names of pages")
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        shop = BusyShop(f"sqlite:///{folder}/shop.db")
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=[*SWITCHES, "--disable-lcd-text"]
        )
        with shop.at_work():
            server = Served(dashboard.asgi(shop.app))
            pages = roads(shop.jobs)
            wanted = {name: pages[name] for name in chosen.only or pages}
            try:
                module = BusyShop.__module__
                file = ROOT / f"{module.replace('.', '/')}.py"
                names = [(str(file), "/srv/shop/tasks.py"), (folder, "/srv/shop")]
                names.append((socket.gethostname(), "shop-1"))
                take(browser, server.url, wanted, chosen.out, [*names, (module, "shop.tasks")])
            finally:
                server.stop()
        browser.close()


if __name__ == "__main__":
    main()
