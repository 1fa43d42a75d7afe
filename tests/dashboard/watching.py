"""A page in a browser, with what it asked for and what went wrong in it."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Browser, Page, Response

from tests.dashboard.serving import Served


class Watched:
    """A page, with what it asked for and what went wrong in it."""

    def __init__(self, browser: Browser, server: Served, **settings: Any) -> None:
        self.context = browser.new_context(base_url=server.url, **settings)
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page: Page = self.another()

    def another(self) -> Page:
        """One more page of the same browser, watched too."""
        page = self.context.new_page()
        page.on("console", lambda told: self.problems.append(told.text))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("response", self._answered)
        page.on("request", lambda request: self.asked.append(request.url))
        return page

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status} {response.url}")
