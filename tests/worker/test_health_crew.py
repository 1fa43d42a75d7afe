"""Health of a crew whose pages of metrics fail, are slow or never come: no probe notices."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests import database as databases
from tests.cli.shop import Shop
from tests.until import until
from tests.worker.gate import LIMIT
from towline.worker.health import WELL, Answer, NoPage, crew
from towline.worker.health.crew import CrewHealth, answer_questions
from towline.worker.health.systemd import Notices

# A collector of the application's own; each process is in the mood that the test wrote down.
MOODY = """
import os, time
from pathlib import Path
from prometheus_client import REGISTRY
from shop import app

class Moody:
    def describe(self):
        return []

    def collect(self):
        if is_one_that("raises"):
            raise RuntimeError("not today")
        while is_one_that("waits"):
            Path(f"waits-{os.getpid()}").touch()
            time.sleep(0.01)
        return []

def is_one_that(mood):
    try:
        return str(os.getpid()) in Path(mood).read_text().split()
    except FileNotFoundError:
        return False

REGISTRY.register(Moody())
"""


class Crew:
    """Two worker processes, their supervisor and its port."""

    def __init__(self, shop: Shop) -> None:
        self.folder = shop.folder
        (shop.folder / "moody.py").write_text(MOODY)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        words = ("worker", "moody:app", "--processes", "2", "--health", self.address)
        self.command = shop.start(*words)
        until(lambda: self.says("/readyz") == {"ready": True})
        self.children = self.command.children()

    def asked(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection(self.address, timeout=LIMIT)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except ConnectionError:  # it does not listen yet
            return 0, "null"
        finally:
            connection.close()

    def says(self, path: str) -> Any:
        return json.loads(self.asked(path)[1])

    def parts(self) -> list[str]:
        """Which processes the page is of."""
        status, page = self.asked("/metrics")
        assert status == 200, page
        return parts_of(page.encode())

    def well(self) -> bool:
        said = self.says("/livez"), self.says("/readyz")
        return said == ({"live": True}, {"ready": True})

    def let(self, mood: str, *children: int) -> None:
        """From now on these are in that mood, and no others."""
        new = self.folder / "new"
        new.write_text(" ".join(map(str, children)))
        new.rename(self.folder / mood)


def parts_of(page: bytes) -> list[str]:
    (slots,) = (
        family
        for family in text_string_to_metric_families(page.decode())
        if family.name == "towline_slots"
    )
    return sorted({sample.labels["process"] for sample in slots.samples})


def let_answers_grow_old() -> None:
    """So long that the next question is not answered by what was said before."""
    time.sleep(crew.KEEP + 0.05)


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Crew]:
    with databases.opened(databases.SQLITE, tmp_path) as database:
        shop = Shop(tmp_path, database.url)
        try:
            yield Crew(shop)
        finally:
            shop.close()


def test_W7_a_collector_that_raises_leaves_the_crew_live(members: Crew) -> None:
    """It costs the page, as with one process, and is in the log once."""
    members.let("raises", *members.children)
    for _ in range(3):
        assert members.asked("/metrics") == (500, "no page could be made\n")
        assert members.well()
        let_answers_grow_old()
        assert members.well()
    assert members.command.log.count("RuntimeError: not today") == 2  # of each child
    victim = members.children[0]
    members.let("raises", victim)
    let_answers_grow_old()
    assert len(members.parts()) == 1  # that of the other child
    assert members.well()
    members.let("raises")
    let_answers_grow_old()
    assert members.parts() == ["1", "2"]
    members.command.signal()
    assert members.command.ends() == 0


def test_W7_a_page_that_takes_long_is_waited_for_by_no_probe(members: Crew) -> None:
    """But by a scrape, if it is not for too long."""

    def is_served() -> bool:
        members.let("waits", *members.children)
        found: list[tuple[int, str]] = []
        scrape = beside(lambda: found.append(members.asked("/metrics")))
        for child in members.children:
            path = members.folder / f"waits-{child}"
            until(path.exists, "the begin of a page")
        assert members.well()
        let_answers_grow_old()
        assert members.well()
        members.let("waits")
        scrape.join(LIMIT)
        status, page = found[0]
        return status == 200 and parts_of(page.encode()) == ["1", "2"]

    until(is_served)  # at once, unless other programs have the cores


def test_W7_a_page_that_never_comes_costs_the_part_of_its_process(members: Crew) -> None:
    victim = members.children[0]
    members.let("waits", victim)
    for _ in range(2):
        assert len(members.parts()) == 1  # that of the other child
        assert members.well()
        let_answers_grow_old()
        assert members.well()
    assert "no metrics in 4 s of worker process " in members.command.log
    members.let("waits")
    until(lambda: members.parts() == ["1", "2"])


class Slow:
    """A child whose pages come when the test lets them; the others are of its own thread."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.gate = threading.Event()
        self.under_way = self.most = 0

    def live(self) -> Answer:
        return WELL

    def ready(self) -> Answer:
        return WELL

    def metrics(self, accept: str) -> tuple[bytes, str]:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        self.begun.release()
        assert self.gate.wait(LIMIT)
        self.under_way -= 1
        return b"towline_slots 1.0\n", "text/plain"

    def wait_for_a_page(self) -> None:
        assert self.begun.acquire(timeout=LIMIT), "no page was begun"


@pytest.fixture
def one() -> Iterator[tuple[CrewHealth, Slow]]:
    """A crew of one, in this process."""
    health, child = CrewHealth(1), Slow()
    answer_questions(health.open_line(1).detach(), child)
    yield health, child
    child.gate.set()
    health.remove(1)


def scraped(health: CrewHealth) -> list[str] | None:
    """Which processes the page is of; None where there should be one."""
    try:
        page = health.metrics("")
    except NoPage:
        return None
    assert page is not None
    return parts_of(page[0])


def beside(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread


def test_W9_systemd_hears_signs_while_a_page_is_made(
    one: tuple[CrewHealth, Slow], tmp_path: Path
) -> None:
    health, child = one
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(LIMIT)
        notices = Notices(str(tmp_path / "notify"), watchdog=0.001)
        scrape = beside(lambda: scraped(health))
        child.wait_for_a_page()
        notices.tell(health)
        heard = [manager.recv(100).decode() for _ in range(3)]
        assert heard == ["READY=1", "STATUS=ready", "WATCHDOG=1"]
        let_answers_grow_old()
        notices.tell(health)
        assert manager.recv(100) == b"WATCHDOG=1"
        assert scrape.is_alive()  # it still waits
        child.gate.set()
        scrape.join(LIMIT)


def test_one_page_at_a_time_is_under_way(
    one: tuple[CrewHealth, Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is late is given to nobody, and what is asked for next is a new one."""
    monkeypatch.setattr(crew, "PAGE_PATIENCE", 0.2)
    monkeypatch.setattr(crew, "KEEP", 0.0)
    health, child = one
    threads = threading.active_count()
    for _ in range(5):
        assert scraped(health) is None
        assert health.live() == health.ready() == WELL
    assert threading.active_count() <= threads
    child.gate.set()
    until(lambda: scraped(health) == ["1"])
    assert child.most == 1


def test_a_question_takes_no_answer_back(
    one: tuple[CrewHealth, Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a probe was told counts, although another asks before it has looked."""
    health, _ = one
    monkeypatch.setattr(crew, "KEEP", 0.0)
    found = health._ask()
    (member,) = health._members.values()
    member.ask(metrics=False)
    assert [(each.live, each.ready) for each in found] == [(WELL, True)]


def test_those_who_scrape_together_share_a_page(
    one: tuple[CrewHealth, Slow], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(crew, "KEEP", LIMIT)
    health, child = one
    found: list[list[str] | None] = []
    scrapes = [beside(lambda: found.append(scraped(health))) for _ in range(4)]
    child.wait_for_a_page()
    child.gate.set()
    for scrape in scrapes:
        scrape.join(LIMIT)
    assert found == [["1"]] * 4
    assert not child.begun.acquire(blocking=False)


def test_one_that_ends_is_not_waited_for(one: tuple[CrewHealth, Slow]) -> None:
    health, child = one
    found: list[list[str] | None] = []
    scrape = beside(lambda: found.append(scraped(health)))
    child.wait_for_a_page()
    health.remove(1)
    scrape.join(crew.PAGE_PATIENCE / 2)
    assert found == [None]
