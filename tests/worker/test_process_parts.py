"""What process slots are made of: frames over a socket, tokens in a pipe, how much goes at once."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from towline.model import Outcome
from towline.worker.slots.pace import MOMENT, MOST_AT_ONCE, Pace
from towline.worker.slots.protocol import (
    READ_AT_ONCE,
    Answer,
    Begun,
    Broken,
    Channel,
    Garbled,
    Ready,
    Stop,
    packed,
)
from towline.worker.slots.tokens import EXIT, Tokens

Ends = tuple[socket.socket, "Channel[Answer]"]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A socket, and the channel at its other end."""
    theirs, ours = socket.socketpair()
    with theirs, ours:
        yield theirs, Channel(ours, Answer)


def test_frames_come_whole_and_in_order(ends: Ends) -> None:
    """However they are cut, and however large they are."""
    theirs, channel = ends
    large = Broken("x" * (3 * READ_AT_ONCE))
    data = packed(Begun(1, 0.5), Ready(), large, Begun(2, 1.5))
    cut = len(packed(Begun(1, 0.5))) + 2
    theirs.sendall(data[:cut])
    assert channel.receive() == [Begun(1, 0.5)]
    assert channel.receive(0) == []
    sending = threading.Thread(target=theirs.sendall, args=(data[cut:],))
    sending.start()
    assert channel.receive() == [Ready()]
    rest = channel.receive()
    sending.join()
    assert [*rest, *channel.receive(0)] == [large, Begun(2, 1.5)]


def test_what_cannot_be_read_is_said_after_what_can(ends: Ends) -> None:
    theirs, channel = ends
    theirs.sendall(packed(Begun(1, 0.5), Stop(1, 1, Outcome.TIMEOUT), Ready()))
    assert channel.receive() == [Begun(1, 0.5)]
    for _ in range(2):
        with pytest.raises(Garbled, match="cannot be read"):
            channel.receive()


def test_a_closed_end_says_nothing_more(ends: Ends) -> None:
    theirs, channel = ends
    theirs.sendall(packed(Ready())[:-1])
    theirs.close()
    assert channel.receive() == []


def test_each_token_is_taken_once() -> None:
    """By whoever reads it first; the other knows nothing of it."""
    tokens = Tokens.pipe()
    process = Tokens(tokens.reading)
    begun: list[int] = []

    def begin() -> None:
        while (number := process.wait()) != EXIT:
            begun.append(number)

    beginning = threading.Thread(target=begin)
    beginning.start()
    back: list[int] = []
    for first in range(1, 20_001, 20):
        tokens.give(range(first, first + 20))
        back += tokens.take_back()
    tokens.give([EXIT])
    beginning.join()
    assert sorted(begun + back) == list(range(1, 20_001))
    assert begun == sorted(begun)
    assert tokens.take_back() == []
    tokens.close()


def test_as_many_go_at_once_as_run_in_a_moment() -> None:
    """None behind another before handlers have shown that they are short; a slow one counts at
    once, and quick ones make up for it."""
    pace = Pace()
    assert pace.at_once == 1
    for _ in range(10):
        pace.ended(10, 10 * 1e-6)
    assert pace.at_once == MOST_AT_ONCE
    pace.ended(1, 2 * MOMENT)
    assert pace.at_once == 1
    pace.ended(1, MOMENT / 10)
    assert pace.at_once == 1
    for _ in range(10):
        pace.ended(1, MOMENT / 10)
    assert 1 < pace.at_once < 10
