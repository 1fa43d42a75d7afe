"""Wake-ups through Redis and NATS: hints that may be lost, from servers that may be away (P2)."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.brokers import Broker, broker, brokers
from tests.sqlite.processes import ROOT, OtherProcess
from tests.until import until
from tests.wakes.rings import FAR, Rings
from tests.wakes.writer import writer
from towline.errors import InvalidSetting
from towline.wakes import Wake, open_wake, pack, unpack

CHANNEL = "public.towline_wake"


@pytest.fixture(params=brokers())
def server(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with broker(request.param) as server:
        yield server


@pytest.fixture
def other() -> Iterator[OtherProcess]:
    with writer("sqlite:///unused.db") as other:
        yield other


@contextmanager
def listening(url: str, channel: str = CHANNEL) -> Iterator[tuple[Wake, Rings]]:
    """Somebody who listens; the first ring has come."""
    rings = Rings()
    with opened(url, channel) as wake:
        wake.start(rings)
        assert rings.take() == [None]
        yield wake, rings


@contextmanager
def opened(url: str, channel: str = CHANNEL) -> Iterator[Wake]:
    wake = open_wake(url, channel)
    try:
        yield wake
    finally:
        wake.stop()


def threads() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("towline ")]


def test_P2_another_process_tells_of_its_queues(server: Broker, other: OtherProcess) -> None:
    with listening(server.url) as (_, rings):
        for number in range(5):
            other.do(f"tell {server.url} {CHANNEL} a b{number}")
            assert rings.take() == [{"a", f"b{number}"}]
        other.do(f"tell {server.url} {CHANNEL}")
        assert rings.take() == [None]


def test_M5_another_channel_is_not_heard(server: Broker, other: OtherProcess) -> None:
    with listening(server.url) as (_, rings):
        other.do(f"tell {server.url} another.channel a")
        other.do(f"tell {server.url} {CHANNEL} b")
        assert rings.take() == [{"b"}]


def test_P2_one_that_listens_tells_as_well(server: Broker) -> None:
    with listening(server.url) as (one, _), listening(server.url) as (_, ringing_two):
        one.tell(["a"])
        assert ringing_two.take() == [{"a"}]


def test_P2_one_that_tells_begins_to_listen(server: Broker, other: OtherProcess) -> None:
    with opened(server.url) as wake:
        wake.tell(["a"])
        rings = Rings()
        wake.start(rings)
        assert rings.take()[0] is None
        other.do(f"tell {server.url} {CHANNEL} b")
        rings.take_until({"b"})


def test_P1_a_server_that_was_away_is_heard_and_told_again(
    server: Broker, other: OtherProcess
) -> None:
    changes: list[str] = []
    with listening(server.url) as (wake, rings), opened(server.url) as teller:
        wake.on_change(lambda _, state: changes.append(state))
        for number in range(2):
            teller.tell(["before"])
            rings.take_until({"before"})
            server.stop()
            for _ in range(20):
                teller.tell(["lost"])
            server.start()
            rings.take_until(None)
            other.do(f"tell {server.url} {CHANNEL} after{number}")
            rings.take_until({f"after{number}"})
            tell_until_heard(teller, rings, f"again{number}")
    assert changes == ["lost", "restored"] * 2


def tell_until_heard(teller: Wake, rings: Rings, queue: str) -> None:
    """After a failure nothing is told for a while; but not for ever."""
    heard = threading.Event()

    def listen() -> None:
        rings.take_until({queue})
        heard.set()

    ear = threading.Thread(target=listen)
    ear.start()

    def told() -> bool:
        teller.tell([queue])
        return heard.wait(0.05)

    until(told)
    ear.join(FAR)


def test_P1_a_server_that_is_away_at_the_start_is_heard_later(
    server: Broker, other: OtherProcess
) -> None:
    server.stop()
    rings = Rings()
    with opened(server.url) as wake:
        wake.start(rings)
        server.start()
        assert rings.take() == [None]
        other.do(f"tell {server.url} {CHANNEL} a")
        assert rings.take() == [{"a"}]


def test_P2_a_program_that_ends_at_once_is_heard(server: Broker) -> None:
    script = "import sys; from towline.wakes import open_wake; open_wake(*sys.argv[1:]).tell(['a'])"
    command = [sys.executable, "-W", "error", "-c", script, server.url, CHANNEL]
    with listening(server.url) as (_, rings):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == ("", "")
        assert rings.take() == [{"a"}]


def test_P2_stop_leaves_nothing_behind(server: Broker) -> None:
    with listening(server.url) as (wake, _):
        wake.tell(["a"])
        wake.stop()
        wake.stop()
        assert threads() == []
    server.stop()
    with opened(server.url) as wake:
        wake.start(Rings())
        wake.tell(["a"])
    assert threads() == []


def test_P2_what_strangers_publish_rings_without_a_queue() -> None:
    assert unpack(pack(["b", "a"])) == {"a", "b"}
    for data in (b"", b"[]", b"{", b"\xff", b"[1]", b'"a"', b"null"):
        assert unpack(data) is None


# ---- which server a URL names


@pytest.mark.parametrize("url", ["", "redis", "http://here", "postgresql://here", "redis:here"])
def test_a_url_of_no_such_server_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="redis://"):
        open_wake(url, CHANNEL)


@pytest.mark.parametrize("url", ["redis://here:port", "redis://here?socket_timeout=soon"])
def test_a_url_that_redis_does_not_understand_is_refused(url: str) -> None:
    with pytest.raises(InvalidSetting, match="Redis"):
        open_wake(url, CHANNEL)


@pytest.mark.parametrize(
    ("url", "extra"), [("rediss://here", "redis"), ("unix:///here", "redis"), ("tls://a", "nats")]
)
def test_a_missing_client_names_the_extra(
    url: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, extra, None)
    monkeypatch.setitem(sys.modules, "nats.aio.client", None)
    monkeypatch.delitem(sys.modules, f"towline.wakes.{extra}", raising=False)
    with pytest.raises(InvalidSetting, match=rf"\.\[{extra}\]"):
        open_wake(url, CHANNEL)


def test_importing_towline_imports_no_client() -> None:
    script = "import sys, towline; print(*{'redis', 'nats', 'psycopg'} & set(sys.modules))"
    command = [sys.executable, "-c", script]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.split() == []
