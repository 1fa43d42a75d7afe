"""Health of several worker processes: their supervisor asks each, and answers for all.

A second line (a pair of sockets) leads to each child, beside the one that says stop, which never
waits behind a question. One that is silent for a second is not live, unless it is starting.
"""

from __future__ import annotations

import os
import socket
import threading
import time

from msgspec import Struct

from ..slots.protocol import Channel, Garbled
from . import WELL, Answer, Health
from .systemd import Notices

PATIENCE = 1.0  # seconds for a child to answer
START = 30.0  # seconds in which one that starts may be silent
KEEP = 0.3  # seconds for which an answer is good
MOST_UNANSWERED = 3
LONGEST_PAUSE, PAUSE_AT_START = 5.0, 0.2  # seconds between two notices to systemd


class Question(Struct):
    """To a child."""

    number: int
    metrics: bool = False


class Told(Struct):
    """A child's answer to the question of this number."""

    number: int
    live: Answer
    ready: Answer
    page: bytes | None = None


def answer_questions(descriptor: int, health: Health) -> None:
    """In a child: answer the supervisor, in a thread, as long as it is there."""
    end = socket.socket(fileno=descriptor)
    end.set_inheritable(False)
    channel: Channel[Question] = Channel(end, Question)
    os.register_at_fork(after_in_child=channel.forget)
    threading.Thread(
        target=_answer, args=(channel, health), name="towline-health", daemon=True
    ).start()


def _answer(channel: Channel[Question], health: Health) -> None:
    while questions := channel.receive():
        asked = questions[-1]
        page = health.metrics("") if asked.metrics else None
        text = None if page is None else page[0]
        try:
            channel.send(Told(asked.number, health.live(), health.ready(), text))
        except OSError:  # the supervisor is gone
            return


class Member:
    """One child, and our end of its line."""

    def __init__(self, number: int, end: socket.socket) -> None:
        self.number = number
        self._channel: Channel[Told] = Channel(end, Told)
        self._born = time.monotonic()
        self._asked = self._answered = 0
        self.told: Told | None = None  # to the last question

    def ask(self, metrics: bool) -> None:
        self.told = None
        if self._asked - self._answered >= MOST_UNANSWERED:
            return  # it need not be asked again
        self._asked += 1
        try:
            self._channel.send(Question(self._asked, metrics))
        except OSError:  # it has ended
            pass

    def hear(self, until: float) -> None:
        while self.told is None:
            try:
                heard = self._channel.receive(max(until - time.monotonic(), 0))
            except (Garbled, ValueError):  # or closed meanwhile
                return
            if not heard:
                return
            self._answered = heard[-1].number
            if self._answered == self._asked:
                self.told = heard[-1]

    def live(self) -> Answer:
        if self.told is not None:
            return self.told.live
        if not self._answered and time.monotonic() < self._born + START:
            return WELL
        return Answer(False, "does not answer")

    def close(self) -> None:
        self._channel.close()


class CrewHealth:
    """That of all children of a supervisor."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._members: dict[int, Member] = {}
        self._mutex = threading.Lock()
        self._asked_at = {False: 0.0, True: 0.0}
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
        for member in self._ask():
            answer = member.live()
            if not answer.well:
                return Answer(False, f"worker process {member.number}: {answer.why}")
        return WELL  # one that died is being started again

    def ready(self) -> Answer:
        if self.stopping.is_set():
            return Answer(False, "stopping")
        told = [member.told for member in self._ask()]
        ready = sum(each is not None and each.ready.well for each in told)
        if ready >= self._number:
            return WELL
        return Answer(False, f"{ready} of {self._number} worker processes are ready")

    def metrics(self, accept: str) -> tuple[bytes, str] | None:
        told = {member.number: member.told for member in self._ask(metrics=True)}
        pages = {number: each.page for number, each in told.items() if each and each.page}
        if not pages:
            return None
        from ...telemetry.prometheus.pages import merged

        return merged(pages)

    def _ask(self, metrics: bool = False) -> list[Member]:
        """All of them at the same time; those who come together share an answer."""
        with self._mutex:
            members = list(self._members.values())
            if time.monotonic() >= self._asked_at[metrics] + KEEP:
                for member in members:
                    member.ask(metrics)
                until = time.monotonic() + PATIENCE
                for member in members:
                    member.hear(until)
                # With a page they have said all; without one, nothing of it.
                self._asked_at = {False: time.monotonic(), True: time.monotonic() if metrics else 0}
            return members

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
