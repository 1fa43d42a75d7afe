"""Sentry: what handlers raise is reported once, in a scope of its own, without our variables."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from tests.until import LIMIT
from towline import INJECTED, Cancel, Context, Fail, Retry, Snooze, Towline
from towline.errors import InvalidSetting, TowlineError
from towline.integrations.sentry import report
from towline.testing import drain

WORD = "canary-" + str(4711)  # not as it stands in the source, which Sentry shows as well


class Kept(Transport):
    """Where the SDK sends, here to a list."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.events: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        if (event := envelope.get_event()) is not None:
            self.events.append(event)


@pytest.fixture
def sent() -> Iterator[list[Any]]:
    transport = Kept()
    with sentry_sdk.isolation_scope(), sentry_sdk.new_scope() as scope:
        client = sentry_sdk.Client("http://key@localhost/1", transport=transport)
        scope.set_client(client)
        sentry_sdk.get_isolation_scope().set_client(client)
        before = sentry_sdk.get_global_scope().client
        sentry_sdk.get_global_scope().set_client(client)
        yield transport.events
        sentry_sdk.get_global_scope().set_client(before)
        client.close(timeout=0)


def ended(*jobs: Any) -> None:
    for job in jobs:
        try:
            job.result(LIMIT)
        except TowlineError:
            pass


@pytest.mark.parametrize(("when", "attempts"), [("final", ["2"]), ("every", ["1", "2"])])
@pytest.mark.parametrize("awaits", [False, True])
def test_a_failure_is_reported(
    app: Towline, sent: list[Any], when: Any, attempts: list[str], awaits: bool
) -> None:
    report(app, when=when)

    def fails(card: str) -> None:
        sentry_sdk.set_tag("mine", "yes")
        number = int("0")
        _ = 1 / number

    async def afails(card: str) -> None:
        fails(card)

    function: Any = afails if awaits else fails
    task = app.task(name="fails", max_attempts=2, backoff=lambda _: 0, queue="q")(function)
    with app.worker():
        ended(task.enqueue(WORD))
    assert [event["tags"]["attempt"] for event in sent] == attempts
    for event in sent:
        tags = {"task": "fails", "queue": "q", "mine": "yes"}
        assert {name: event["tags"].get(name) for name in tags} == tags
        (error,) = event["exception"]["values"]
        assert error["type"] == "ZeroDivisionError"
        ours = [f for f in error["stacktrace"]["frames"] if f["module"].startswith("towline")]
        assert ours
        assert not any("vars" in frame for frame in ours)
    assert sentry_sdk.get_isolation_scope()._tags == {}  # each had its own


def test_only_the_handlers_own_variables_say_the_arguments(app: Towline, sent: list[Any]) -> None:
    """Whether Sentry may have those is its own setting."""
    report(app)

    @app.task(max_attempts=1)
    def fails(card: str, ctx: Context = INJECTED) -> None:
        sentry_sdk.capture_message("by hand")
        raise KeyError

    fails.using(key=WORD, label=WORD).enqueue(WORD)
    drain(app, raising=False)
    by_hand, event = sent
    frames = event["exception"]["values"][-1]["stacktrace"]["frames"]
    assert [f["function"] for f in frames if WORD in json.dumps(f.get("vars", {}))] == ["fails"]
    assert by_hand["tags"]["task"] == "fails"
    assert WORD not in json.dumps(by_hand)


def test_what_is_no_failure_is_not_reported(app: Towline, sent: list[Any]) -> None:
    report(app, when="every")

    @app.task(max_attempts=2)
    def ends(how: str, ctx: Context = INJECTED) -> Any:
        match how:
            case "snooze" if ctx.attempt == 1:
                raise Snooze(0)
            case "cancel":
                return Cancel("no need")
            case "fail":
                return Fail("for good")
            case "again" if ctx.attempt == 1:
                raise Retry(delay=0)
        return None

    jobs = [ends.enqueue(how) for how in ("snooze", "cancel", "fail", "again", "")]
    with app.worker():
        ended(*jobs)
    kinds = sorted(event["exception"]["values"][-1]["type"] for event in sent)
    assert kinds == ["Fail", "Retry"]


def test_our_own_lines_are_no_second_event(app: Towline, sent: list[Any]) -> None:
    """Sentry makes events of lines of level ERROR: failures of handlers are none."""
    report(app)

    @app.task(max_attempts=1)
    def fails() -> None:
        raise ValueError

    levels: list[int] = []
    handler = logging.Handler()
    handler.emit = lambda record: levels.append(record.levelno)  # type: ignore[method-assign]
    logging.getLogger("towline").addHandler(handler)
    with app.worker():
        ended(fails.enqueue())
    app.runner.events.flush(LIMIT)
    logging.getLogger("towline").removeHandler(handler)
    assert len(sent) == 1
    assert max(levels) < logging.ERROR


def test_a_second_call_replaces_the_first(app: Towline, sent: list[Any]) -> None:
    report(app)
    report(app, when="every")
    assert len(app.middleware) == 1
    with pytest.raises(InvalidSetting):
        report(app, when="always")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]

    @app.task(max_attempts=2)
    def fails() -> None:
        raise ValueError

    fails.enqueue()
    drain(app, raising=False)
    assert len(sent) == 1


def test_X7_what_is_refused_at_its_enqueue_does_not_show_its_arguments(
    app: Towline, sent: list[Any]
) -> None:
    report(app)

    @app.task
    def charge(card: str, amount: int) -> None: ...

    try:
        wrong: Any = "no number"
        charge.enqueue(WORD, wrong)
    except TowlineError as error:
        sentry_sdk.capture_exception(error)
    (event,) = sent
    ours = [
        frame
        for value in event["exception"]["values"]
        for frame in value["stacktrace"]["frames"]
        if frame["module"].startswith("towline")
    ]
    assert ours
    assert WORD not in json.dumps(ours)
