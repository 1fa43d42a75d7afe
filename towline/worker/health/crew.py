"""Health of several worker processes: their supervisor asks each, and answers for all.

A second line (a pair of sockets) leads to each child, beside the one that says stop, which never
waits behind a question. One that is silent for a second is not live, unless it is starting.

A page of metrics has what collectors of the application say, which may raise, take long or never
end. So a child says how it is at once, and sends the page when it is made:

    Question ──► Told ──► Page, if one was asked for and comes in time
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time

from msgspec import Struct

from ..slots.protocol import Channel, Garbled
from . import WELL, Answer, Complaint, Health, NoPage
from .systemd import Notices

log = logging.getLogger("towline.worker")

PATIENCE = 1.0  # seconds for a child to answer
START = 30.0  # seconds in which one that starts may be silent
KEEP = 0.3  # seconds for which an answer is good
MOST_UNANSWERED = 3
PAGE_PATIENCE = 4.0  # seconds for a page to be made: less than the port has for a request
SLICE, PAUSE = 0.05, 0.005  # seconds of waiting for pages, and between: a probe has the lines then
LONGEST_PAUSE, PAUSE_AT_START = 5.0, 0.2  # seconds between two notices to systemd


class Question(Struct):
    """To a child."""

    number: int
    metrics: bool = False


class Told(Struct, tag=True):
    """A child's answer to the question of this number."""

    number: int
    live: Answer
    ready: Answer


class Page(Struct, tag=True):
    """Its page for the question of this number; without a text where it has no metrics."""

    number: int
    text: bytes | None = None
    failed: bool = False


# ---- in a child


def answer_questions(descriptor: int, health: Health) -> None:
    """Answer the supervisor, in threads, as long as it is there."""
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    channel: Channel[Question] = Channel(end, Question)
    os.register_at_fork(after_in_child=channel.forget)
    pages = Pages(channel, health)
    threading.Thread(target=pages.make, name="towline-metrics", daemon=True).start()
    threading.Thread(
        target=_answer, args=(channel, health, pages), name="towline-health", daemon=True
    ).start()


def _answer(channel: Channel[Question], health: Health, pages: Pages) -> None:
    while questions := channel.receive():
        try:
            channel.send(Told(questions[-1].number, health.live(), health.ready()))
        except OSError:  # the supervisor is gone
            return
        for asked in questions:
            if asked.metrics:
                pages.ask_for(asked.number)


class Pages:
    """Makes them in one thread, so one at a time: while one is under way, for ever perhaps, only
    the last that was asked for is remembered."""

    def __init__(self, channel: Channel[Question], health: Health) -> None:
        self._channel = channel
        self._health = health
        self._wanted = 0, 0.0  # the number of the question, and when it came
        self._bell = threading.Event()
        self._complaint = Complaint()

    def ask_for(self, number: int) -> None:
        self._wanted = number, time.monotonic()
        self._bell.set()

    def make(self) -> None:
        while self._bell.wait():
            self._bell.clear()
            number, since = self._wanted
            page = self._made(number)
            if time.monotonic() > since + PAGE_PATIENCE:
                continue  # nobody waits for it, and its megabytes would be in the way of answers
            try:
                self._channel.send(page)
            except OSError:  # the supervisor is gone
                return

    def _made(self, number: int) -> Page:
        try:
            page = self._health.metrics("")
        except BaseException:  # whatever a collector raises: the next page is made by this thread
            if self._complaint.is_due():
                log.exception("the page of metrics could not be made")
            return Page(number, failed=True)
        return Page(number, None if page is None else page[0])


# ---- in the supervisor


class Member:
    """One child, and our end of its line."""

    def __init__(self, number: int, end: socket.socket) -> None:
        self.number = number
        self._channel: Channel[Told | Page] = Channel(end, Told | Page)
        self._born = time.monotonic()
        self._asked = self._answered = 0
        self._asked_for_page: int | None = None
        self.told: Told | None = None  # to the last question
        self.page: Page | None = None  # to the last for one

    @property
    def makes_page(self) -> bool:
        """Whether it does, as far as is known: of one that is silent none is to be expected."""
        return self._asked_for_page is not None and self.page is None and self.told is not None

    def ask(self, metrics: bool) -> None:
        self.told = None
        if metrics:
            self.page = self._asked_for_page = None
        if self._asked - self._answered >= MOST_UNANSWERED:
            return  # it need not be asked again
        self._asked += 1
        if metrics:
            self._asked_for_page = self._asked
        try:
            self._channel.send(Question(self._asked, metrics))
        except OSError:  # it has ended
            pass

    def hear(self, until: float) -> None:
        while self.told is None and self._take_in(until):
            pass

    def hear_page(self, until: float) -> None:
        while self.makes_page and self._take_in(until):
            pass

    def _take_in(self, until: float) -> bool:
        """What it says next; False when it says nothing."""
        try:
            heard = self._channel.receive(max(until - time.monotonic(), 0))
        except (Garbled, ValueError):  # or closed meanwhile
            return False
        for each in heard:
            if isinstance(each, Page):
                if each.number == self._asked_for_page:
                    self.page = each
                continue
            self._answered = each.number
            if each.number == self._asked:
                self.told = each
        return bool(heard)

    def live(self) -> Answer:
        if self.told is not None:
            return self.told.live
        if not self._answered and time.monotonic() < self._born + START:
            return WELL
        return Answer(False, "does not answer")

    def ready(self) -> bool:
        return self.told is not None and self.told.ready.well

    def close(self) -> None:
        self._channel.close()


class Found(Struct, frozen=True):
    """How a child was found."""

    number: int
    live: Answer
    ready: bool


class CrewHealth:
    """That of all children of a supervisor."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._members: dict[int, Member] = {}
        self._mutex = threading.Lock()
        self._asked_at = self._scraped_at = 0.0
        self._scraping = threading.Lock()
        self._complaint = Complaint()
        self.stopping = threading.Event()

    # ---- what the supervisor calls

    def open_line(self, number: int) -> socket.socket:
        """A line for a child that is about to start; its end of it."""
        ours, theirs = socket.socketpair()
        with self._mutex:
            self._members[number] = Member(number, ours)
        return theirs

    def remove(self, number: int) -> None:
        with self._mutex:
            member = self._members.pop(number, None)
            if member is not None:
                member.close()

    # ---- what is asked

    def live(self) -> Answer:
        for found in self._ask():
            if not found.live.well:
                return Answer(False, f"worker process {found.number}: {found.live.why}")
        return WELL  # one that died is being started again

    def ready(self) -> Answer:
        if self.stopping.is_set():
            return Answer(False, "stopping")
        ready = sum(found.ready for found in self._ask())
        if ready >= self._number:
            return WELL
        return Answer(False, f"{ready} of {self._number} worker processes are ready")

    def metrics(self, accept: str) -> tuple[bytes, str] | None:
        """Without the parts of those whose page failed or is late: what the others did is counted
        nowhere else, and that a process is missing can be seen. A scrape fails that has none."""
        with self._scraping:  # those who come together share the pages
            if time.monotonic() >= self._scraped_at + KEEP:
                self._scrape()
                self._scraped_at = time.monotonic()
            with self._mutex:
                pages = [(each.number, each.page) for each in self._members.values() if each.page]
        texts = {number: page.text for number, page in pages if page.text is not None}
        if texts:
            from ...telemetry.prometheus.pages import merged

            return merged(texts)
        if pages and not any(page.failed for _, page in pages):
            return None
        raise NoPage

    def _scrape(self) -> None:
        """Ask all for a page, and wait for those that are made, without the lines of probes."""
        until = time.monotonic() + PAGE_PATIENCE
        self._ask(metrics=True)
        while late := self._hear_pages():
            if time.monotonic() >= until:
                if self._complaint.is_due():
                    who = ", ".join(map(str, late))
                    log.warning("no metrics in %g s of worker process %s", PAGE_PATIENCE, who)
                return
            time.sleep(PAUSE)

    def _hear_pages(self) -> list[int]:
        """Take in what has come of them; who still makes one."""
        with self._mutex:
            until = time.monotonic() + SLICE
            for member in self._members.values():
                member.hear_page(until)
            return [each.number for each in self._members.values() if each.makes_page]

    def _ask(self, metrics: bool = False) -> list[Found]:
        """All of them at the same time; those who come together share an answer."""
        with self._mutex:
            members = list(self._members.values())
            if metrics or time.monotonic() >= self._asked_at + KEEP:
                for member in members:
                    member.ask(metrics)
                until = time.monotonic() + PATIENCE
                for member in members:
                    member.hear(until)
                self._asked_at = time.monotonic()
            # As it is now: the next question, a scrape's perhaps, takes back what they told.
            return [Found(each.number, each.live(), each.ready()) for each in members]

    def notify(self, notices: Notices) -> None:
        """In a thread: tell systemd how they are."""
        while True:
            notices.tell(self)
            pause = PAUSE_AT_START
            if notices.said_ready:
                pause = min(LONGEST_PAUSE, notices.interval or LONGEST_PAUSE)
            if self.stopping.is_set():
                time.sleep(PAUSE_AT_START)
            else:
                self.stopping.wait(pause)
