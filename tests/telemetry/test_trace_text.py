"""T6: any text in the column `trace` is harmless."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan

from tests.database import Database
from tests.speed import by_speed
from tests.telemetry.collected import Collected, attributes, links
from towline import INJECTED, Context, Towline
from towline.task.trace import carrier_of
from towline.telemetry.otel.context import context_of, span_of
from towline.testing import drain

GOOD = f"00-{7:032x}-{9:016x}-01"
BAD = [
    "", " ", "null", "{", "{}", "[]", "7", '{"traceparent": 7}', '{"traceparent": "x"}',
    '{"traceparent": null}', f"ff-{7:032x}-{9:016x}-01", f"00-{0:032x}-{9:016x}-01",
    f"00-{7:032x}-{0:016x}-01", GOOD + "-more", GOOD.upper() + "X", "{" * 9000, "\u2028",
    json.dumps({"traceparent": GOOD, "tracestate": 7}),
]  # fmt: skip
ODD = [
    json.dumps({"traceparent": GOOD, "baggage": "=;,%zz," * 50}),
    json.dumps({"traceparent": GOOD, "tracestate": "no state,a=b=c,=,"}),
    json.dumps({"traceparent": GOOD, "something": "newer"}),
    GOOD.replace("00-", "42-", 1),
]


@pytest.mark.each_engine
@pytest.mark.parametrize("traced", [True, False], ids=["traced", "plain"])
def test_T6_any_text_in_the_column_is_harmless(
    app: Towline, collected: Collected, database: Database, traced: bool
) -> None:
    seen: list[str | None] = []

    @app.task
    def one(ctx: Context = INJECTED) -> None:
        seen.append(ctx.trace)

    texts = [*BAD, *ODD, GOOD]
    jobs = app.enqueue_many([one.call() for _ in texts])
    for job, text in zip(jobs, texts, strict=True):
        database.rows("UPDATE towline_job SET trace = ? WHERE id = ?", text, job.id)
    if traced:
        collected.instrument(app, baggage=("tenant",))
    drain(app)
    assert seen[: len(BAD)] == [None if not text.startswith("ff") and text not in ZEROS else text
                                for text in BAD]  # fmt: skip
    assert seen[len(BAD) :] == [GOOD, GOOD, GOOD, ODD[-1], GOOD]
    if traced:
        runs = sorted(collected.spans("run one"), key=lambda span: number(span))
        assert [links(span) for span in runs] == [[]] * len(BAD) + [[(7, 9)]] * 5


ZEROS = (f"00-{0:032x}-{9:016x}-01", f"00-{7:032x}-{0:016x}-01")


def number(span: ReadableSpan) -> int:
    return int(attributes(span)["messaging.message.id"])


@given(st.text() | st.dictionaries(st.text() | st.just("traceparent"), st.text()).map(json.dumps))
def test_T6_no_text_raises(text: str) -> None:
    carrier_of(text)
    span_of(text)
    context_of(text, ("tenant",))


@given(st.binary(max_size=by_speed(200, 5000)))
def test_T6_nor_what_is_hardly_a_text(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for each in (text, "{" + text, '{"traceparent": "' + GOOD + '", "baggage": ' + text + "}"):
        context_of(each, ("tenant",))
