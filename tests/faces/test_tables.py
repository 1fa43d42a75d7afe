"""Jobs, chains and pages as a notebook shows them."""

from __future__ import annotations

from html.parser import HTMLParser

from towline import Towline
from towline.app.answers import Page
from towline.testing import drain

EVIL = '<script>alert("x")</script>\x1b[2J'


class Read(HTMLParser):
    """The cells of a table, row by row, and its tags."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_I13_jobs_and_chains_are_tables_without_what_may_be_secret(app: Towline) -> None:
    @app.task(max_attempts=1)
    def break_down(password: str) -> None:
        raise ValueError(f"{EVIL} {password}")

    job = break_down.using(label="<b>bold</b>").enqueue("swordfish")
    drain(app, raising=False)
    page, chain = app.jobs(), app.chain(job.id)
    for shown in (page[0], job.refresh(), chain, page):
        text = shown._repr_html_()
        read = Read(text)
        assert read.tags <= {"table", "tr", "th", "td"}
        heads, row = read.rows
        cells = dict(zip(heads, row, strict=True))
        assert (cells["task"], cells["state"]) == ("break_down", "failed")
        assert cells["label"] == "<b>bold</b>"
        assert cells["error"].startswith("ValueError: <script>")
        assert "\x1b" not in text
        assert "swordfish" not in text


def test_I13_long_and_empty_pages_say_what_they_are(app: Towline) -> None:
    @app.task
    def quiet() -> None: ...

    assert app.jobs()._repr_html_() == "<p>none</p>"
    app.enqueue_many(quiet.call() for _ in range(120))
    page = app.jobs(limit=110)
    read = Read(page._repr_html_())
    assert len(read.rows) == 101
    assert page._repr_html_().endswith("<p>10 more on this page; more behind its cursor</p>")
    assert "1" in Read(Page([1], None)._repr_html_()).rows[1]
